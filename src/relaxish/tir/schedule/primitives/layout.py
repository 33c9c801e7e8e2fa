"""transform_layout, transform_block_layout, set_axis_separator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Visitor
from ....ir.plain import plain_int
from ....ir.prim import Cast, const
from ...expr import BufferLoad, IntImm, IterVar, Var
from ...functor import substitute
from ...index_map import IndexMap, with_index_dtype
from ...analysis.block_access import get_block_read_write_region
from ...buffer import Buffer
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, Stmt, stmt_list
from .. import checks
from ..accesses import AccessMutator, AccessSimplifier
from ..errors import PrimitiveError
from ..instruction import Decision, plain, Output, Step, operand
from ..rewrite import BufferSwap
from ..sref import StmtSRef
from ..subst import realize_of
from ..walk import replace_stmts, vars_in
from .buffer_attrs import alloc_site
from .layout_padding import Padding, PaddingPlan, check_pad_value, following, plan_padding
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__ = ["replace_everywhere"]


class _Relayout(AccessMutator):
    """Maps every access of a buffer through an index map and carries out a plan for its padding."""

    def __init__(self, old: Buffer, new: Buffer, index_map: IndexMap, plan: PaddingPlan | None = None) -> None:
        self.old, self.new, self.index_map = old, new, index_map
        super().__init__()
        self.plan = plan if plan is not None else PaddingPlan()
        self.reuse: dict[Any, Any] = {}

    def map_indices(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """The new indices of an access, simplified as what they are: maps of loops and block variables."""
        values = dict(
            zip(
                self.index_map.initial_indices,
                (fit(i, v.dtype) for i, v in zip(indices, self.index_map.initial_indices, strict=True)),
                strict=True,
            )
        )
        dtype = indices[0].dtype if indices else "int32"
        # Nothing is known of the variables here, so that none is lost that has one value only.
        plain = Analyzer()
        return self.simplest([fit(plain.simplify(substitute(e, values)), dtype) for e in self.index_map.final_indices])

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return self.new if node is self.old else node

    def visit_Var(self, node: Var) -> PrimExpr:
        return self.new.data if node is self.old.data else node

    def visit_For(self, node: For) -> Stmt:
        replaced = self.plan.replacements.get(node)
        if replaced is not None:
            return self.visit(replaced)
        return self._then_fill(node, super().visit_For(node))

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        return self._then_fill(node, self.default_visit(node))

    def _then_fill(self, node: Stmt, made: Stmt) -> Stmt:
        return following(made, self.plan.epilogue) if node is self.plan.insert_after else made

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        indices = self.visit(node.indices)
        if node.buffer is self.old:
            return BufferLoad(self.new, self.map_indices(indices))
        return node if indices is node.indices else node.with_fields(indices=indices)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        value, indices = self.visit(node.value), self.visit(node.indices)
        if node.buffer is self.old:
            return BufferStore(self.new, value, self.map_indices(indices))
        if value is node.value and indices is node.indices:
            return node
        return node.with_fields(value=value, indices=indices)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def visit_Block(self, node: Block) -> Stmt:
        made = self.default_visit(node)
        touched = {r.buffer for r in (*node.reads, *node.writes)} & {self.old, self.new}
        if touched:
            made = self._with_regions(made)
        if made is not node:
            self.reuse[self.plan.new_to_old.get(node, node)] = made
        return made

    def _with_regions(self, block: Block) -> Block:
        """The regions of the transformed buffer found anew; all others stay as they were declared."""
        found = get_block_read_write_region(block, {self.new.data: self.new})
        kept: list[tuple[BufferRegion, ...]] = []
        for declared, seen in zip((block.reads, block.writes), found, strict=True):
            mine = next((r for r in seen if r.buffer is self.new), None)
            kept.append(
                tuple(
                    (mine if mine is not None else full_access(self.new))
                    if r.buffer is self.old or r.buffer is self.new
                    else r
                    for r in declared
                )
            )
        return block.with_fields(reads=kept[0], writes=kept[1])


def full_access(buffer: Buffer) -> BufferRegion:
    """All of a buffer."""
    return BufferRegion(buffer, tuple(Range.from_min_extent(const(0, d.dtype), d) for d in buffer.shape))


def fit(expr: PrimExpr, dtype: str) -> PrimExpr:
    """An index expression in another integer type; casts of what already has the type fall away."""
    if expr.dtype == dtype:
        return expr
    match expr:
        case IntImm():
            return IntImm(dtype, expr.value)
        case Cast() if expr.value.dtype == dtype:
            return expr.value
    return expr.astype(dtype)


def replace_everywhere(state: ScheduleState, sref: StmtSRef, old: Buffer, new: Buffer, worker: _Separate) -> None:
    """Run a rewriting of one buffer from where it is defined: its allocation, or the whole function."""
    site = alloc_site(state, sref, old)
    if site is not None:
        state.replace(site, worker.visit(site.stmt), worker.reuse)
        return
    gvar, func, root = state.func_of(sref)
    if not any(b is old for b in func.buffer_map.values()):
        raise PrimitiveError(
            f"The buffer {old.name} is neither allocated in the function nor a parameter of it.", [sref]
        )
    made = worker.visit(root.stmt)
    state.replace(root, made, {**worker.reuse, root.stmt: made})
    gvar, func, root = state.func_of(root)
    buffers = {p: new if b is old else b for p, b in func.buffer_map.items()}
    state.update_func(gvar, func.with_fields(buffer_map=buffers))


def transform_layout(
    state: ScheduleState,
    sref: StmtSRef,
    index: int,
    write: bool,
    index_map: IndexMap,
    pad_value: IndexMap | None,
    injective: bool,
) -> None:
    """Lay a buffer out anew, wherever it is used."""
    checks.check_block(sref)
    buffer = checks.nth_buffer(sref, index, write)
    dtype = buffer.shape[0].dtype if buffer.shape else "int32"
    index_map = with_index_dtype(index_map, dtype)
    if len(index_map.initial_indices) != len(buffer.shape):
        raise PrimitiveError(
            f"The index map takes {len(index_map.initial_indices)} indices, the buffer of block {{0}} has "
            f"{len(buffer.shape)}.",
            [sref],
        )
    for ancestor in (sref, *sref.ancestors()):
        if any(m.buffer is buffer for m in getattr(ancestor.stmt, "match_buffers", ())):
            raise PrimitiveError(
                f"The buffer {buffer.name} is defined in `match_buffer` of block {{0}}, it is expected to be a "
                "function parameter or allocated by a block.",
                [ancestor],
            )
    _check_not_viewed(state, sref, buffer)
    if pad_value is not None:
        check_pad_value(pad_value, buffer, sref)
    shape = tuple(fit(d, dtype) for d in index_map.map_shape(list(buffer.shape)))
    separators = tuple(s for s in buffer.axis_separators if plain_int(s) <= len(shape))
    new = buffer.with_fields(shape=shape, strides=(), axis_separators=separators)
    site = alloc_site(state, sref, buffer)
    if site is None and all(b is not buffer for b in state.func_of(sref)[1].buffer_map.values()):
        raise PrimitiveError(f"The buffer {buffer.name} is neither allocated in the function nor a parameter.", [sref])
    scope = site if site is not None else state.func_of(sref)[2]
    plan = None
    if not injective:
        if pad_value is not None:
            # The pad value may read the buffer itself, which has the new layout from now on.
            value = _Relayout(buffer, new, index_map).visit(pad_value.final_indices[0])
            pad_value = IndexMap(pad_value.initial_indices, [value])
        padding = _padding(index_map, buffer, pad_value, sref)
        plan = None if padding is None else plan_padding(scope.stmt, buffer, new, padding)
    worker = _Relayout(buffer, new, index_map, plan)
    made = worker.visit(scope.stmt)
    if plan is not None and plan.prologue is not None:
        old_made = made
        body = stmt_list(made.body)
        made = made.with_fields(body=SeqStmt((plan.prologue, *body)))
        worker.reuse = {k: made if v is old_made else v for k, v in worker.reuse.items()}
    state.replace(scope, made, {**worker.reuse, scope.stmt: made})
    if site is None:
        gvar, func, _ = state.func_of(sref)
        buffers = {p: new if b is buffer else b for p, b in func.buffer_map.items()}
        state.update_func(gvar, func.with_fields(buffer_map=buffers))


def _check_not_viewed(state: ScheduleState, sref: StmtSRef, buffer: Buffer) -> None:
    """A view (as intrinsics have) is laid out by the strides of what it views: no other layout would suit it."""
    found: list[Block] = []

    class Find(Visitor):
        def visit_PrimExpr(self, node: PrimExpr) -> None:
            pass

        def visit_Block(self, node: Block) -> None:
            if any(m.source.buffer is buffer for m in node.match_buffers):
                found.append(node)
            self.default_visit(node)

    Find().visit(state.func_of(sref)[1].body)
    if found:
        raise PrimitiveError(f"A part of {buffer.name} is viewed through match_buffer in block {{0}}.", [found[0]])


def _padding(index_map: IndexMap, buffer: Buffer, pad_value: IndexMap | None, sref: StmtSRef) -> Padding | None:
    """The padding that a map introduces, None if it introduces none."""
    try:
        inverse, condition = index_map.non_surjective_inverse(list(buffer.shape))
    except RuntimeError as err:
        raise PrimitiveError(
            f"The index map cannot be inverted for the buffer of block {{0}}: {err}.", [sref]
        ) from None
    if checks.is_zero(condition):
        return None
    if pad_value is None:
        raise PrimitiveError(
            "ScheduleError: Transformation would introduce padding at "
            f"{condition} in the buffer {buffer.name} of block {{0}}, but no pad_value is given.",
            [sref],
            hint="pass pad_value, or assume_injective_transform=True",
        )
    return Padding(inverse, condition, pad_value)


def _nest(realize: BlockRealize, extents: Sequence[Any]) -> For:
    """The loops whose variables are bound to those of a block."""
    body: Any = realize
    for var, extent in reversed(list(zip(realize.iter_values, extents, strict=True))):
        body = For(var, const(0, var.dtype), extent, ForKind.SERIAL, body)
    return body


class TransformLayout(Step):
    """A buffer laid out by an index map."""

    block: BlockRV = operand()
    index_map: IndexMap = operand()
    buffer_index: int
    buffer_index_type: int
    pad_value: IndexMap | None
    assume_injective_transform: bool

    def run(self, sch: Schedule) -> Sequence[Output]:
        index, write = self.buffer_index, bool(self.buffer_index_type)
        transform_layout(
            sch.state,
            sch.sref(self.block),
            index,
            write,
            sch.map_of(self.index_map),
            self.pad_value,
            self.assume_injective_transform,
        )
        return []

    @classmethod
    def attrs_to_json(cls, attrs: Sequence[Any]) -> list[Any]:
        from ....ir.serial import save_json

        index, write, pad, injective = (plain(x) for x in attrs)
        return [index, write, pad if pad is None else save_json(pad), injective]

    @classmethod
    def attrs_from_json(cls, data: Sequence[Any]) -> list[Any]:
        from ....ir.serial import load_json

        return [data[0], data[1], None if data[2] is None else load_json(data[2]), bool(data[3])]

    @classmethod
    def as_python(cls, inputs: Sequence[str], attrs: Sequence[Any], decision: Decision, outputs: Sequence[str]) -> str:
        kind = "write" if plain(attrs[1]) else "read"
        pad = index_map_text(attrs[2])
        return (
            f'sch.transform_layout(block={inputs[0]}, buffer=("{kind}", {plain(attrs[0])}), index_map={inputs[1]}, '
            f"pad_value={pad}, assume_injective_transform={bool(plain(attrs[3]))})"
        )


def index_map_text(index_map: IndexMap | None) -> str:
    """An index map as the text of a lambda: ``lambda i, j: (j, i,)``."""
    if index_map is None:
        return "None"
    names: dict[Any, Any] = {}
    for var in index_map.initial_indices:
        name, count = var.name, 0
        while any(name == v.name for v in names.values()):
            count += 1
            name = f"{var.name}_{count}"
        names[var] = Var(name, var.dtype)
    final = " ".join(f"{substitute(e, names)}," for e in index_map.final_indices)
    return f"lambda {', '.join(v.name for v in names.values())}: ({final})".replace("lambda :", "lambda:")


# -- block layout ------------------------------------------------------------------------------------------


def transform_block_layout(state: ScheduleState, sref: StmtSRef, index_map: IndexMap) -> None:
    """New variables and loops for a block, made of the old ones by an index map."""
    block = checks.check_block(sref)
    loops = checks.loops_above(sref)
    realize = realize_of(sref)
    _check_loops_are_variables(sref, realize, loops)
    for outer, inner in zip(loops, [*loops[1:], None], strict=False):
        if outer.stmt.body is not (realize if inner is None else inner.stmt):
            raise PrimitiveError("The block {0} must be alone in its loop nest.", [sref])
    if len(index_map.initial_indices) != len(block.iter_vars):
        raise PrimitiveError(
            f"The index map can't be applied to block iters of {{0}} because the number of parameters mismatch. "
            f"Expected: {len(index_map.initial_indices)}, actual: {len(block.iter_vars)}",
            [sref],
        )
    dtype = block.iter_vars[0].var.dtype if block.iter_vars else "int32"
    index_map = with_index_dtype(index_map, dtype)
    doms = [iv.dom for iv in block.iter_vars]
    try:
        inverse = with_index_dtype(index_map.inverse(doms), dtype)
    except (ValueError, RuntimeError) as err:
        raise PrimitiveError(
            f"The index map {index_map_text(index_map)} is not bijective affine on the variables of block {{0}}: {err}",
            [sref],
        ) from None
    extents = [fit(e, dtype) for e in index_map.map_shape([d.extent for d in doms])]
    kinds = _iter_types(block, index_map)
    fresh = [Var(f"v{i}", dtype) for i in range(len(extents))]
    back = inverse.map_indices(fresh)
    subst = {iv.var: e for iv, e in zip(block.iter_vars, back, strict=True)}
    worker = AccessSimplifier(subst)
    iter_vars = tuple(
        IterVar(Range.from_min_extent(const(0, dtype), e), v, k) for v, e, k in zip(fresh, extents, kinds, strict=True)
    )
    for iv in iter_vars:
        worker.learn(iv.var, iv.dom)
    made = block.with_fields(
        iter_vars=iter_vars,
        reads=worker.visit(block.reads),
        writes=worker.visit(block.writes),
        body=worker.visit(block.body),
        init=None if block.init is None else worker.visit(block.init),
        match_buffers=worker.visit(block.match_buffers),
    )
    loop_vars = [Var(f"ax{i}", dtype) for i in range(len(extents))]
    renamed = dict(zip(fresh, loop_vars, strict=True))
    bound = zip(realize.iter_values, block.iter_vars, strict=True)
    old: dict[Any, Any] = {value: substitute(subst[iv.var], renamed) for value, iv in bound}
    # Loops of one iteration need not be bound, and go.
    old |= {s.stmt.loop_var: s.stmt.min for s in loops if s.stmt.loop_var not in old}
    nest = _nest(BlockRealize(tuple(loop_vars), substitute(realize.predicate, old), made), extents)
    if loops:
        state.replace(loops[0], nest, {block: made})
    else:
        _put_in_place(state, sref, realize, nest, {block: made})


def _check_loops_are_variables(sref: StmtSRef, realize: BlockRealize, loops: Sequence[StmtSRef]) -> None:
    """Demand that each variable is a loop of the block's own that runs from zero over all of the variable's domain.

    New loops run over all combinations of the variables: other than these, where an outer block decides on one.
    """
    driven = {s.stmt.loop_var: s.stmt for s in loops}
    seen: set[Any] = set()
    analyzer = Analyzer()
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if not isinstance(value, Var) or value not in driven or value in seen:
            raise PrimitiveError("The bindings of block {0} must be plain loop variables, each its own.", [sref])
        seen.add(value)
        loop = driven[value]
        starts = checks.is_zero(loop.min) and checks.is_zero(iv.dom.min)
        if not starts or not analyzer.can_prove(loop.extent >= iv.dom.extent):
            raise PrimitiveError(
                f'The loop {{1}} does not run over all of "{iv.var.name}" of block {{0}}.', [sref, loop]
            )
    for loop_sref in loops:
        if loop_sref.stmt.loop_var not in seen and not checks.is_one(loop_sref.stmt.extent):
            raise PrimitiveError("The loop {1} drives no variable of block {0}.", [sref, loop_sref])


def _put_in_place(
    state: ScheduleState, sref: StmtSRef, realize: BlockRealize, nest: Stmt, reuse: dict[Any, Any]
) -> None:
    """Exchange a block that no loop of its own surrounds."""
    parent = sref.parent
    assert parent is not None
    old = parent.stmt
    new = old.with_fields(body=replace_stmts(old.body, {id(realize): nest}))
    state.replace(parent, new, reuse if isinstance(old, For) else {**reuse, old: new})


def _iter_types(block: Block, index_map: IndexMap) -> list[int]:
    kind_of = {v: iv.iter_type for v, iv in zip(index_map.initial_indices, block.iter_vars, strict=True)}
    out = []
    for expr in index_map.final_indices:
        # Sizes of a dynamic shape (strides of fused variables) are of no kind.
        kinds = {kind_of[v] for v in vars_in(expr) if v in kind_of}
        if len(kinds) > 1:
            raise PrimitiveError(
                f"Cannot detect the block iter type for new iter value {expr} in {{0}} because it contains more than "
                "one type of original iter vars.",
                [block],
            )
        out.append(kinds.pop() if kinds else IterVar.DataPar)
    return out


class TransformBlockLayout(Step):
    """A block's variables by an index map."""

    block: BlockRV = operand()
    index_map: IndexMap = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        transform_block_layout(sch.state, sch.sref(self.block), sch.map_of(self.index_map))
        return []


class _Separate(BufferSwap):
    """Views get the separators of what they view if they have as many dimensions."""

    def view_of(self, view: Buffer, source: Buffer) -> Buffer:
        same = len(view.shape) == len(source.shape)
        return view.with_fields(axis_separators=source.axis_separators if same else (0,) * len(source.axis_separators))


class SetAxisSeparator(Step):
    """Dimensions grouped for multi-dimensional memory."""

    block: BlockRV = operand()
    buffer_index: int
    buffer_index_type: int
    axis_separators: Sequence[int]

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block)
        buffer = checks.nth_buffer(sref, self.buffer_index, bool(self.buffer_index_type))
        new = buffer.with_fields(axis_separators=tuple(int(x) for x in plain(self.axis_separators)))
        replace_everywhere(sch.state, sref, buffer, new, _Separate({buffer: new}))
        return []

    @classmethod
    def as_python(cls, inputs: Sequence[str], attrs: Sequence[Any], decision: Decision, outputs: Sequence[str]) -> str:
        kind = "write" if plain(attrs[1]) else "read"
        return (
            f'sch.set_axis_separator(block={inputs[0]}, buffer=("{kind}", {plain(attrs[0])}), '
            f"axis_separators={plain(attrs[2])})"
        )
