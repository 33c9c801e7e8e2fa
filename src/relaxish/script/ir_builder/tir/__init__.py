"""The builder namespace ``T``: statements, scalar types, intrinsics and nodes of tensor programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .... import tir as _tir
from ....ir import primops as _primops
from ....ir.expr import ExprLike, PrimExpr, Range, ShapeLike, as_expr
from ....ir.prim import CommReducer, IterVar, Let as _Let, Reduce
from ....ir.source import Span
from ....support.entry_points import load
from ....target import Target
from ....tir.intrinsics import named
from ....tir import (
    EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, BufferLoad, Call, CallEffectKind, Cast, Div, FloatImm, FloorDiv,
    FloorMod, IndexMap, IntImm, Max, Min, Mod, Mul, Not, Or, ProducerLoad, Ramp, Select, Shuffle, SizeVar, StringImm,
    Sub, Var,
)  # fmt: skip
from . import frame
from .frame import TIRFrame
from .scalars import SCALARS, handle, ptr, var, void
from .stmt import (
    Assert, Else, If, LetStmt, Then, While, alloc_buffer, allocate, allocate_const, arg, attr, axis, block, block_attr,
    buffer, buffer_decl, buffer_store, decl_buffer, env_thread, evaluate, func_attr, func_name, func_ret, grid, init,
    launch_thread, match_buffer, parallel, prefetch, prim_func, reads, realize, serial, thread_binding, unroll,
    vectorized, where, writes,
)  # fmt: skip

globals().update(SCALARS)
Buffer = buffer
broadcast = Broadcast
ramp = Ramp

# Intrinsics that ``T`` takes over from ``tir`` as they are.
_PLAIN = (
    *named(lambda record: (record.builder or record.lanewise) and record.name not in ("fabs", "reinterpret")),
    *"""
