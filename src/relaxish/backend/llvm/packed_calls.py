"""``T.call_packed`` and ``tir.trace``: compiled code calls functions of the registry (``runtime/kernels/packed_calls.py``).

Before::

    T.call_packed("show", A[i], n)

After::

    store double %x, ptr %words                                    ; a word for each argument
    store i64 %n, ptr %words.1
    %code = call i32 @rx_call_packed(ptr @name, ptr @kinds, ptr %words, i32 110, ptr %result)
    br i1 %failed, label %bad, label %ok
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.functor import all_nodes
from ...ir.node import Node
from ...ir.op import op_name_of
from ...ir.prim import Call, IntImm, StringImm, is_call_of, is_zero
from ...runtime.kernels.packed_calls import ARRAY, BOOL, CALL, FLOAT, HANDLE, INT, NOTHING, STRING
from ...support.errors import RelaxishError
from .emit import Lines
from .intrin import register
from .ltypes import llvm_type
from ...ir.plain import plain_str

if TYPE_CHECKING:
    from .expr_gen import ExprGen

__all__ = ["has_packed_calls"]

_NAMES = ("tir.tvm_call_packed", "tir.tvm_call_cpacked", "tir.tvm_call_trace_packed")


def has_packed_calls(body: Node) -> bool:
    """Whether a program calls functions of the registry."""
    return any(op_name_of(n) in _NAMES for n in all_nodes(body))


def _store(gen: ExprGen, words: str, index: int, typed: str) -> None:
    at = gen.w.local(f"getelementptr i64, ptr {words}, i64 {index}")
    gen.w.line(f"store {typed}, ptr {at}, align 8")


def _text_of(value: PrimExpr | str) -> str:
    return value if isinstance(value, str) else plain_str(value)


def _word(gen: ExprGen, expr: PrimExpr) -> tuple[int, str]:
    """The kind of an argument, and its word with the type that it is stored as."""
    if isinstance(expr, (str, StringImm)):
        return STRING, f"ptr {gen.w.module.string(_text_of(expr))}"
    if is_call_of(expr, "tir.tvm_stack_make_array"):
        return ARRAY, f"ptr {_array(gen, expr)}"
    if dt.is_handle(expr.dtype):
        if isinstance(expr, IntImm):
            return NOTHING, "i64 0"
        return HANDLE, gen.typed(expr)
    if dt.lanes(expr.dtype) != 1:
        raise RelaxishError(f"a call of a registered function takes scalars, not {expr.dtype}: {expr}")
    value = gen.visit(expr)
    if dt.is_float(expr.dtype) or expr.dtype == "bfloat16":
        return FLOAT, f"double {gen.convert(value, expr.dtype, 'float64')}"
    return (BOOL if expr.dtype == "bool" else INT), f"i64 {gen.convert(value, expr.dtype, 'int64')}"


def _array(gen: ExprGen, call: Call) -> str:
    """A descriptor on the stack: data, name of the type, rank, offset in elements, extents."""
    data, shape, strides, _, sample, offset = call.args
    if not (is_zero(strides)):
        raise RelaxishError("an array with strides cannot be passed to a registered function; copy it to a compact one")
    extents: Sequence[PrimExpr] = shape.args
    words = gen.w.alloca(f"[{4 + len(extents)} x i64], align 8", "array")
    _store(gen, words, 0, gen.typed(data))
    _store(gen, words, 1, f"ptr {gen.w.module.string(str(sample.dtype))}")
    _store(gen, words, 2, f"i64 {len(extents)}")
    for index, value in enumerate((offset, *extents)):
        _store(gen, words, 3 + index, f"i64 {gen.index(value)}")
    return words


def _call(gen: ExprGen, name: PrimExpr | str, args: Sequence[PrimExpr], wanted: int) -> str:
    """Call by name; gives where the result's word is."""
    w = gen.w
    w.module.declare(f"declare i32 @{CALL}(ptr, ptr, ptr, i32, ptr)")
    words = w.alloca(f"[{max(1, len(args))} x i64], align 8", "words")
    result = w.alloca("i64, align 8", "result")
    kinds = bytearray()
    # All are computed before any is stored: an argument may be the result of another such call.
    for index, (kind, typed) in enumerate([_word(gen, a) for a in args]):
        kinds.append(kind)
        _store(gen, words, index, typed)
    w.line(f"store i64 0, ptr {result}, align 8")
    given = f"ptr {w.module.string(_text_of(name))}, ptr {w.module.string(kinds.decode())}, ptr {words}"
    code = w.effect(f"call i32 @{CALL}({given}, i32 {wanted}, ptr {result})")
    w.touch_all()
    _leave_on(gen, code)
    return result


def _leave_on(gen: ExprGen, code: str) -> None:
    """End the function with the code unless it is 0."""
    failed = gen.w.effect(f"icmp ne i32 {code}, 0")

    def leave(depth: int) -> Lines:
        return gen.leaving(code, depth)

    gen.w.guard(failed, f"add i32 {code}, 0", leave, code)


@register("tvm_call_packed")
@register("tvm_call_cpacked")
def _packed(gen: ExprGen, expr: Call) -> str:
    result = _call(gen, expr.args[0], expr.args[1:], NOTHING)
    loaded = gen.w.effect(f"load i64, ptr {result}, align 8")
    if dt.is_handle(expr.dtype):
        return gen.w.effect(f"inttoptr i64 {loaded} to ptr")
    return gen.convert(loaded, "int64", expr.dtype)


@register("tvm_static_handle")
def _static_handle(gen: ExprGen, expr: Call) -> str:
    """The address of a word of its own, empty at first, in which called functions may keep something."""
    return static_word(gen)


def static_word(gen: ExprGen) -> str:
    """A word of memory that is zero when the code is loaded, and belongs to one place of the program."""
    module = gen.w.module
    name = f"@rx_static{len(module.functions)}_{gen.w.name('h').lstrip('%')}"
    module.functions.append(f"{name} = internal global i64 0, align 8\n")
    return name


@register("tvm_call_trace_packed")
def _trace(gen: ExprGen, expr: Call) -> str:
    real = dt.is_float(expr.dtype) or expr.dtype == "bfloat16"
    result = _call(gen, expr.args[0], expr.args[1:], FLOAT if real else INT)
    kind = "float64" if real else "int64"
    loaded = gen.w.effect(f"load {llvm_type(kind)}, ptr {result}, align 8")
    return gen.convert(loaded, kind, expr.dtype)
