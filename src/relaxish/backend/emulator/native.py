"""A small subset of Python that becomes LLVM text: 64-bit integers, memory, calls.

The emulator's runtime (``runtime_code/``) is written in it, so that schedulers and shadow memory read like Python
and run like C. A function takes and returns 64-bit integers; addresses are integers too. Statements are assignments,
``if``, ``while``, ``return`` and calls; expressions are integer arithmetic (``//`` and ``%`` round towards zero),
comparisons, short-circuiting ``and``/``or``/``not``, and calls of other functions of the subset or of the memory
functions below. Names in capitals are constants of the module.

>>> def largest(table: int, count: int) -> int:
...     best = load64(table)
...     i = 1
...     while i < count:
...         if load64(table + 8 * i) > best:
...             best = load64(table + 8 * i)
...         i += 1
...     return best
>>> "define i64 @largest(i64 %table.in, i64 %count.in)" in translate_source(source_of(largest), {})
True
"""

from __future__ import annotations

from ...support.sequences import of_kind
import ast
import ctypes
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "call_address", "copy", "fill", "larger_words", "libc_free", "libc_malloc", "load8", "load16", "load32", "load64", "lowest_bit",
    "source_of", "store8", "store16", "store32", "store64", "switch_stack", "translate_source",
]  # fmt: skip

# The functions that the subset has built in also run in Python, on this process's memory.


def load8(address: int) -> int:
    """The unsigned byte at an address."""
    return ctypes.c_uint8.from_address(address).value


def load16(address: int) -> int:
    """The unsigned 16-bit number at an address."""
    return ctypes.c_uint16.from_address(address).value


def load32(address: int) -> int:
    """The unsigned 32-bit number at an address."""
    return ctypes.c_uint32.from_address(address).value


def load64(address: int) -> int:
    """The signed 64-bit number at an address."""
    return ctypes.c_int64.from_address(address).value


def store8(address: int, value: int) -> None:
    """Store the low byte of a number."""
    ctypes.c_uint8.from_address(address).value = value & 0xFF


def store16(address: int, value: int) -> None:
    """Store the low 16 bits of a number."""
    ctypes.c_uint16.from_address(address).value = value & 0xFFFF


def store32(address: int, value: int) -> None:
    """Store the low 32 bits of a number."""
    ctypes.c_uint32.from_address(address).value = value & 0xFFFFFFFF


def store64(address: int, value: int) -> None:
    """Store a number."""
    ctypes.c_int64.from_address(address).value = value


def copy(target: int, source: int, size: int) -> None:
    """Copy bytes between places that do not overlap."""
    ctypes.memmove(target, source, size)


def fill(target: int, value: int, size: int) -> None:
    """Set bytes."""
    ctypes.memset(target, value & 0xFF, size)


def larger_words(target: int, source: int, count: int) -> None:
    """Make each of ``count`` 32-bit numbers, none of them negative, the larger one of itself and its counterpart."""
    for at in range(0, 4 * count, 4):
        store32(target + at, max(load32(target + at), load32(source + at)))


def lowest_bit(value: int) -> int:
    """The index of the lowest bit that is set; 64 for zero.

    >>> lowest_bit(0b1000)
    3
    """
    return (value & -value).bit_length() - 1 if value else 64


def libc_malloc(size: int) -> int:
    """Memory from the C library."""
    return int(_libc("malloc", ctypes.c_void_p, ctypes.c_size_t)(size) or 0)


def libc_free(address: int) -> None:
    """Give memory back to the C library."""
    _libc("free", None, ctypes.c_void_p)(address)


