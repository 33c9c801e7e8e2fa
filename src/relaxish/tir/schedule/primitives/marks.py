"""Marking loops and blocks: loop kinds, thread bindings, annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...expr import IntImm, IterVar, Var
from ...stmt import For, ForKind
from .. import checks
from ..errors import PrimitiveError
from ..instruction import InstructionKind, plain, register_kind
from ..sref import StmtSRef
from ..subst import realize_of
from ..walk import vars_in

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


def _check_parallel(state: ScheduleState, loop: StmtSRef, kind: ForKind, tag: str) -> None:
    """Demand that the iterations of a loop may run side by side."""
    checks.scope_root(state, loop)
    checks.check_compact_dataflow(state, loop)
    if not state.enable_check:
        return
    word = kind.name.lower()
    loop_var = loop.stmt.loop_var
    for child in state.child_blocks(loop):
        realize = realize_of(child)
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if loop_var not in vars_in(value):
                continue
            ok = iter_var.iter_type == IterVar.DataPar or (
                iter_var.iter_type == IterVar.CommReduce and tag.startswith("threadIdx")
            )
            if not ok:
                raise PrimitiveError(
                    f'The loop {{0}} cannot be {word}: it drives the block variable "{iter_var.var.name}" of {{1}}, '
                    "which is not data parallel.",
                    [loop, child],
                    hint="parallel, vectorized and bound loops may only drive spatial axes "
                    "(a reduction axis can be bound to threadIdx)",
                )


def set_kind(state: ScheduleState, loop: StmtSRef, kind: ForKind, tag: str | None = None) -> None:
    """Change the kind of a loop after checking that it may have it."""
    node = checks.check_loop(loop)
    if kind != ForKind.UNROLLED:
        _check_parallel(state, loop, kind, tag or "")
    binding = None
    if kind == ForKind.THREAD_BINDING:
        assert tag is not None
        binding = IterVar(None, Var(tag, node.loop_var.dtype), IterVar.ThreadIndex, tag)
    state.replace(loop, node.with_fields(kind=kind, thread_binding=binding))


class _Mark(InstructionKind):
    inputs = ("loop",)
    kind: ForKind

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        set_kind(sch.state, sch.sref(inputs[0]), self.kind)
        return [], None


@register_kind
class Parallel(_Mark):
    """Run the iterations on many threads."""

    name, method, kind = "Parallel", "parallel", ForKind.PARALLEL


@register_kind
class Vectorize(_Mark):
    """Run the iterations as vector lanes."""

    name, method, kind = "Vectorize", "vectorize", ForKind.VECTORIZED


@register_kind
class Unroll(_Mark):
    """Write the iterations out."""

    name, method, kind = "Unroll", "unroll", ForKind.UNROLLED


@register_kind
class Bind(InstructionKind):
    """Give the iterations to the threads of an axis."""

    name, method = "Bind", "bind"
    inputs, attrs = ("loop",), ("thread_axis",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        set_kind(sch.state, sch.sref(inputs[0]), ForKind.THREAD_BINDING, str(plain(attrs[0])))
        return [], None


def set_annotations(state: ScheduleState, sref: StmtSRef, annotations: dict[str, Any]) -> None:
    """Give a loop or block another annotation table."""
    old = sref.stmt
    new = old.with_fields(annotations=annotations)
    state.replace(sref, new, {} if isinstance(old, For) else {old: new})


@register_kind
class Annotate(InstructionKind):
    """Attach a value to a loop or block under a key."""

    name, method = "Annotate", "annotate"
    inputs, attrs = ("block_or_loop", "ann_val"), ("ann_key",)
    text_order = ("block_or_loop", "ann_key", "ann_val")

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        sref = sch.sref(inputs[0])
        value = _annotation_value(sch, inputs[1])
        old = sref.stmt.annotations
        key = attrs[0]
        if key in old and plain(old[key]) == plain(value):
            return [], None
        set_annotations(sch.state, sref, {**old, key: value})
        return [], None


def _annotation_value(sch: Schedule, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_annotation_value(sch, x) for x in value]
    if isinstance(value, dict):
        return {k: _annotation_value(sch, v) for k, v in value.items()}
    if isinstance(value, Var):
        return sch.value_of(value)
    if isinstance(value, bool):
        return IntImm("bool", int(value))
    return value


@register_kind
class Unannotate(InstructionKind):
    """Remove an annotation."""

    name, method = "Unannotate", "unannotate"
    inputs, attrs = ("block_or_loop",), ("ann_key",)

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        sref = sch.sref(inputs[0])
        old = dict(sref.stmt.annotations)
        if attrs[0] not in old:
            raise PrimitiveError(f'{{0}} has no annotation "{attrs[0]}" to remove.', [sref])
        del old[attrs[0]]
        set_annotations(sch.state, sref, old)
        return [], None


@register_kind
class EnterPostproc(InstructionKind):
    """Marks in a trace where post-processing begins."""

    name, method = "EnterPostproc", "enter_postproc"

    def apply(self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> tuple[list[Any], Any]:
        return [], None
