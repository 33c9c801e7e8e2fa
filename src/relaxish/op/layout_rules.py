"""Layout rules: in which layouts operators take and give tensors when their inputs come in other ones.

A rule gets the call, the layouts a user asked for, and the layouts of the variables; see ``relax.layout``.
Axes are letters: in layout ``ACDB`` what was axis 1 (``B``) has moved to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..relax.expr import Call, PrimValue, Tuple
from ..relax.layout import (
    InferLayoutOutput,
    LayoutDecision,
    LayoutMap,
    initial_layout,
    initial_layout_decision,
    initial_nlayout,
    transpose_like,
)
from ..relax.op_table import all_op_records, update_op
from ..relax.scalars import const_int
from ..relax.struct_info import TensorStructInfo, TupleStructInfo

__all__ = ["LAYOUT_RULES"]

Desired = Mapping[str, Sequence[str]]
Rule = Callable[[Call, Desired, LayoutMap], InferLayoutOutput | None]

#: The rule of each operator that has one.
LAYOUT_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a layout rule for operators."""

    def register(func: Rule) -> Rule:
        for name in names:
            LAYOUT_RULES[f"relax.{name}"] = func
        return func

    return register


def _ndim(call: Call, index: int = 0) -> int:
    info = call.args[index].struct_info
    assert isinstance(info, TensorStructInfo)
    return info.ndim


def _initial(call: Call, *indices: int) -> list[LayoutDecision]:
    return [initial_layout_decision(_ndim(call, i)) for i in indices]


def _split_axes(layout: LayoutDecision) -> bool:
    """Whether the layout has blocked axes, as ``ABCD4b`` has."""
    return len(layout.name) != layout.ndim


def _axis_in(layout: LayoutDecision, axis: int) -> int:
    """Where an axis stands in a layout."""
    return layout.name.index(chr(ord("A") + axis % layout.ndim))


def _plain(call: Call, layouts: LayoutMap) -> LayoutDecision:
    """The first argument's layout; its initial one where that has blocked axes, which the operator cannot follow."""
    layout: LayoutDecision = layouts.of(call.args[0])
    return initial_layout_decision(_ndim(call)) if _split_axes(layout) else layout


def _provable(source: str, target: str, shape: Sequence[Any] | None) -> bool:
    """Whether a tensor of ``shape`` laid out as ``source`` can be blocked as ``target`` without padding."""
    if shape is None:
        return False
    sizes = dict(zip(source, shape))
    factor = ""
    for char in target:
        if char.isdigit():
            factor += char
        elif char.islower():
            size = const_int(sizes[char.upper()])
            if size is None or size % int(factor):
                return False
            factor = ""
    return True


# ---- element-wise ---------------------------------------------------------------------------------------------------

_UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh exp floor log logical_not negative round rsqrt
 sigmoid sign sin sinh square sqrt tan tanh clip erf isfinite isinf isnan astype nn.relu nn.leakyrelu nn.gelu
 nn.gelu_tanh nn.selu nn.silu nn.softplus ccl.allreduce ccl.allgather ccl.broadcast_from_worker0""".split()
_BINARY = """add divide floor_divide multiply power subtract mod floor_mod equal greater greater_equal less less_equal
 not_equal maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift
 right_shift""".split()


@rule(*_UNARY)
def _same(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = layouts.of(call.args[0])
    rest = [initial_nlayout(a) for a in call.args[1:]]
    return InferLayoutOutput([layout, *rest], [layout])


def _follow(layout: LayoutDecision, ndim: int) -> LayoutDecision:
    """The layout of a tensor of higher rank that ``layout``'s tensor broadcasts to."""
    shift = ndim - layout.ndim
    if shift == 0:
        return layout
    moved = "".join(chr(ord(c) + shift) for c in layout.name)
    return LayoutDecision(initial_layout(shift) + moved)


def _blocked_like(lhs: LayoutDecision, rhs: LayoutDecision, call: Call) -> LayoutDecision | None:
    """The blocked one of two layouts of equal rank, where the other operand can be blocked the same way."""
    if lhs.ndim != rhs.ndim:
        return None
    high, low, place = (lhs, rhs, 1) if len(lhs.name) >= len(rhs.name) else (rhs, lhs, 0)
    return high if _provable(initial_layout(low.ndim), high.name, call.args[place].struct_info.dims()) else None