def _libc(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = result, list(arguments)
    return function


def call_address(function: int, first: int, second: int) -> int:
    """Call ``i32 function(ptr, ptr)``."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    return int(kind(function)(first, second))


def switch_stack(save: int, to: int) -> None:
    """Go on with another stack; this one's pointer is stored at ``save``. Compiled code only."""
    raise NotImplementedError("Python code has no stack to switch")


_LOADS = {"load8": "i8", "load16": "i16", "load32": "i32", "load64": "i64"}
_STORES = {"store8": "i8", "store16": "i16", "store32": "i32", "store64": "i64"}
_ARITHMETIC: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "sdiv", ast.Mod: "srem", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "lshr",
}  # fmt: skip
_COMPARISONS: dict[type, str] = {
    ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_DECLARATIONS = """declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.cttz.i64(i64, i1)
declare ptr @malloc(i64)
declare void @free(ptr)
define void @native_larger_words(ptr noalias %target, ptr noalias %source, i64 %count) nounwind {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %to = getelementptr i32, ptr %target, i64 %i
  %from = getelementptr i32, ptr %source, i64 %i
  %a = load i32, ptr %to, align 4
  %b = load i32, ptr %from, align 4
  %later = icmp sgt i32 %b, %a
  %both = select i1 %later, i32 %b, i32 %a
  store i32 %both, ptr %to, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def source_of(function: Callable[..., Any]) -> str:
    """The text of one function."""
    return textwrap.dedent(inspect.getsource(function))


def declarations() -> str:
    """Declarations of the functions that translated functions call."""
    return _DECLARATIONS


def translate_source(source: str, constants: Mapping[str, int]) -> str:
    """The functions of a source text as LLVM text. Raises SyntaxError, with the line, outside of the subset."""
    functions = list(of_kind(ast.parse(source).body, ast.FunctionDef))
    return "\n".join(_Function(node, constants).text() for node in functions)


class _Function:
    """One function; every local variable is a stack slot, which LLVM turns into registers."""

    def __init__(self, node: ast.FunctionDef, constants: Mapping[str, int]) -> None:
        self.node = node
        self.constants = constants
        self.lines: list[str] = []
        self.counter = 0
        self.slots: list[str] = []
        self.loops: list[tuple[str, str]] = []

    def text(self) -> str:
        """The function's definition."""
        names = [a.arg for a in self.node.args.args]
        for name in names:
            self.slots.append(name)
            self.lines.append(f"  store i64 %{name}.in, ptr %{name}.at")
        self.block(self.node.body)
        self.lines.append("  ret i64 0")
        slots = [f"  %{name}.at = alloca i64" for name in self.slots]
        params = ", ".join(f"i64 %{name}.in" for name in names)
        return "\n".join(
            [f"define i64 @{self.node.name}({params}) nounwind {{", "entry:", *slots, *self.lines, "}", ""]
        )

    def fresh(self) -> str:
        self.counter += 1
        return f"%t{self.counter}"

    def label(self) -> str:
        self.counter += 1
        return f"b{self.counter}"

    def emit(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def refuse(self, node: ast.AST, what: str) -> SyntaxError:
        return SyntaxError(f"{self.node.name}, line {getattr(node, 'lineno', 0)}: {what} is outside of the subset")

    # ---- statements

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            handler = getattr(self, f"do_{type(statement).__name__}", None)
            if handler is None:
                raise self.refuse(statement, type(statement).__name__)
            handler(statement)

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def do_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if not isinstance(target, ast.Name):
            raise self.refuse(node, "assigning to anything but a name")
        self.assign(target.id, self.value(node.value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.refuse(node, "assigning to anything but a name")
        old = self.emit(f"load i64, ptr %{node.target.id}.at")
        self.assign(node.target.id, self.emit(f"{_ARITHMETIC[type(node.op)]} i64 {old}, {self.value(node.value)}"))

    def assign(self, name: str, value: str) -> None:
        if name not in self.slots:
            self.slots.append(name)
        self.lines.append(f"  store i64 {value}, ptr %{name}.at")

    def do_If(self, node: ast.If) -> None:
        then, other, join = self.label(), self.label(), self.label()
        self.branch(node.test, then, other)
        for name, body in ((then, node.body), (other, node.orelse)):
            self.lines.append(f"{name}:")
            self.block(body)
            self.lines.append(f"  br label %{join}")
        self.lines.append(f"{join}:")

    def do_While(self, node: ast.While) -> None:
        head, body, done = self.label(), self.label(), self.label()
        self.lines += [f"  br label %{head}", f"{head}:"]
        self.branch(node.test, body, done)
        self.lines.append(f"{body}:")
        self.loops.append((head, done))
        self.block(node.body)
        self.loops.pop()
        self.lines += [f"  br label %{head}", f"{done}:"]

    def do_Break(self, node: ast.Break) -> None:
        self.leave(f"  br label %{self.loops[-1][1]}")

    def do_Continue(self, node: ast.Continue) -> None:
        self.leave(f"  br label %{self.loops[-1][0]}")

    def do_Return(self, node: ast.Return) -> None:
        self.leave(f"  ret i64 {self.value(node.value) if node.value is not None else '0'}")

    def leave(self, how: str) -> None:
        # What follows in the text is never reached, but must belong to a block.
        self.lines += [how, f"{self.label()}:"]

    # ---- expressions

    def branch(self, test: ast.expr, then: str, other: str) -> None:
        """Jump by a condition; ``and`` and ``or`` evaluate only what they must."""
        match test:
            case ast.BoolOp():
                every = isinstance(test.op, ast.And)
                for part in test.values[:-1]:
                    following = self.label()
                    self.branch(part, *((following, other) if every else (then, following)))
                    self.lines.append(f"{following}:")
                self.branch(test.values[-1], then, other)
            case ast.UnaryOp() if isinstance(test.op, ast.Not):
                self.branch(test.operand, other, then)
            case _:
                self.lines.append(f"  br i1 {self.condition(test)}, label %{then}, label %{other}")

    def condition(self, test: ast.expr) -> str:
        if isinstance(test, ast.Compare):
            if len(test.ops) != 1:
                raise self.refuse(test, "a chain of comparisons")
            a, b = self.value(test.left), self.value(test.comparators[0])
            return self.emit(f"icmp {_COMPARISONS[type(test.ops[0])]} i64 {a}, {b}")
        return self.emit(f"icmp ne i64 {self.value(test)}, 0")

    def value(self, node: ast.expr) -> str:
        """A 64-bit operand."""
        match node:
            case ast.Constant() if isinstance(node.value, int):
                return str(int(node.value))
            case ast.Name():
                if node.id in self.slots:
                    return self.emit(f"load i64, ptr %{node.id}.at")
                if node.id in self.constants:
                    return str(self.constants[node.id])
                raise self.refuse(node, f"the name {node.id}")
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                a, b = self.value(node.left), self.value(node.right)
                return self.emit(f"{_ARITHMETIC[type(node.op)]} i64 {a}, {b}")
            case ast.UnaryOp() if isinstance(node.op, ast.USub):
                return self.emit(f"sub i64 0, {self.value(node.operand)}")
            case ast.UnaryOp() if isinstance(node.op, ast.Invert):
                return self.emit(f"xor i64 -1, {self.value(node.operand)}")
            case ast.Compare():
                return self.emit(f"zext i1 {self.condition(node)} to i64")
            case ast.Call() if isinstance(node.func, ast.Name):
                return self.call(node.func.id, [self.value(a) for a in node.args])
        raise self.refuse(node, type(node).__name__)

    def pointer(self, value: str) -> str:
        return self.emit(f"inttoptr i64 {value} to ptr")

    def call(self, name: str, args: list[str]) -> str:
        if name in _LOADS:
            kind = _LOADS[name]
            loaded = self.emit(f"load {kind}, ptr {self.pointer(args[0])}, align 1")
            return loaded if kind == "i64" else self.emit(f"zext {kind} {loaded} to i64")
        if name in _STORES:
            kind, place = _STORES[name], self.pointer(args[0])
            value = args[1] if kind == "i64" else self.emit(f"trunc i64 {args[1]} to {kind}")
            self.lines.append(f"  store {kind} {value}, ptr {place}, align 1")
            return "0"
        if name == "lowest_bit":
            return self.emit(f"call i64 @llvm.cttz.i64(i64 {args[0]}, i1 false)")
        if name == "copy":
            a, b = self.pointer(args[0]), self.pointer(args[1])
            self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {a}, ptr {b}, i64 {args[2]}, i1 false)")
            return "0"
        if name == "fill":
            a, byte = self.pointer(args[0]), self.emit(f"trunc i64 {args[1]} to i8")
            self.lines.append(f"  call void @llvm.memset.p0.i64(ptr {a}, i8 {byte}, i64 {args[2]}, i1 false)")
            return "0"
        if name == "larger_words":
            a, b = self.pointer(args[0]), self.pointer(args[1])
            self.lines.append(f"  call void @native_larger_words(ptr {a}, ptr {b}, i64 {args[2]})")
            return "0"
        return self.call_other(name, args)

    def call_other(self, name: str, args: list[str]) -> str:
        if name == "libc_malloc":
            return self.emit(f"ptrtoint ptr {self.emit(f'call ptr @malloc(i64 {args[0]})')} to i64")
        if name == "libc_free":
            self.lines.append(f"  call void @free(ptr {self.pointer(args[0])})")
            return "0"
        if name == "switch_stack":
            a, b = self.pointer(args[0]), self.pointer(args[1])
            self.lines.append(f"  call void @rx_switch_stack(ptr {a}, ptr {b})")
            return "0"
        if name == "call_address":
            f, a, b = (self.pointer(x) for x in args)
            code = self.emit(f"call i32 {f}(ptr {a}, ptr {b})")
            return self.emit(f"sext i32 {code} to i64")
        return self.emit(f"call i64 @{name}({', '.join(f'i64 {a}' for a in args)})")
