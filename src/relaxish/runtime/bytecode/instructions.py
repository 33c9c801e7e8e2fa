"""Instructions of the virtual machine and the text forms of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# What a result was declared to be, as plain data: ("tensor", dtype, rank, extents), ("shape", rank) or ("tuple", fields).
Declared = tuple[Any, ...]

VOID_REGISTER = -1
"""Destination of a call whose result nobody wants."""
VM_REGISTER = -2
"""Stands for the virtual machine itself, the context argument of many builtins."""


class Arg(NamedTuple):
    """An operand: ``kind`` is "r" (register), "i" (immediate), "c" (constant index) or "f" (function index)."""

    kind: str
    value: int


@dataclass(frozen=True)
class CallOp:
    """``dst = functions[func](*args)``; ``returns`` is what the result was declared to be (see :mod:`.results`)."""

    dst: int
    func: int
    args: tuple[Arg, ...]
    returns: Declared | None = None


@dataclass(frozen=True)
class RetOp:
    """Return a register."""

    reg: int


@dataclass(frozen=True)
class GotoOp:
    """Jump by ``offset`` instructions."""

    offset: int


@dataclass(frozen=True)
class IfOp:
    """Go on when the register is true, else jump by ``false_offset``."""

    cond: int
    false_offset: int


Instruction = CallOp | RetOp | GotoOp | IfOp


@dataclass
class FunctionInfo:
    """An entry of the function table.

    ``kind`` is "vm" (bytecode here), "vmtir" (the same, built for native execution), "kernel" (a loop program of this
    executable) or "packed" (a builtin or a global function found by name when the machine starts).
    """

    kind: str
    name: str
    param_names: tuple[str, ...] = ()
    num_registers: int = 0
    code: list[Instruction] = field(default_factory=list)

    @property
    def is_vm(self) -> bool:
        """Whether the machine itself runs it."""
        return self.kind in ("vm", "vmtir")


def _reg(index: int) -> str:
    return {VOID_REGISTER: "%void", VM_REGISTER: "%vm"}.get(index, f"%{index}")


def _arg(arg: Arg, functions: Sequence[FunctionInfo]) -> str:
    if arg.kind == "r":
        return _reg(arg.value)
    if arg.kind == "f":
        return f"f[{_function_name(arg.value, functions)}]"
    return f"i{arg.value}" if arg.kind == "i" else f"c[{arg.value}]"


def _function_name(index: int, functions: Sequence[FunctionInfo]) -> str:
    return functions[index].name if index < len(functions) else f"unknown_func_index({index})"


def to_text(functions: Sequence[FunctionInfo]) -> str:
    """Readable assembly of every function; natively compiled ones and packed ones are only named."""
    blocks = []
    for function in functions:
        if function.kind == "vm":
            lines = [f"@{function.name}:"]
            lines += ["  " + _instruction_text(i, functions) for i in function.code]
            blocks.append("\n".join(lines) + "\n\n")
        elif function.kind == "vmtir":
            blocks.append(f"@{function.name} num_inputs={len(function.param_names)} vm_tir_func;\n\n")
        else:
            blocks.append(f"@{function.name} packed_func;\n\n")
    return "".join(blocks)


def _instruction_text(op: Instruction, functions: Sequence[FunctionInfo]) -> str:
    match op:
        case CallOp():
            args = ", ".join(_arg(a, functions) for a in op.args)
            return f"call  {_function_name(op.func, functions):<16} in: {args:<12} dst: {_reg(op.dst)}"
        case RetOp():
            return f"ret   {_reg(op.reg)}"
        case GotoOp():
            return f"goto  {op.offset}"
    return f"If    {_reg(op.cond)}, {op.false_offset}"


def to_python(functions: Sequence[FunctionInfo]) -> str:
    """The program as calls of :class:`relaxish.relax.ExecBuilder`."""
    lines = ["ib = rx.Builder()"]
    for function in functions:
        if function.kind != "vm":
            continue
        lines.append(f'with ib.function("{function.name}", num_inputs={len(function.param_names)}):')
        lines += ["    " + _instruction_python(i, functions) for i in function.code]
    return "\n".join(lines) + "\n"


def _instruction_python(op: Instruction, functions: Sequence[FunctionInfo]) -> str:
    match op:
        case CallOp():
            args = ", ".join(_arg_python(a, functions) for a in op.args)
            dst = f", dst=ib.r({op.dst})" if op.dst != VOID_REGISTER else ""
            return f'ib.emit_call("{functions[op.func].name}", args=[{args}]{dst})'
        case RetOp():
            return f"ib.emit_ret(ib.r({op.reg}))"
        case GotoOp():
            return f"ib.emit_goto({op.offset})"
    return f"ib.emit_if(ib.r({op.cond}), {op.false_offset})"


def _arg_python(arg: Arg, functions: Sequence[FunctionInfo]) -> str:
    if arg.kind == "r":
        return {VOID_REGISTER: "ib.void_arg()", VM_REGISTER: "ib.r(vm)"}.get(arg.value, f"ib.r({arg.value})")
    if arg.kind == "f":
        return f'ib.f("{functions[arg.value].name}")'
    return f"ib.{'imm' if arg.kind == 'i' else 'c'}({arg.value})"


def instruction_to_json(op: Instruction) -> list[Any]:
    """Plain data."""
    match op:
        case CallOp():
            call = ["call", op.dst, op.func, [[a.kind, a.value] for a in op.args]]
            return call if op.returns is None else [*call, op.returns]
        case RetOp():
            return ["ret", op.reg]
        case GotoOp():
            return ["goto", op.offset]
    return ["if", op.cond, op.false_offset]


def _tuples(data: object) -> Any:
    return tuple(_tuples(d) for d in data) if isinstance(data, list) else data


def instruction_from_json(data: list[Any]) -> Instruction:
    """Inverse of :func:`instruction_to_json`."""
    kind = data[0]
    if kind == "call":
        returns = _tuples(data[4]) if len(data) > 4 else None
        return CallOp(data[1], data[2], tuple(Arg(k, v) for k, v in data[3]), returns)
    if kind == "ret":
        return RetOp(data[1])
    return GotoOp(data[1]) if kind == "goto" else IfOp(data[1], data[2])
