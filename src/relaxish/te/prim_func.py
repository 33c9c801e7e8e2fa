"""From compute definitions to TensorIR: one block per operation, one loop nest per block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.errors import CheckIndexError, CheckValueError
from ..ir.functor import Mutator, Visitor
from ..ir.supply import NameSupply
from ..support.sequences import as_list, of_kind
from ..tir import (
    Block, BlockRealize, Buffer, BufferLoad, BufferRegion, BufferStore, For, ForKind, IterVar, LetStmt,
    PrimExpr, PrimFunc, Reduce, Select, SeqStmt, Stmt, Var, const, decl_buffer,
)  # fmt: skip
from ..ir import PrimType, Range
from ..tir.expr import ProducerLoad
from ..tir.functor import substitute
from .access import block_regions
from .graph import post_order
from .index_dtype import normalize_index_dtype
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp, domain
from .tensor import Tensor
from ..ir.prim import const_int

# Names buffers whose layout the loops may choose.
_LAYOUT_FREE = "layout_free_placeholders"
# Attributes of computations that mean nothing to a block.
_DROPPED = ("const_matrix", "auto_scheduler_simplify_const_tensor_indices", "workload")

__all__ = ["create_prim_func", "create_prim_func_from_outputs"]


class _LoadsToBuffers(Mutator):
    """Tensor loads become buffer loads; mapped variables are replaced on the way."""

    def __init__(self, buffers: dict[Tensor, Buffer]) -> None:
        self.buffers = buffers
        self.vars: dict[Any, PrimExpr] = {}

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.vars.get(var, var)

    def visit_ProducerLoad(self, load: ProducerLoad) -> PrimExpr:
        indices = tuple(self.visit(i) for i in load.indices)
        buffer = self.buffers.get(load.producer)
        if buffer is None:
            raise CheckIndexError(f"Cannot find the tensor {load.producer}")
        return BufferLoad(buffer, indices)


class _BufferSwap(Mutator):
    """Replaces the buffers and variables an extern body was written with."""

    def __init__(self, buffers: dict[Buffer, Buffer]) -> None:
        self.buffers = buffers
        self.vars = {old.data: new.data for old, new in buffers.items()}

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.vars.get(var, var)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return BufferLoad(self.visit_Buffer(load.buffer), tuple(self.visit(i) for i in load.indices))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = tuple(self.visit(i) for i in store.indices)
        return BufferStore(self.visit_Buffer(store.buffer), self.visit(store.value), indices)

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return BufferRegion(self.visit_Buffer(region.buffer), tuple(self.visit(r) for r in region.region))


class _Builder:
    """State of one conversion: bound buffers, allocations, block names."""

    def __init__(self, args: Sequence[Any]) -> None:
        from ..arith import Analyzer

        self.args = list(of_kind(args, Tensor))
        self.buffers: dict[Tensor, Buffer] = {}
        self.root_alloc: list[Buffer] = []
        self.names = NameSupply()  # of blocks: T_add, T_add_1, ...
        self.block_names: dict[Operation, list[str]] = {}
        self.loads = _LoadsToBuffers(self.buffers)
        self.simplify = Analyzer().simplify

    def _block_name(self, op: Operation) -> str:
        name = self.names.fresh_as_is(op.name.replace(".", "_"))
        self.block_names.setdefault(op, []).append(name)
        return name

    def is_arg(self, tensor: Tensor) -> bool:
        return tensor in self.args

    def bind_extern_buffers(self, ops: Sequence[Operation]) -> None:
        """Buffers an extern operation was written with serve its tensors too."""
        for op in of_kind(ops, ExternOp):
            for tensor, buffer in zip(op.inputs, op.input_placeholders):
                self.buffers.setdefault(tensor, buffer)
            for index, buffer in enumerate(op.output_placeholders):
                self.buffers.setdefault(op.output(index), buffer)

    def declare(self, tensor: Tensor) -> Buffer:
        buffer = self.buffers.get(tensor)
        if buffer is None:
            buffer = decl_buffer(tensor.shape, tensor.dtype, _name_hint(tensor), scope="global")
            self.buffers[tensor] = buffer
        if not self.is_arg(tensor) and not any(buffer is b for b in self.root_alloc):
            self.root_alloc.append(buffer)
        return buffer

    def stage(self, op: Operation) -> Stmt | None:
        match op:
            case PlaceholderOp():
                tensor = op.output(0)
                if not self.is_arg(tensor):
                    raise CheckValueError(
                        f"The operation {op.name} produces tensor {tensor}, but this tensor does not appear as a function "
                        "argument.  Add it to the list of tensors given to create_prim_func"
                    )
                self.buffers.setdefault(tensor, decl_buffer(op.shape, op.dtype, op.name, scope="global"))
                return None
            case ComputeOp():
                return self.compute_stage(op)
            case ExternOp():
                return self.extern_stage(op)
        raise TypeError(f"Unsupported Operation: {type(op).__name__}; only te.placeholder, te.compute and te.extern")

    def compute_stage(self, op: ComputeOp) -> Stmt:
        axes = [*op.axis, *op.reduce_axis]
        groups: list[tuple[list[Tensor], PrimExpr]]
        if isinstance(op.body[0], Reduce):
            _check_same_reduce(op)
            groups = [([op.output(i) for i in range(op.num_outputs)], op.body[0])]
        else:
            groups = [([op.output(i)], body) for i, body in enumerate(op.body)]
        own = {a.var for a in axes}
        inner = [a for a in axes if _mentions(a.dom, own)]
        if inner:
            # One reduction must not be spread over two blocks, so all its axes go inside.
            inner = [a for a in axes if a in inner or a.iter_type == IterVar.CommReduce]
            return self.nested_stage(op, [a for a in axes if a not in inner], inner, groups)
        loops = [Var(a.var.name, _axis_dtype(a)) for a in axes]
        stmt = _seq([self.block(op, tensors, axes, loops, body) for tensors, body in groups])
        return self.nest(loops, axes, stmt)

    def nest(self, loops: Sequence[Var], axes: Sequence[IterVar], stmt: Stmt) -> Stmt:
        """Wrap ``stmt`` in one serial loop per axis."""
        for loop, axis in zip(reversed(loops), reversed(axes)):
            extent = self.simplify(self.loads.visit(domain(axis).extent))
            stmt = For(loop, self.simplify(self.loads.visit(domain(axis).min)), extent, ForKind.SERIAL, stmt)
        return stmt

    def nested_stage(
        self, op: ComputeOp, outer: list[IterVar], inner: list[IterVar], groups: list[tuple[list[Tensor], PrimExpr]]
    ) -> Stmt:
        """Axes whose domain depends on other axes are looped over inside a block that binds those others."""
        loops = [Var(a.var.name, _axis_dtype(a)) for a in outer]
        self.loads.vars = {}
        iters = self.iter_vars(outer)
        bound = dict(self.loads.vars)
        rows = [
            IterVar(Range.from_min_extent(i.var, const(1, str(i.var.dtype))), a.var, a.iter_type)
            for i, a in zip(iters, outer)
        ]
        inner_loops = [Var(a.var.name, _axis_dtype(a)) for a in inner]
        bindings = [*(i.var for i in iters), *inner_loops]
        stmts = [self.block(op, tensors, [*rows, *inner], bindings, body, bound) for tensors, body in groups]
        reads, writes = _outer_regions([s.block for s in stmts], len(iters), self.simplify)
        self.loads.vars = bound
        stmt = self.nest(inner_loops, inner, _seq(stmts))
        self.loads.vars = {}
        block = Block(iters, reads, writes, self._block_name(op), stmt, None, (), (), {})
        return self.nest(loops, outer, BlockRealize(list(loops), const(True, "bool"), block))

    def iter_vars(self, axes: Sequence[IterVar], known: Mapping[Any, Any] | None = None) -> list[IterVar]:
        """Block variables for ``axes``; fills the substitution of axis variables on the way."""
        iters: list[IterVar] = []
        for axis in axes:
            fresh = Var("v_" + axis.var.name, axis.var.dtype)
            scope = self.loads.vars
            # Domains of a nested block speak of the variables of the block around it.
            self.loads.vars = dict(known) if known is not None else scope
            low = self.simplify(self.loads.visit(domain(axis).min))
            extent = self.simplify(self.loads.visit(domain(axis).extent))
            self.loads.vars = scope
            scope[axis.var] = fresh
            iters.append(IterVar(Range.from_min_extent(low, extent), fresh, axis.iter_type, axis.thread_tag))
        return iters

    def block(
        self,
        op: ComputeOp,
        tensors: list[Tensor],
        axes: Sequence[IterVar],
        bindings: Sequence[PrimExpr],
        body: PrimExpr,
        known: Mapping[Any, Any] | None = None,
    ) -> BlockRealize:
        self.loads.vars = {}
        iters = self.iter_vars(axes, known)
        buffers = [self.declare(t) for t in tensors]
        indices = tuple(self.loads.vars[a.var] for a in op.axis)
        init: Stmt | None = None
        if isinstance(body, Reduce):
            init, stmt = self.reduction(body, buffers, indices)
        else:
            stmt = BufferStore(buffers[0], self.simplify(self.loads.visit(body)), indices)
        if not iters:
            iters = [IterVar(Range.from_min_extent(0, 1), Var("vi", "int32"), IterVar.DataPar)]
            bindings = [const(0, "int32")]
        notes = {key: self.attribute(value) for key, value in op.attrs.items()}
        self.loads.vars = {}
        reads, writes = block_regions(stmt, init)
        block = Block(iters, reads, writes, self._block_name(op), stmt, init, (), (), notes)
        return BlockRealize(list(bindings), const(True, "bool"), block)

    def attribute(self, value: Any) -> object:
        match value:
            case Tensor():
                return self.buffers[value]
            case list() | tuple():
                return tuple(self.attribute(v) for v in value)
        return value

    def reduction(self, reduce: Reduce, buffers: list[Buffer], indices: Sequence[PrimExpr]) -> tuple[Stmt, Stmt]:
        combiner = reduce.combiner
        identity = [self.loads.visit(e) for e in combiner.identity_element]
        lhs = [BufferLoad(b, indices) for b in buffers]
        sources = [self.loads.visit(s) for s in reduce.source]
        condition = self.loads.visit(reduce.condition)
        if not const_int(condition, 0):
            sources = [Select(condition, s, i) for s, i in zip(sources, identity)]
        rhs = [self.simplify(s) for s in sources]
        start = [self.loads.visit(e) for e in reduce.init] if reduce.init else identity
        init = _seq([BufferStore(b, value, indices) for b, value in zip(buffers, start)])
        chosen = dict(zip((*combiner.lhs, *combiner.rhs), (*lhs, *rhs)))
        results = [substitute(e, chosen) for e in combiner.result]
        if len(buffers) == 1:
            return init, BufferStore(buffers[0], results[0], indices)
        # All results are bound before any is stored, because each may read every old value.
        temps = [Var("v_" + b.name, PrimType(b.dtype)) for b in buffers]
        stmt = _seq([BufferStore(b, t, indices) for b, t in zip(buffers, temps)])
        for temp, value in zip(reversed(temps), reversed(results)):
            stmt = LetStmt(temp, value, stmt)
        return init, stmt

    def extern_stage(self, op: ExternOp) -> Stmt:
        swap: dict[Buffer, Buffer] = {}
        for tensor, buffer in zip(op.inputs, op.input_placeholders):
            if self.buffers[tensor] is not buffer:
                swap[buffer] = self.buffers[tensor]
        for index, buffer in enumerate(op.output_placeholders):
            made = self.declare(op.output(index))
            if made is not buffer:
                swap[buffer] = made
        body = _BufferSwap(swap).visit(op.body) if swap else op.body
        reads = [_full(self.buffers[t]) for t in op.inputs]
        writes = [_full(self.buffers[op.output(i)]) for i in range(op.num_outputs)]
        block = Block((), reads, writes, self._block_name(op), body, None, (), (), dict(op.attrs))
        return BlockRealize((), const(True, "bool"), block)


class _Mentions(Visitor):
    def __init__(self, names: set[Any]) -> None:
        self.names = names
        self.found = False

    def visit_Var(self, var: Var) -> None:
        self.found = self.found or var in self.names


def _mentions(dom: Range, names: set[Any]) -> bool:
    visitor = _Mentions(names)
    visitor.visit(dom)
    return visitor.found


def _outer_regions(
    blocks: Sequence[Block], outer: int, simplify: Callable[[Any], Any]
) -> tuple[list[BufferRegion], list[BufferRegion]]:
    """What the surrounding block touches: the inner regions, swept over the inner variables.

    Indices are affine and rise with the inner variables in every computation that has such axes.
    """
    found: tuple[list[BufferRegion], list[BufferRegion]] = ([], [])
    for block in blocks:
        first = {i.var: domain(i).min for i in block.iter_vars}
        last = {
            i.var: domain(i).min if k < outer else domain(i).min + domain(i).extent - 1
            for k, i in enumerate(block.iter_vars)
        }
        for regions, out in zip((block.reads, block.writes), found):
            for region in regions:
                if any(region.buffer is known.buffer for known in out):
                    continue
                ranges = []
                for r in region.region:
                    low = simplify(substitute(r.min, first))
                    high = simplify(substitute(r.min + r.extent, last))
                    ranges.append(Range.from_min_extent(low, simplify(high - low)))
                out.append(BufferRegion(region.buffer, ranges))
    return found


def _full(buffer: Buffer) -> BufferRegion:
    ranges = [Range.from_min_extent(const(0, str(extent.dtype)), extent) for extent in buffer.shape]
    return BufferRegion(buffer, ranges)


def _name_hint(tensor: Tensor) -> str:
    return tensor.op.name if tensor.op.num_outputs == 1 else f"{tensor.op.name}_v{tensor.value_index}"


def _axis_dtype(axis: IterVar) -> str:
    low, extent = str(domain(axis).min.dtype), str(domain(axis).extent.dtype)
    return "int64" if "int64" in (low, extent) else low


def _seq(stmts: Sequence[Stmt]) -> Stmt:
    return SeqStmt.flatten(*stmts)


def _check_same_reduce(op: ComputeOp) -> None:
    first = op.body[0]
    assert isinstance(first, Reduce)
    for other in op.body[1:]:
        if (
            not isinstance(other, Reduce)
            or other.combiner is not first.combiner
            or len(other.source) != len(first.source)
        ):
            raise CheckValueError("The Reduce inputs of ComputeOp should have the same attribute except value_index")


class _LayoutFree(Mutator):
    """Moves parameters named in ``layout_free_placeholders`` out of annotations; drops what means nothing to a block."""

    def __init__(self, params: dict[Buffer, int]) -> None:
        self.params = params
        self.places: set[int] = set()

    def visit_Block(self, block: Block) -> Block:
        made = self.default_visit(block)
        if any(key in made.annotations for key in _DROPPED):
            made = made.with_fields(annotations={k: v for k, v in made.annotations.items() if k not in _DROPPED})
        named = made.annotations.get(_LAYOUT_FREE)
        if named is None:
            return made
        self.places.update(self.params[b] for b in named if b in self.params)
        rest = [b for b in named if b not in self.params]
        kept = {k: v for k, v in made.annotations.items() if k != _LAYOUT_FREE}
        return made.with_fields(annotations={**kept, _LAYOUT_FREE: rest} if rest else kept)


def _normalize_layout_free(func: PrimFunc) -> PrimFunc:
    order = [func.buffer_map.get(p) for p in func.params]
    mover = _LayoutFree({b: i for i, b in enumerate(order) if b is not None})
    body = mover.visit(func.body)
    if body is func.body:
        return func
    made = func.with_fields(body=body)
    if not mover.places:
        return made
    return made.with_attr("layout_free_buffers", [const(i, "int32") for i in sorted(mover.places)])


def create_prim_func(ops: Sequence[Tensor | Var], index_dtype_override: str | None = None) -> PrimFunc:
    """A schedulable ``PrimFunc`` whose parameters are ``ops`` in the given order.

    Example: ``te.create_prim_func([A, B, C])`` for ``C = te.compute(..)`` over placeholders ``A`` and ``B``.
    ``index_dtype_override`` makes all loop variables, extents and indices that type.
    """
    args: list[Tensor | Var] = as_list(ops)
    return create_prim_func_from_outputs(args, index_dtype_override, {})


def create_prim_func_from_outputs(
    args: Sequence[Any], index_dtype_override: str | None, attrs: Mapping[str, Any]
) -> PrimFunc:
    """As :func:`create_prim_func`, with further function attributes."""
    return _create(_Builder(args), args, index_dtype_override, attrs)


def create_schedulable(args: Sequence[Any]) -> tuple[PrimFunc, dict[Operation, list[str]], dict[Tensor, Buffer]]:
    """The function of ``args``, the names of each operation's blocks, and the buffer of each tensor."""
    builder = _Builder(args)
    return _create(builder, args, None, {}), builder.block_names, builder.buffers


