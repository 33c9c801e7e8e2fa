"""Random schedule steps: every primitive with random arguments; what a primitive refuses is no step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ...arith import Analyzer
from ...ir.expr import Range
from ...support.errors import ScheduleError
from ...tir import ForKind, IntImm, IterVar
from ...tir.functor import substitute
from ...tir.analysis import undefined_vars
from ...tir.function import TensorIntrin
from ...tir.op import logical_not_
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.schedule.description import computes_the_same
from ...tir.schedule.subst import conjuncts, realize_of
from ...tir.schedule.transform import tile_with_tensor_intrin
from ...tir.schedule.walk import vars_in
from .intrinsics import COPIES, PRODUCTS, register_intrinsics

__all__ = ["STEPS", "random_schedule"]


class _Nothing(Exception):
    """The program has no place for this step."""


class _Picker:
    """Random parts of the program as it is now."""

    def __init__(self, sch: Schedule, rng: Random) -> None:
        self.sch, self.rng = sch, rng

    def blocks(self) -> list[BlockRV]:
        """All blocks but the root, outer ones before those inside them."""
        out: list[BlockRV] = []
        todo = list(self.sch.get_child_blocks(self.sch.get_block("root")))
        while todo:
            block = todo.pop(0)
            out.append(block)
            todo += self.sch.get_child_blocks(block)
        return out

    def block(self) -> BlockRV:
        """Any block."""
        return self._one(self.blocks())

    def loops(self) -> list[LoopRV]:
        """The loops around a random block."""
        loops = self.sch.get_loops(self.block())
        if not loops:
            raise _Nothing
        return loops

    def loop(self) -> LoopRV:
        """Any loop."""
        return self._one(self.loops())

    def _one(self, items: Any) -> Any:
        if not items:
            raise _Nothing
        return self.rng.choice(items)

    def chain(self) -> list[LoopRV]:
        """A few consecutive loops of a nest."""
        loops = self.loops()
        start = self.rng.randrange(len(loops))
        return loops[start : start + self.rng.randint(2, 3)]

    def local(self, block: BlockRV) -> tuple[str, int, Any]:
        """A buffer of a block that is no parameter of the function."""
        sch = self.sch
        node = sch.get(block)
        params = set(sch.mod["main"].buffer_map.values())
        found = [("read", i, r.buffer) for i, r in enumerate(node.reads) if r.buffer not in params]
        found += [("write", i, r.buffer) for i, r in enumerate(node.writes) if r.buffer not in params]
        return self._one(found)

    def flag(self) -> bool:
        """True or False."""
        return self.rng.random() < 0.5

    def scope(self) -> str:
        """A memory scope that a CPU program may use."""
        return self.rng.choice(("global", "local"))


Step = Callable[[_Picker], None]
STEPS: dict[str, tuple[int, Step]] = {}


def _step(weight: int = 2) -> Callable[[Step], Step]:
    def register(function: Step) -> Step:
        STEPS[function.__name__] = (weight, function)
        return function

    return register


# -- loops -------------------------------------------------------------------------------------------------


@_step(6)
def split(p: _Picker) -> None:
    loop = p.loop()
    kind = p.rng.randrange(3)
    if kind == 0:
        factors: list[Any] = [None, p.rng.choice((2, 3, 4, 5))]
    elif kind == 1:
        factors = [p.rng.choice((2, 3)), None]
    else:
        factors = p.sch.sample_perfect_tile(loop, p.rng.randint(2, 3), 8)
    p.sch.split(loop, factors, preserve_unit_iters=p.flag())


@_step(3)
def partitioned_tile(p: _Picker) -> None:
    loop = p.loop()
    p.sch.split(loop, p.sch.sample_partitioned_tile(loop, 3, 1, 2))


@_step(4)
def fuse(p: _Picker) -> None:
    p.sch.fuse(*p.chain(), preserve_unit_iters=p.flag())


@_step(4)
def reorder(p: _Picker) -> None:
    loops = p.loops()
    p.sch.reorder(*p.rng.sample(loops, len(loops)))


@_step(3)
def merge(p: _Picker) -> None:
    blocks = p.blocks()
    chosen = [p.sch.get_loops(b) for b in p.rng.sample(blocks, min(len(blocks), p.rng.choice((2, 2, 2, 3))))]
    depth = min(map(len, chosen), default=0)
    if len(chosen) < 2 or not depth:
        raise _Nothing
    level = p.rng.randrange(depth)
    p.sch.merge(*[loops[level] for loops in chosen])


@_step(2)
def loop_partition(p: _Picker) -> None:
    sizes: list[Any] = [p.rng.randint(1, 3) for _ in range(p.rng.randint(1, 2))]
    sizes.insert(p.rng.randrange(len(sizes) + 1), None)
    p.sch.loop_partition(p.loop(), sizes, preserve_unit_iters=p.flag())


@_step(1)
def add_unit_loop(p: _Picker) -> None:
    p.sch.add_unit_loop(p.loop() if p.flag() else p.block())


@_step(2)
def parallel(p: _Picker) -> None:
    p.sch.parallel(p.loops()[0])


@_step(2)
def vectorize(p: _Picker) -> None:
    loop = p.loops()[-1]
    if not isinstance(p.sch.get(loop).extent, IntImm):
        raise _Nothing  # lowering refuses it: a vector has a fixed number of lanes
    p.sch.vectorize(loop)


@_step(1)
def unroll(p: _Picker) -> None:
    p.sch.unroll(p.loops()[-1])


_THREADS = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz")


@_step(1)
def bind(p: _Picker) -> None:
    loop = p.loop()
    if p.sch.get(loop).kind != ForKind.SERIAL:
        raise _Nothing
    p.sch.bind(loop, p.rng.choice(_THREADS))


# -- copies ------------------------------------------------------------------------------------------------


@_step(3)
def cache_read(p: _Picker) -> None:
    p.sch.cache_read(p.block(), p.rng.randrange(2), p.scope())


@_step(3)
def cache_write(p: _Picker) -> None:
    p.sch.cache_write(p.block(), 0, p.scope())


@_step(2)
def cache_inplace(p: _Picker) -> None:
    p.sch.cache_inplace(p.block(), 0, p.scope())


@_step(2)
def reindex(p: _Picker) -> None:
    block = p.block()
    node = p.sch.get(block)
    kind = p.rng.choice(("read", "write"))
    regions = node.reads if kind == "read" else node.writes
    if not regions:
        raise _Nothing
    p.sch.reindex(block, (kind, p.rng.randrange(len(regions))))


@_step(1)
def reindex_cache_read(p: _Picker) -> None:
    p.sch.reindex_cache_read(p.block(), 0, p.scope(), lambda *i: list(i))


@_step(1)
def reindex_cache_write(p: _Picker) -> None:
    block = p.block()
    spatial = [iv.iter_type == IterVar.DataPar for iv in p.sch.get(block).iter_vars]
    p.sch.reindex_cache_write(block, 0, p.scope(), lambda *i: [v for v, s in zip(i, spatial, strict=True) if s][::-1])


@_step(1)
def read_at(p: _Picker) -> None:
    block = p.block()
    p.sch.read_at(p._one(p.sch.get_loops(block)), block, 0, p.scope())


@_step(1)
def write_at(p: _Picker) -> None:
    block = p.block()
    p.sch.write_at(p._one(p.sch.get_loops(block)), block, 0, p.scope())


# -- moving ------------------------------------------------------------------------------------------------


@_step(6)
def compute_at(p: _Picker) -> None:
    p.sch.compute_at(p.block(), p.loop(), preserve_unit_loops=p.flag(), index=p.rng.choice((-1, -2)))


@_step(6)
def reverse_compute_at(p: _Picker) -> None:
    p.sch.reverse_compute_at(p.block(), p.loop(), preserve_unit_loops=p.flag(), index=p.rng.choice((-1, -2)))


@_step(2)
def sampled_location(p: _Picker) -> None:
    block = p.block()
    p.sch.compute_at(block, p.sch.sample_compute_location(block))


@_step(2)
def compute_inline(p: _Picker) -> None:
    p.sch.compute_inline(p.block())


@_step(2)
def reverse_compute_inline(p: _Picker) -> None:
    p.sch.reverse_compute_inline(p.block())


# -- reductions and padding --------------------------------------------------------------------------------


@_step(3)
def decompose_reduction(p: _Picker) -> None:
    block = p.block()
    p.sch.decompose_reduction(block, p._one(p.sch.get_loops(block)))


def _last_iteration_runs(sch: Schedule, loop: LoopRV) -> bool:
    """Whether the predicates below a loop hold somewhere in its last iteration, whatever element is computed."""
    last = sch.get(loop)
    analyzer = Analyzer()
    ends = {last.loop_var: last.extent - 1}
    for block in sch.get_child_blocks(loop):
        for around in sch.get_loops(block):
            node = sch.get(around)
            if node is not last:
                analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))
        realize = realize_of(sch.get_sref(block))
        predicate = realize.predicate
        kinds = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        spatial = vars_in(tuple(value for iv, value in kinds if iv.iter_type == IterVar.DataPar))
        mine = [vars_in(term) for term in conjuncts(predicate)]
        if any(last.loop_var in used and not set(used).isdisjoint(spatial) for used in mine):
            return False
        if analyzer.can_prove(logical_not_(substitute(predicate, ends))):
            return False
    return True


@_step(5)
def rfactor(p: _Picker) -> None:
    """A partial result that no iteration begins is undefined unless the initialisation is taken out of its block.

    Default schedules for GPUs do just that, so the primitive does not refuse it; here it would be a false alarm.
    """
    loop = p.loop()
    if not _last_iteration_runs(p.sch, loop):
        raise _Nothing
    p.sch.rfactor(loop, p.rng.choice((-1, 0, 1)))


@_step(3)
def decompose_padding(p: _Picker) -> None:
    block = p.block()
    p.sch.decompose_padding(block, p._one(p.sch.get_loops(block)))


@_step(1)
def pad_einsum(p: _Picker) -> None:
    block = p.block()
    p.sch.pad_einsum(block, [p.rng.choice((1, 2, 4)) for _ in p.sch.get(block).iter_vars])


@_step(4)
def rolling_buffer(p: _Picker) -> None:
    p.sch.rolling_buffer(p.block(), 0)


# -- layouts and signatures --------------------------------------------------------------------------------


@_step(3)
def transform_layout(p: _Picker) -> None:
    block = p.block()
    kind, index, buffer = p.local(block)
    if not buffer.shape:
        raise _Nothing
    tile = p.rng.choice((2, 3, 4))
    axis = p.rng.randrange(len(buffer.shape))

    def tiled(*i: Any) -> list[Any]:
        return [*i[:axis], i[axis] // tile, *i[axis + 1 :], i[axis] % tile]

    pad = 0.0 if "float" in buffer.dtype else 0
    p.sch.transform_layout(block, (kind, index), tiled if p.flag() else lambda *i: list(i[::-1]), pad)


@_step(1)
def transform_block_layout(p: _Picker) -> None:
    p.sch.transform_block_layout(p.block(), lambda *i: list(i[::-1]))


@_step(1)
def reorder_block_iter_var(p: _Picker) -> None:
    block = p.block()
    count = len(p.sch.get(block).iter_vars)
    p.sch.reorder_block_iter_var(block, p.rng.sample(range(count), count))


@_step(1)
def storage_align(p: _Picker) -> None:
    block = p.block()
    rank = len(p._one(p.sch.get(block).writes[:1]).buffer.shape)
    p.sch.storage_align(block, 0, p._one(range(rank)), 8, p.rng.randrange(4))


@_step(1)
def set_scope(p: _Picker) -> None:
    p.sch.set_scope(p.block(), 0, p.scope())


@_step(1)
def unsafe_set_dtype(p: _Picker) -> None:
    block = p.block()
    if p._one(p.sch.get(block).writes[:1]).buffer.dtype != "float32":
        raise _Nothing
    p.sch.unsafe_set_dtype(block, 0, "float64")


@_step(1)
def annotate_buffer_access(p: _Picker) -> None:
    block = p.block()
    node = p.sch.get(block)
    region = p._one(node.reads).region
    own = {iv.var for iv in node.iter_vars}
    if not own.issuperset(v for r in region for v in undefined_vars(r.min + r.extent)):
        raise _Nothing  # a map from block variables cannot speak of an outer block's

    def same(*axes: Any) -> list[tuple[Any, Any]]:
        values = dict(zip([iv.var for iv in node.iter_vars], axes, strict=True))
        return [(substitute(r.min, values), substitute(r.min + r.extent, values)) for r in region]

    index = next(i for i, r in enumerate(node.reads) if r.region is region)
    p.sch.annotate_buffer_access(block, index, "read", same)


@_step(1)
def annotate(p: _Picker) -> None:
    loop = p.loop()
    p.sch.annotate(loop, "fuzz.note", p.rng.randrange(4))
    if p.flag():
        p.sch.unannotate(loop, "fuzz.note")


@_step(2)
def blockize(p: _Picker) -> None:
    p.sch.blockize(p.loop(), preserve_unit_iters=p.flag())


@_step(3)
def tensorize(p: _Picker) -> None:
    block, name = p.block(), p.rng.choice((*PRODUCTS, *COPIES))
    intrin = TensorIntrin.get(name)
    if intrin is None or not computes_the_same(p.sch.get(block), intrin.desc):
        raise _Nothing
    loop = tile_with_tensor_intrin(p.sch, block, name)
    if loop is None:
        raise _Nothing
    if name in PRODUCTS:
        block = p.sch.decompose_reduction(block, p.sch.get_loops(block)[0])
    p.sch.tensorize(loop, name, preserve_unit_iters=p.flag())


@_step(1)
def set_axis_separator(p: _Picker) -> None:
    block = p.block()
    kind, index, buffer = p.local(block)
    if not buffer.shape:
        raise _Nothing
    p.sch.set_axis_separator(block, (kind, index), [p._one(range(len(buffer.shape)))])


# -- steps on what nothing may be built: they leave accesses undeclared --------------------------------------


def cache_index(p: _Picker) -> None:
    p.sch.cache_index(p.block(), p.scope(), p.rng.choice((0, 1, 2)))


def unsafe_hide_buffer_access(p: _Picker) -> None:
    p.sch.unsafe_hide_buffer_access(p.block(), "read", [0])


_LAST: tuple[Step, ...] = (cache_index, unsafe_hide_buffer_access)


def random_schedule(sch: Schedule, rng: Random, steps: int) -> list[str]:
    """Apply ``steps`` random steps, refused ones included; gives the names of those that took effect."""
    register_intrinsics()
    picker = _Picker(sch, rng)
    names = list(STEPS)
    weights = [STEPS[n][0] for n in names]
    todo = [STEPS[rng.choices(names, weights)[0]][1] for _ in range(steps)]
    if rng.random() < 0.2:
        todo.append(rng.choice(_LAST))
    done = []
    for step in todo:
        if _took_effect(step, picker):
            done.append(step.__name__)
    return done


def _took_effect(step: Step, picker: _Picker) -> bool:
    try:
        step(picker)
    except (ScheduleError, _Nothing):
        return False
    except AssertionError as err:
        if "buffer" in str(err):  # naming a buffer that is not there is the caller's mistake
            return False
        raise
    return True
