"""tensorize: a block, or the subtree at a loop, replaced by a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.node import Node
from ....ir.prim import const
from ....ir.structural import same_expression
from ...expr import BufferLoad, Call, IntImm, Var
from ...function import PrimFunc, TensorIntrin
from ...functor import renew_defs
from ...stmt import BlockRealize, BufferRegion, BufferStore, For, MatchBufferRegion, SeqStmt, Stmt
from .. import checks
from ..errors import PrimitiveError
from ..index_dtype import index_dtype_of, with_index_dtype
from ..instruction import Output, Step, operand
from ..subst import is_true, realize_of
from ..walk import vars_in
from .blockize import blockize_realize, only_realize_below
from .loops import replace_realize
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..sref import StmtSRef
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__ = ["Mismatch", "TensorMatch", "tensorize_realize"]


class Mismatch(Exception):
    """The program is not what the intrinsic describes."""


class TensorMatch:
    """Compares a program with an intrinsic's description, finding which buffers and offsets correspond."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.vars: dict[Any, Any] = {}
        self.buffers: dict[Any, Any] = {}
        self.offsets: dict[Any, list[Any]] = {}
        self.inner: set[Any] = set()

    def _differ(self, what: str, have: object, want: object) -> Mismatch:
        return Mismatch(f"{what} differ: {have} against {want}")

    def stmt(self, have: Stmt, want: Stmt) -> None:
        """Compare statements."""
        match have, want:
            case SeqStmt() as own, SeqStmt() as theirs:
                if len(own) != len(theirs):
                    raise self._differ("numbers of statements", len(own), len(theirs))
                for a, b in zip(own, theirs, strict=True):
                    self.stmt(a, b)
            case For() as own, For() as theirs:
                self._loop(own, theirs)
            case BlockRealize() as own, BlockRealize() as theirs:
                self._realize(own, theirs)
            case BufferStore() as own, BufferStore() as theirs:
                self._access(own, theirs)
                self.expr(own.value, theirs.value)
            case _ if type(have) is not type(want):
                raise self._differ("statements", type(have).__name__, type(want).__name__)
            case _:
                for name in have._child_fields:
                    self._child(name, getattr(have, name), getattr(want, name))

    def _child(self, name: str, have: Node | None, want: Node | None) -> None:
        match have, want:
            case Stmt() as own, Stmt() as theirs:
                self.stmt(own, theirs)
            case PrimExpr() as own, PrimExpr() as theirs:
                self.expr(own, theirs)
            case _ if (have is None) != (want is None):
                raise Mismatch(f"one has a {name}, the other has none")

    def _loop(self, have: For, want: For) -> None:
        if not self.analyzer.can_prove_equal(have.extent, _cast(want.extent, have.extent.dtype)):
            raise self._differ(f"extents of {have.loop_var.name} and {want.loop_var.name}", have.extent, want.extent)
        if have.kind != want.kind or (have.thread_binding is None) != (want.thread_binding is None):
            raise self._differ(
                f"kinds of {have.loop_var.name} and {want.loop_var.name}", have.kind.name, want.kind.name
            )
        self.vars[want.loop_var] = have.loop_var
        self.inner.add(have.loop_var)
        self.stmt(have.body, want.body)

    def _realize(self, have: BlockRealize, want: BlockRealize) -> None:
        if not is_true(have.predicate) and not same_expression(have.predicate, want.predicate):
            raise self._differ("predicates", have.predicate, want.predicate)
        theirs = list(zip(want.block.iter_vars, want.iter_values, strict=True))
        own = list(zip(have.block.iter_vars, have.iter_values, strict=True))
        if len(own) != len(theirs):
            own = [(iv, v) for iv, v in own if not checks.is_one(iv.dom.extent)]
        if len(own) != len(theirs):
            raise self._differ("numbers of block variables", len(own), len(theirs))
        for (a, value_a), (b, value_b) in zip(own, theirs, strict=True):
            if a.iter_type != b.iter_type:
                raise self._differ(f"types of {a.var.name} and {b.var.name}", a.iter_type, b.iter_type)
            self.expr(value_a, value_b)
            self.vars[b.var] = a.var
            self.inner.add(a.var)
            self.analyzer.bind(a.var, a.dom)
        if (have.block.init is None) != (want.block.init is None):
            raise Mismatch("one has an init statement, the other has none")
        if have.block.init is not None and want.block.init is not None:
            self.stmt(have.block.init, want.block.init)
        self.stmt(have.block.body, want.block.body)

    def _access(self, have: BufferLoad | BufferStore, want: BufferLoad | BufferStore) -> None:
        self._child("predicate", have.predicate, want.predicate)
        known = self.buffers.setdefault(want.buffer, have.buffer)
        if known is not have.buffer or have.buffer.dtype != want.buffer.dtype:
            raise self._differ("buffers", have.buffer.name, want.buffer.name)
        if any(w is not want.buffer and h is have.buffer for w, h in self.buffers.items()):
            raise Mismatch(f"{have.buffer.name} would stand for two buffers")
        extra = len(have.indices) - len(want.indices)
        if extra < 0:
            raise self._differ("ranks", have.buffer.name, want.buffer.name)
        offsets = [i if self.inner.isdisjoint(vars_in(i)) else self.analyzer.simplify(i) for i in have.indices[:extra]]
        for a, b in zip(have.indices[extra:], want.indices, strict=True):
            mapped = self._mapped(b)
            offsets.append(self.analyzer.simplify(a - _cast(mapped, a.dtype)))
        for offset in offsets:
            if any(v in self.inner for v in vars_in(offset)):
                raise Mismatch(f"{have.buffer.name} is indexed in another pattern than {want.buffer.name}")
        before = self.offsets.setdefault(want.buffer, offsets)
        if before is not offsets and not all(
            self.analyzer.can_prove_equal(x, y) for x, y in zip(before, offsets, strict=True)
        ):
            raise Mismatch(f"{have.buffer.name} is accessed at several offsets")

    def _mapped(self, expr: PrimExpr) -> PrimExpr:
        from ...functor import substitute

        return substitute(expr, {v: _cast(self.vars[v], v.dtype) for v in vars_in(expr) if v in self.vars})

    def expr(self, have: PrimExpr, want: PrimExpr) -> None:
        """Compare scalar expressions."""
        match want:
            case Var():
                if self.vars.get(want) is not have:
                    raise self._differ("variables", have, want)
                return
            case BufferLoad() if isinstance(have, BufferLoad):
                self._access(have, want)
                return
            case IntImm() if isinstance(have, IntImm):
                if want.value != have.value:
                    raise self._differ("constants", have, want)
                return
        if type(have) is not type(want) or (have.dtype != want.dtype and not isinstance(want, Call)):
            raise self._differ("expressions", have, want)
        if isinstance(want, Call) and isinstance(have, Call) and have.op is not want.op:
            raise self._differ("calls", have, want)
        children = [n for n in have._child_fields if n != "op"]
        if not children and not same_expression(have, want):
            raise self._differ("expressions", have, want)
        for name in children:
            a, b = getattr(have, name), getattr(want, name)
            match a:
                case tuple():
                    if len(a) != len(b):
                        raise self._differ("argument counts", have, want)
                    for x, y in zip(a, b, strict=True):
                        self.expr(x, y)
                case PrimExpr():
                    self.expr(a, b)