@rule(*_BINARY)
def _binary(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    tensors = [isinstance(a.struct_info, TensorStructInfo) for a in call.args]
    if not all(tensors):
        layout = layouts.of(call.args[tensors.index(True)])
        return InferLayoutOutput([layout if t else initial_nlayout(a) for t, a in zip(tensors, call.args)], [layout])
    lhs, rhs = layouts.of(call.args[0]), layouts.of(call.args[1])
    both = _blocked_like(lhs, rhs, call)
    if both is not None:
        return InferLayoutOutput([both, both], [both])
    a, b = _ndim(call, 0), _ndim(call, 1)
    if a <= b:
        out = rhs if a == 0 else _follow(lhs, b)
        return InferLayoutOutput([LayoutDecision("") if a == 0 else lhs, out], [out])
    out = lhs if b == 0 else _follow(rhs, a)
    return InferLayoutOutput([out, LayoutDecision("") if b == 0 else rhs], [out])


@rule("ewise_fma")
def _fma(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    found = [layouts.of(a) for a in call.args]
    layout = found[0] if found[0] == found[1] == found[2] else initial_layout_decision(_ndim(call))
    return InferLayoutOutput([layout] * 3, [layout])


# ---- convolutions, pooling, images ----------------------------------------------------------------------------------


def _convolution(ndim: int) -> Rule:
    fields = ("data_layout", "kernel_layout", "out_layout")

    def infer(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
        attrs = [call.attrs[f] for f in fields]
        asked = desired.get(call.op.name)
        if asked is None:
            data, weight = (layouts.of(a) for a in call.args)
            start = initial_layout(ndim)
            new = [transpose_like(a, start, d.name) for a, d in zip(attrs, (data, weight, data))]
            return InferLayoutOutput([data, weight], [data], dict(zip(fields, new)))
        wanted = [*asked, asked[0]][:3]
        shapes = [a.struct_info.dims() for a in call.args]
        fits = all(_provable(have, want, shape) for have, want, shape in zip(attrs, wanted, shapes))
        if not fits and any(sum(c.isalpha() for c in w) != ndim for w in wanted):
            data, weight = _initial(call, 0, 1)
            return InferLayoutOutput([data, weight], [data])
        made = [LayoutDecision(transpose_like(initial_layout(ndim), a, w)) for a, w in zip(attrs, wanted)]
        return InferLayoutOutput(made[:2], made[2:], dict(zip(fields, wanted)))

    return infer


for _rank in (1, 2, 3):
    rule(f"nn.conv{_rank}d")(_convolution(_rank + 2))


def _windows(call: Call, layouts: LayoutMap) -> InferLayoutOutput:
    layout: LayoutDecision = layouts.of(call.args[0])
    if _split_axes(layout):
        target = transpose_like(call.attrs.layout, initial_layout(layout.ndim), layout.name)
        if not _provable(call.attrs.layout, target, call.args[0].struct_info.dims()):
            layout = initial_layout_decision(_ndim(call))
    start = initial_layout(layout.ndim)
    changed = {
        k: transpose_like(call.attrs[k], start, layout.name) for k in ("layout", "out_layout") if k in call.attrs
    }
    return InferLayoutOutput([layout, *(initial_nlayout(a) for a in call.args[1:])], [layout], changed)


@rule(*(f"nn.{kind}pool{n}d" for kind in ("max_", "avg_", "adaptive_avg_") for n in (1, 2, 3)), "image.resize2d")
def _pool(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    return _windows(call, layouts)


# ---- reductions and normalisations ----------------------------------------------------------------------------------


def _marked(ndim: int, axes: Sequence[int], layout: LayoutDecision) -> str:
    """The layout's letters, with ``1`` for the given axes and the others renamed as if those were not there."""
    named, count = "", 0
    gone = {a % ndim for a in axes}
    for k in range(ndim):
        named += "1" if k in gone else chr(ord("A") + count)
        count += k not in gone
    return "".join(named[ord(c) - ord("A")] for c in layout.name)


@rule("max", "mean", "min", "prod", "std", "sum", "variance")
def _reduction(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout, ndim = _plain(call, layouts), _ndim(call)
    axes = list(range(ndim)) if call.attrs.axis is None else [int(a) for a in call.attrs.axis]
    text = _marked(ndim, axes, layout)
    new_axes = tuple(k for k, c in enumerate(text) if c == "1")
    out = layout if call.attrs.keepdims else LayoutDecision(text.replace("1", ""))
    return InferLayoutOutput([layout], [out], {"axis": new_axes})


@rule("squeeze")
def _squeeze(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    layout, ndim = _plain(call, layouts), _ndim(call)
    if call.attrs.axis is None:
        dims = call.args[0].struct_info.dims()
        if dims is None:
            return None
        axes = [k for k, d in enumerate(dims) if const_int(d) == 1]
    else:
        axes = [int(a) for a in call.attrs.axis]
    text = _marked(ndim, axes, layout)
    new_axes = tuple(k for k, c in enumerate(text) if c == "1")
    return InferLayoutOutput([layout], [LayoutDecision(text.replace("1", ""))], {"axis": new_axes})


@rule("nn.softmax", "nn.log_softmax")
def _softmax(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = _plain(call, layouts)
    return InferLayoutOutput([layout], [layout], {"axis": _axis_in(layout, int(call.attrs.axis))})


@rule("nn.batch_norm")
def _batch_norm(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = _plain(call, layouts)
    rest = _initial(call, 1, 2, 3, 4)
    changed = {"axis": _axis_in(layout, int(call.attrs.axis))}
    return InferLayoutOutput([layout, *rest], [(layout, rest[2], rest[3])], changed)


@rule("nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm")
def _norm(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = _plain(call, layouts)
    changed: dict[str, Any] = {"axes": tuple(_axis_in(layout, int(a)) for a in call.attrs.axes)}
    if "channel_axis" in call.attrs:
        changed["channel_axis"] = _axis_in(layout, int(call.attrs.channel_axis))
    return InferLayoutOutput([layout, *_initial(call, *range(1, len(call.args)))], [layout], changed)


@rule("nn.dropout")
def _dropout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = layouts.of(call.args[0])
    return InferLayoutOutput([layout], [(layout, layout)])


# ---- dimensions -----------------------------------------------------------------------------------------------------


def _fits(layout: LayoutDecision, infos: Sequence[Any]) -> bool:
    """Whether tensors of all these struct infos can be blocked as the layout is, without padding."""
    return all(_provable(initial_layout(layout.ndim), layout.name, info.dims()) for info in infos)


@rule("concat")
def _concat(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    fields, infos = layouts.of(call.args[0]), call.args[0].struct_info.fields
    layout: LayoutDecision = fields[0]
    blocked = next((f for f in fields if _split_axes(f)), None)
    if blocked is not None:
        # One layout for all: the blocked one if every tensor can have it, else one that no tensor blocks.
        plain = (f for f in fields if not _split_axes(f))
        layout = blocked if _fits(blocked, infos) else next(plain, initial_layout_decision(blocked.ndim))
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return InferLayoutOutput([(layout,) * len(fields)], [layout], {"axis": _axis_in(layout, axis)})


@rule("split")
def _split(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    layout: LayoutDecision = layouts.of(call.args[0])
    info = call.struct_info
    if not isinstance(info, TupleStructInfo):
        return None
    if _split_axes(layout) and not _fits(layout, info.fields):
        layout = initial_layout_decision(_ndim(call))
    return InferLayoutOutput([layout], [(layout,) * len(info.fields)], {"axis": _axis_in(layout, int(call.attrs.axis))})


@rule("expand_dims")
def _expand_dims(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout, ndim = _plain(call, layouts), _ndim(call)
    total = ndim + len(call.attrs.axis)
    new = {int(a) % total for a in call.attrs.axis}
    kept = [chr(ord("A") + k) for k in range(total) if k not in new]
    moved = iter(kept[ord(c) - ord("A")] for c in layout.name)
    out = "".join(chr(ord("A") + k) if k in new else next(moved) for k in range(total))
    return InferLayoutOutput([layout], [LayoutDecision(out)])


@rule("permute_dims")
def _permute_dims(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout, ndim = _plain(call, layouts), _ndim(call)
    axes = list(range(ndim))[::-1] if call.attrs.axes is None else [int(a) % ndim for a in call.attrs.axes]
    order = tuple(_axis_in(layout, a) for a in axes)
    return InferLayoutOutput([layout], [initial_layout_decision(ndim)], {"axes": order})


@rule("strided_slice")
def _strided_slice(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    layout = _plain(call, layouts)
    axes = call.args[1]
    if not isinstance(axes, Tuple) or not all(isinstance(f, PrimValue) for f in axes.fields):
        return None
    places = [const_int(f.value) for f in axes.fields]
    if any(p is None for p in places):
        return None
    moved = Tuple([PrimValue(_axis_in(layout, int(p or 0))) for p in places])
    rest = [initial_nlayout(a) for a in call.args[1:]]
    return InferLayoutOutput([layout, *rest], [layout], {}, {1: moved})


for _name, _rule in LAYOUT_RULES.items():
    if _name in all_op_records():
        update_op(_name, layout=_rule)