def _create(
    builder: _Builder, args: Sequence[Any], index_dtype_override: str | None, attrs: Mapping[str, Any]
) -> PrimFunc:
    order = post_order([t.op for t in builder.args])
    builder.bind_extern_buffers(order)
    stmts = [s for s in (builder.stage(op) for op in order) if s is not None]
    params: list[Var] = []
    buffer_map: dict[Var, Buffer] = {}
    for arg in args:
        if isinstance(arg, Tensor):
            param = Var("var_" + _name_hint(arg), "handle")
            buffer_map[param] = builder.buffers[arg]
            params.append(param)
        else:
            params.append(arg)
    body = _seq(stmts)
    if not builder.root_alloc and isinstance(body, BlockRealize) and not body.block.iter_vars:
        # The root of a function names no regions: it may touch all there is.
        body = body.with_fields(block=body.block.with_fields(reads=(), writes=()))
    else:
        root = Block((), (), (), "root", body, None, tuple(builder.root_alloc), (), {})
        body = BlockRealize((), const(True, "bool"), root)
    func = PrimFunc(tuple(params), body, None, buffer_map)
    func = func.with_attr({"global_symbol": "main", "tir.noalias": const(True, "bool"), **attrs})
    if index_dtype_override is not None:
        func = normalize_index_dtype(func, index_dtype_override)
    return _normalize_layout_free(func)