def _cast(expr: PrimExpr, dtype: str) -> PrimExpr:
    if expr.dtype == dtype:
        return expr
    return IntImm(dtype, expr.value) if isinstance(expr, IntImm) else expr.astype(dtype)


def match_description(realize: BlockRealize, desc: PrimFunc) -> TensorMatch:
    """Compare a block with an intrinsic's description. Raises Mismatch."""
    analyzer = Analyzer()
    for iv in realize.block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    match = TensorMatch(analyzer)
    assert isinstance(desc.body, BlockRealize)
    root = desc.body.block
    if (realize.block.init is None) != (root.init is None):
        raise Mismatch("one has an init statement, the other has none")
    match.stmt(realize.block.body, root.body)
    return match


def tensorize_realize(realize: BlockRealize, intrin: TensorIntrin) -> BlockRealize:
    """The block with its body replaced by the intrinsic's implementation. Raises Mismatch."""
    dtype = index_dtype_of(realize.block)
    desc = with_index_dtype(intrin.desc, dtype)
    match = match_description(realize, desc)
    impl = with_index_dtype(renew_defs(intrin.impl), dtype)
    impl_body: Any = impl.body
    impl_block = impl_body.block
    regions = {r.buffer: r.region for r in (*impl_block.writes, *impl_block.reads)}
    matches = []
    for desc_param, impl_param in zip(desc.params, impl.params, strict=True):
        desc_buffer = desc.buffer_map[desc_param]
        impl_buffer = impl.buffer_map[impl_param]
        current = match.buffers.get(desc_buffer)
        if current is None:
            raise Mismatch(f"the program does not use a buffer for {desc_buffer.name}")
        if current.scope() != impl_buffer.scope():
            raise Mismatch(
                f"{current.name} is in scope {current.scope()}, {impl_buffer.name} of the intrinsic in "
                f"{impl_buffer.scope()}"
            )
        base = match.offsets[desc_buffer]
        extents = regions.get(impl_buffer)
        if extents is None:
            extents = tuple(Range.from_min_extent(const(0, d.dtype), d) for d in impl_buffer.shape)
        extra = len(base) - len(extents)
        region = [Range.from_min_extent(m, const(1, m.dtype)) for m in base[:extra]]
        region += [
            Range.from_min_extent(m, _cast(r.extent, m.dtype)) for m, r in zip(base[extra:], extents, strict=True)
        ]
        matches.append(MatchBufferRegion(impl_buffer, BufferRegion(current, tuple(region))))
    block = realize.block
    made = block.with_fields(
        body=impl_block.body,
        match_buffers=tuple(matches),
        alloc_buffers=(*block.alloc_buffers, *impl_block.alloc_buffers),
        # Where both say something, the program's word stands.
        annotations={**impl_block.annotations, **block.annotations},
    )
    return realize.with_fields(block=made)


