"""Checks of hand-written bytecode, and the numbering of its registers."""

from __future__ import annotations

from ...support.errors import InternalError, RelaxishError
from .instructions import Arg, CallOp, FunctionInfo, GotoOp, IfOp, Instruction, RetOp


def check_function(function: FunctionInfo, constants: int, functions: int) -> None:
    """Raise InternalError if a register is read that nothing wrote, or a constant or function does not exist.

    Raises RelaxishError for a jump out of the function or a missing return.
    """
    written = set(range(len(function.param_names)))

    def check_read(register: int) -> None:
        if register >= 0 and register not in written:
            raise InternalError(
                f'register r({register}) in VM function "{function.name}" is used as input while it is never defined '
                f"as a destination"
            )

    for op in function.code:
        match op:
            case CallOp():
                _check_index(function, Arg("f", op.func), functions)
                for arg in op.args:
                    if arg.kind == "r":
                        check_read(arg.value)
                    elif arg.kind in "cf":
                        _check_index(function, arg, constants if arg.kind == "c" else functions)
                if op.dst >= function.num_registers:
                    raise InternalError(
                        f'register r({op.dst}) in VM function "{function.name}" is written, which has '
                        f"{function.num_registers} registers"
                    )
                if op.dst >= 0:
                    written.add(op.dst)
            case RetOp():
                check_read(op.reg)
            case IfOp():
                check_read(op.cond)
    _check_jumps(function)


def _check_index(function: FunctionInfo, arg: Arg, size: int) -> None:
    if not 0 <= arg.value < size:
        what = "constant" if arg.kind == "c" else "function"
        raise InternalError(f'{what} index {arg.value} in VM function "{function.name}" is out of bounds ({size})')


def registers_read(function: FunctionInfo) -> set[int]:
    """The registers whose values anything uses."""
    read: set[int] = set()
    for op in function.code:
        match op:
            case CallOp():
                read.update(a.value for a in op.args if a.kind == "r")
            case RetOp():
                read.add(op.reg)
            case IfOp():
                read.add(op.cond)
    return read


def _check_jumps(function: FunctionInfo) -> None:
    size = len(function.code)
    for position, op in enumerate(function.code):
        offset = op.offset if isinstance(op, GotoOp) else op.false_offset if isinstance(op, IfOp) else 0
        if not 0 <= position + offset < size:
            raise RelaxishError(f"function {function.name}: jump at {position} leaves the function")
    if not function.code or not isinstance(function.code[-1], RetOp | GotoOp):
        raise RelaxishError(f"function {function.name} does not end in a return")


def renumber_registers(function: FunctionInfo) -> None:
    """Number registers in the order in which they are written, parameters first; sets ``num_registers``.

    ::

        call add in: %0, %1 dst: %100        call add in: %0, %1 dst: %2
        ret  %100                       ->   ret  %2
    """
    inputs = len(function.param_names)
    numbers = {i: i for i in range(inputs)}

    def define(register: int) -> int:
        return register if register < 0 else numbers.setdefault(register, len(numbers))

    def read(register: int) -> int:
        return numbers.get(register, register)

    def rewrite(op: Instruction) -> Instruction:
        match op:
            case CallOp():
                args = tuple(Arg("r", read(a.value)) if a.kind == "r" else a for a in op.args)
                return CallOp(define(op.dst), op.func, args, op.returns)
            case RetOp():
                return RetOp(read(op.reg))
        return IfOp(read(op.cond), op.false_offset) if isinstance(op, IfOp) else op

    function.code = [rewrite(op) for op in function.code]
    function.num_registers = len(numbers)
