"""From tensors of a graph to the problem that a kernel is made for."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ....ir.expr import RelaxExpr
from .... import tir
from ....relax.expr import Var, is_call_of
from ....relax.scalars import const_int, prim_vars, rename_prim
from .block import vector_width
from .problem import AttentionProblem, Bias, Operand
from .views import Lookup, View, packed_strides, view_of

__all__ = ["bias_view", "is_usable", "of_sequences", "read_problem", "with_fresh_vars"]

_DTYPES = ("float16", "bfloat16")
_MOST_BATCHES = 65535
_LARGEST = 2**31


def is_usable(view: View) -> bool:
    """Whether columns are side by side and rows begin where words do."""
    return const_int(view.strides[3]) == 1 and vector_width(8, *view.strides[:3], view.offset) > 1


def bias_view(bias: RelaxExpr, lookup: Lookup) -> View | None:
    """The bias, seen through conversions between floats: the kernel adds in float32 anyway."""
    view = view_of(bias, lookup)
    while view is not None and isinstance(view.source, Var):
        value = lookup(view.source)
        if not is_call_of(value, "relax.astype") or not view.is_packed:
            break
        inner = view_of(value.args[0], lookup)
        if inner is None or inner.dtype not in (*_DTYPES, "float32"):
            break
        again = inner.reshaped(view.shape)
        if again is None:
            break
        view = again
    return view if view is None or view.dtype in (*_DTYPES, "float32") else None


def read_problem(
    views: list[View], bias: View | None, scale: float, causal: str | None, heads_first: bool
) -> AttentionProblem | None:
    """Attention problem of a call; None where no kernel can compute it."""
    q, k, v = views
    heads, kv_heads = const_int(q.shape[2]), const_int(k.shape[2])
    size, value_size = const_int(q.shape[3]), const_int(v.shape[3])
    if None in (heads, kv_heads, size, value_size) or const_int(v.shape[2]) != kv_heads or scale <= 0:
        return None
    assert heads is not None and kv_heads is not None and size is not None and value_size is not None
    if (
        {x.dtype for x in views} not in ({d} for d in _DTYPES)
        or heads % kv_heads
        or (const_int(q.shape[0]) or 1) > _MOST_BATCHES
    ):
        return None
    out = View(q.source, q.dtype, (*q.shape[:3], value_size), packed_strides((*q.shape[:3], value_size)))
    if heads_first:
        turned = (q.shape[0], heads, q.shape[1], value_size)
        out = View(q.source, q.dtype, turned, packed_strides(turned)).permuted([0, 2, 1, 3])
    q_at, k_at, v_at = (_operand(x, _shape(x)) for x in views)
    out_at = _operand(out, (q.shape[0], heads, q.shape[1], value_size) if heads_first else out.shape)
    added = None if bias is None else _bias(bias, q, k)
    made = AttentionProblem(
        q.dtype, q.shape[0], q.shape[1], k.shape[1], kv_heads, heads // kv_heads, size, value_size, scale,
        q_at, k_at, v_at, out_at, added, causal,
    )  # fmt: skip
    widths = [vector_width(s, o.batch, o.row, o.head, o.offset) for s, o in _sized(made)]
    empty = any(const_int(n) == 0 for n in (*q.shape, *k.shape, *v.shape))
    return None if min(widths) < 2 or empty or not _known_sizes(made) else made


def of_sequences(problem: AttentionProblem, starts: int) -> AttentionProblem:
    """The problem of one batch as that of sequences laid one behind the other; ``starts`` is the length of their table."""

    def still(operand: Operand) -> Operand:
        return replace(operand, batch=0)

    places: dict[str, Any] = {name: still(getattr(problem, name)) for name in ("q", "k", "v", "out")}
    return replace(problem, batch=starts - 1, starts=starts, **places)


def _sized(problem: AttentionProblem) -> list[tuple[int, Operand]]:
    p = problem
    return [(p.size, p.q), (p.size, p.k), (p.value_size, p.v)]


def _shape(view: View) -> tuple[Any, ...]:
    whole = View.whole(view.source)
    assert whole is not None
    return whole.shape


def _operand(view: View, shape: tuple[Any, ...]) -> Operand:
    batch, row, head, _ = view.strides
    return Operand(shape, batch, row, head, view.offset)


def _bias(bias: View, q: View, k: View) -> Bias:
    """A bias over the axes batch, head, row and key; axes of one element are repeated."""
    wanted = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    batch, head, row, column = (
        0 if const_int(n) == 1 and const_int(w) != 1 else s
        for n, w, s in zip(bias.shape, wanted, bias.strides, strict=True)
    )
    return Bias(_shape(bias), bias.dtype, batch, head, row, column, bias.offset)


def _known_sizes(problem: AttentionProblem) -> bool:
    """Whether indices of constant shapes fit 32 bits, and each symbolic size is one of an input's own."""
    own: set[Any] = set()
    symbols: set[Any] = set()
    shapes = [problem.q.shape, problem.k.shape, problem.v.shape]
    shapes += [problem.bias.shape] if problem.bias is not None else []
    shapes += [(problem.starts,)] if problem.starts is not None else []
    for shape in shapes:
        total = 1
        for extent in shape:
            total *= const_int(extent) or 1
            if isinstance(extent, tir.Var):
                own.add(extent)
            elif const_int(extent) is None:
                symbols.update(prim_vars(extent))
        if total >= _LARGEST:
            return False
    return symbols <= own


def with_fresh_vars(problem: AttentionProblem) -> AttentionProblem:
    """The problem with symbolic sizes of its own: functions share no variables."""
    found: dict[Any, Any] = {}

    def renamed(value: Any) -> Any:
        match value:
            case Operand() | Bias() | AttentionProblem():
                return replace(value, **{f.name: renamed(getattr(value, f.name)) for f in fields(value)})
            case tuple():
                return tuple(renamed(v) for v in value)
        if not isinstance(value, tir.PrimExpr):
            return value
        for var in prim_vars(value):
            found.setdefault(var, tir.Var(var.name, var.dtype))
        return rename_prim(value, found)

    made: AttentionProblem = renamed(problem)
    return made