def tensorize(state: ScheduleState, sref: StmtSRef, name: str, keep_units: bool) -> None:
    """Apply the intrinsic to a block or to the subtree at a loop."""
    intrin = TensorIntrin.get(name)
    assert intrin is not None
    if sref.is_block:
        realize = realize_of(sref)
    else:
        block_sref, child = only_realize_below(state, sref)
        loops = checks.loops_above(block_sref)
        position = loops.index(sref)
        realize, _ = blockize_realize(
            child,
            [s.stmt for s in loops[position:]],
            [s.stmt for s in loops[:position]],
            keep_units,
        )
    try:
        made = tensorize_realize(realize, intrin)
    except Mismatch as why:
        raise PrimitiveError(f'{{0}} does not match the tensor intrinsic "{name}": {why}.', [sref]) from None
    if sref.is_block:
        replace_realize(state, sref, realize, made)
        state.mark_new_block(state.stmt2ref[made.block])
    else:
        state.replace(sref, made)
        state.mark_new_block(state.stmt2ref[made.block])


class Tensorize(Step):
    """A subtree as one tensor intrinsic."""

    block_or_loop: BlockRV | LoopRV = operand()
    tensor_intrin: str
    preserve_unit_iters: bool

    def run(self, sch: Schedule) -> Sequence[Output]:
        tensorize(sch.state, sch.sref(self.block_or_loop), self.tensor_intrin, self.preserve_unit_iters)
        return []