address_of assume ceildiv floordiv floormod if_then_else infinity isnullptr lookup_param max_value min_value
q_multiply_shift q_multiply_shift_per_axis ret truncdiv truncmod tvm_tuple tvm_struct_get tvm_thread_invariant
tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down undef start_profile_intrinsic end_profile_intrinsic
anylist_getitem anylist_resetitem vscale ignore_loop_partition type_annotation call_packed call_cpacked
call_packed_lowered call_cpacked_lowered tvm_access_ptr
""".split(),
)
# Intrinsics whose result type may also be given by keyword.
_TYPED = """
reinterpret call_extern call_pure_extern call_intrin call_llvm_intrin call_llvm_pure_intrin ptx_mma ptx_mma_sp
ptx_ldmatrix ptx_cp_async ptx_cp_async_bulk mma_store mma_fill vectorlow vectorhigh vectorcombine get_active_lane_mask
""".split()


def _as_intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for which a ``dtype=`` that it does not ask for is no news: older scripts always give one."""
    if "dtype" in inspect.signature(function).parameters:
        return function

    def call(*args: Any, dtype: object | None = None, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    return call


def _with_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            return function(kwargs.pop("dtype"), *args, **kwargs)
        return function(*args, **kwargs)

    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    return call


for _name in _PLAIN:
    if hasattr(_tir, _name):
        globals()[_name] = _as_intrinsic(getattr(_tir, _name))
for _name in _TYPED:
    if hasattr(_tir, _name):
        globals()[_name] = _with_dtype(getattr(_tir, _name))
for _alias, _target in (
    ("tvm_call_packed", "call_packed"), ("tvm_call_cpacked", "call_cpacked"),
    ("tvm_call_packed_lowered", "call_packed_lowered"), ("tvm_call_cpacked_lowered", "call_cpacked_lowered"),
):  # fmt: skip
    if _target in globals():
        globals()[_alias] = globals()[_target]


def dp4a(*args: Any) -> PrimExpr:
    """A dot product of four bytes; printed programs give the result type first."""
    values = args[1:] if args and isinstance(args[0], str) else args
    made: PrimExpr = _tir.dp4a(*values)
    return made


def abs(x: ExprLike, span: Span | None = None, dtype: str = "") -> PrimExpr:
    """Absolute value; its type is that of ``x``, whatever ``dtype`` says."""
    made: PrimExpr = _tir.abs(x, span)
    return made


fabs = abs


def min(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
    """The smaller of two values."""
    return _primops.min_(a, b)


def max(a: ExprLike, b: ExprLike, span: Span | None = None) -> PrimExpr:
    """The larger of two values."""
    return _primops.max_(a, b)


def cast(src: ExprLike, dtype: object, span: Span | None = None) -> PrimExpr:
    """``src`` as ``dtype``."""
    return _primops.cast(str(dtype), src)


def Let(expr: ExprLike, where: dict[Any, Any]) -> PrimExpr:
    """``expr`` with one variable standing for a value."""
    if len(where) != 1:
        raise ValueError("T.Let only allows `where` to have exactly one element")
    name, value = next(iter(where.items()))
    return _Let(name, as_expr(value), as_expr(expr))


def let(v: Var, value: ExprLike, body: ExprLike | None = None) -> PrimExpr | frame.LetFrame:
    """``T.Let`` or, without ``body``, ``T.LetStmt``."""
    return LetStmt(value, var=v) if body is None else Let(body, {v: value})


_ITER_TYPES = {
    "DataPar": 0, "ThreadIndex": 1, "CommReduce": 2, "Ordered": 3, "Opaque": 4, "Unrolled": 5, "Vectorized": 6,
    "Parallelized": 7, "Tensorized": 8,
}  # fmt: skip


def iter_var(v: Var | str, dom: Range | Sequence[ExprLike] | None, iter_type: str, thread_tag: str = "") -> IterVar:
    """An iteration variable."""
    if iter_type not in _ITER_TYPES:
        raise ValueError(f"unknown iteration type {iter_type!r}; one of {sorted(_ITER_TYPES)}")
    return IterVar(dom, v, _ITER_TYPES[iter_type], thread_tag)


def comm_reducer(combiner: Callable[..., Any], identity: list[Any]) -> CommReducer:
    """A commutative reducer from a lambda and its identity elements."""
    names = list(inspect.signature(combiner).parameters)
    values = [as_expr(i) for i in identity]
    args = [Var(n, v.dtype) for n, v in zip(names, values + values)]
    result = combiner(*args)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    half = len(names) // 2
    return CommReducer(args[:half], args[half:], [as_expr(r) for r in results], values)


def reduce(
    combiner: CommReducer,
    source: ShapeLike,
    init: ShapeLike = (),
    axis: Sequence[IterVar] = (),
    condition: ExprLike = True,
    value_index: int = 0,
) -> Reduce:
    """A reduction expression."""
    return Reduce(combiner, source, axis, condition, value_index, init)


def index_map(
    mapping: Callable[..., Any], *, inverse_index_map: Callable[..., Any] | None = None, index_dtype: str = "int64"
) -> IndexMap:
    """An index map from a lambda."""
    return IndexMap.from_func(mapping, inverse_index_map=inverse_index_map, index_dtype=index_dtype)


def target(target_config: str | dict[str, Any], host: Target | str | dict[str, Any] | None = None) -> Target:
    """A target from its dictionary or string."""
    from ....target import Target

    if not isinstance(target_config, (str, dict)):
        raise ValueError(f"T.target expected a config dict or string, but got {type(target_config)}")
    return Target(target_config, host)


class meta_var:
    """Wraps a value that is bound to a name at parse time instead of becoming a program variable."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iter__(self) -> Iterator[meta_var]:
        return iter(meta_var(i) for i in self.value)


def buffer_var(dtype: str, storage_scope: str = "global") -> Var:
    """A pointer variable."""
    return ptr(dtype, storage_scope)


def llvm_lookup_intrinsic_id(name: str) -> int:
    """The id of an LLVM intrinsic. Intrinsics are called by name here, so this is always 0."""
    return 0


def prefetch_extern(*args: Any) -> PrimExpr:
    """A prefetch hint as an expression."""
    made: PrimExpr = _tir.call_builtin("handle", "prefetch", *args)
    return made


def call_kernel(kernel: object, launch_args: Sequence[Any], *args: Any, **kwargs: Any) -> PrimExpr:
    """Call a kernel of one's own: CUDA C++ source, or the path of a file of it, and ``kernel_name=`` which of its functions.

    ``launch_args`` are the sizes of grid and block, ``[(grid_x, ...), (block_x, ...)]``, with the bytes of dynamic shared
    memory as a third. The kernel goes into the module's attribute ``external_mods``. Raises ValueError for other kernels.
    """
    if "call_kernel" not in KERNEL_HOOKS:
        load("cuda.external_kernel")
    return KERNEL_HOOKS["call_kernel"](kernel, launch_args, *args, **kwargs)


# Filled by what makes device modules of source.
KERNEL_HOOKS: dict[str, Callable[..., PrimExpr]] = {}

__all__ = [
    "Add", "And", "Assert", "Broadcast", "BufferLoad", "Call", "CallEffectKind", "Cast", "CommReducer", "Div", "EQ",
    "Else", "FloatImm", "FloorDiv", "FloorMod", "GE", "GT", "If", "IndexMap", "IntImm", "IterVar", "LE", "LT", "Let",
    "LetStmt", "Max", "Min", "Mod", "Mul", "NE", "Not", "Or", "ProducerLoad", "Ramp", "Range", "Reduce", "Select",
    "Shuffle", "SizeVar", "StringImm", "Sub", "TIRFrame", "Then", "Var", "While", "abs", "alloc_buffer", "allocate",
    "allocate_const", "arg", "attr", "axis", "block", "block_attr", "broadcast", "buffer", "buffer_decl",
    "buffer_store", "buffer_var", "call_kernel", "cast", "comm_reducer", "decl_buffer", "dp4a", "env_thread", "evaluate",
    "fabs", "frame", "func_attr", "func_name", "func_ret", "grid", "handle", "index_map", "init", "iter_var",
    "launch_thread", "let", "llvm_lookup_intrinsic_id", "match_buffer", "max", "meta_var", "min", "parallel",
    "prefetch", "prim_func", "ptr", "ramp", "reads", "realize", "reduce", "serial", "target", "thread_binding",
    "unroll", "var", "vectorized", "void", "where", "writes",
]  # fmt: skip
__all__ += [n for n in (*SCALARS, *_PLAIN, *_TYPED) if n in globals() and n not in __all__]
