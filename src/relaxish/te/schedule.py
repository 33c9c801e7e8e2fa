"""Schedules by stages: ``s = te.create_schedule(C.op)``, ``s[C].split(...)``, a thin face over ``tir.Schedule``.

A stage is a block, an axis is one of its loops. What is asked of stages is written down, and carried out in one go when
the program is needed: first what changes the stages themselves (caches, ``rfactor``), in the order it was asked for,
then inlining, then the loops, consumers before producers. So a producer may be split before or after it is put under
a loop of its consumer, as users of such schedules expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ..arith.build import as_int
from ..ir import Range
from ..ir.errors import CheckValueError
from ..support.errors import ScheduleError
from ..support.sequences import as_list
from ..tir import IntImm, IterVar, PrimExpr, PrimFunc, Var
from .graph import post_order
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp
from .tensor import Dim, Tensor

if TYPE_CHECKING:
    from ..tir.schedule import Schedule as BlockSchedule
    from .schedule_replay import Replay

__all__ = ["CacheOp", "Schedule", "Stage", "Step", "create_schedule"]


@dataclass(frozen=True)
class Step:
    """One request to a stage: the axes it takes, those it makes, and further arguments."""

    kind: str
    takes: tuple[IterVar, ...] = ()
    makes: tuple[IterVar, ...] = ()
    args: tuple[Any, ...] = ()


class CacheOp(Operation):
    """The operation of a stage that a cache or ``rfactor`` made: a name, axes, and one output."""

    __slots__ = ("axis", "dtype", "inputs", "reduce_axis", "shape")

    def __init__(
        self,
        name: str,
        shape: Sequence[Any],
        dtype: str,
        axis: Sequence[IterVar],
        reduce_axis: Sequence[IterVar],
        inputs: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(name, "", None)
        self.shape = tuple(shape)
        self.dtype = dtype
        self.axis = tuple(axis)
        self.reduce_axis = tuple(reduce_axis)
        self.inputs = tuple(inputs)

    def output_shape(self, index: int) -> tuple[Any, ...]:
        return self.shape

    def output_dtype(self, index: int) -> str:
        return self.dtype

    @property
    def input_tensors(self) -> list[Tensor]:
        return list(self.inputs)


def axis_extent(axis: IterVar) -> int | None:
    """Number of values of an axis, None if that is not known yet."""
    extent = axis.dom.extent if axis.dom is not None else None
    return as_int(extent)


def _axis(name: str, like: IterVar, extent: int | None) -> IterVar:
    dom = None if extent is None else Range.from_min_extent(0, extent)
    return IterVar(dom, Var(name, str(like.var.dtype)), like.iter_type)


def _fresh(axes: Sequence[IterVar], suffix: str) -> list[IterVar]:
    return [IterVar(a.dom, Var(a.var.name + suffix, str(a.var.dtype)), a.iter_type) for a in axes]


def _whole(value: Any, what: str) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, PrimExpr)) or (isinstance(value, int) and value < 1):
        raise ScheduleError(f"{what} must be a positive integer or an expression, got {value!r}")
    return value


class Stage:
    """Schedule of one operation: its axes, their order and annotations."""

    def __init__(self, schedule: Schedule, op: Operation, origin: Operation | None = None) -> None:
        self.schedule = schedule
        self.op = op
        self.origin_op = op if origin is None else origin
        self.steps: list[Step] = []
        self.attach: tuple[Stage, IterVar] | None = None
        self.inlined = False
        self.all_iter_vars: list[IterVar] = [*getattr(op, "axis", ()), *getattr(op, "reduce_axis", ())]
        self.leaf_iter_vars: list[IterVar] = list(self.all_iter_vars)

    def __repr__(self) -> str:
        return f"stage({self.op.name})"

    # -- what is asked of loops

    def _leaf(self, axis: IterVar, what: str) -> IterVar:
        if not isinstance(axis, IterVar):
            raise TypeError(f"{what} of stage {self.op.name} takes an axis (IterVar), got {type(axis).__name__}")
        if not any(axis is leaf for leaf in self.leaf_iter_vars):
            known = any(axis is one for one in self.all_iter_vars)
            why = "was split or fused already" if known else "is no axis of this stage"
            leaves = ", ".join(leaf.var.name for leaf in self.leaf_iter_vars)
            raise ScheduleError(f"{what} of stage {self.op.name}: axis {axis.var.name} {why}; its axes are {leaves}")
        return axis

    def _add(self, kind: str, takes: Sequence[IterVar], makes: Sequence[IterVar] = (), *args: Any) -> None:
        self.schedule.changed()
        self.steps.append(Step(kind, tuple(takes), tuple(makes), args))
        self.all_iter_vars += makes

    def split(
        self, parent: IterVar, factor: int | None = None, nparts: int | None = None, disable_predication: bool = False
    ) -> tuple[IterVar, IterVar]:
        """Two axes for one: the inner has ``factor`` values, or the outer ``nparts``."""
        self._leaf(parent, "split")
        if (factor is None) == (nparts is None):
            raise ScheduleError(f"split of stage {self.op.name} takes either factor or nparts")
        given = _whole(factor if nparts is None else nparts, "the factor of a split")
        extent, known = axis_extent(parent), int(given) if isinstance(given, (int, IntImm)) else None
        other = None if extent is None or known is None else -(-extent // known)
        name = parent.var.name
        sizes = (other, known) if nparts is None else (known, other)
        outer, inner = _axis(f"{name}.outer", parent, sizes[0]), _axis(f"{name}.inner", parent, sizes[1])
        self._add("split", (parent,), (outer, inner), given, nparts is not None, bool(disable_predication))
        at = next(i for i, leaf in enumerate(self.leaf_iter_vars) if leaf is parent)
        self.leaf_iter_vars[at : at + 1] = [outer, inner]
        return outer, inner

    def fuse(self, *args: Any) -> IterVar:
        """One axis for several that stand next to each other, outermost first."""
        axes = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        for axis in axes:
            self._leaf(axis, "fuse")
        if not axes:
            raise ScheduleError(f"fuse of stage {self.op.name} takes at least one axis")
        if len(axes) == 1:
            return axes[0]
        places = [next(i for i, leaf in enumerate(self.leaf_iter_vars) if leaf is axis) for axis in axes]
        if places != list(range(places[0], places[0] + len(places))):
            raise ScheduleError(
                f"fuse of stage {self.op.name}: the axes {', '.join(a.var.name for a in axes)} do not stand next to "
                "each other in this order; reorder first"
            )
        extents = [axis_extent(a) for a in axes]
        total: int | None = 1
        for extent in extents:
            total = None if total is None or extent is None else total * extent
        kinds = {a.iter_type for a in axes}
        like = axes[0] if len(kinds) == 1 else next(a for a in axes if a.iter_type != IterVar.DataPar)
        made = _axis(".".join(a.var.name for a in axes) + ".fused", like, total)
        self._add("fuse", axes, (made,))
        self.leaf_iter_vars[places[0] : places[-1] + 1] = [made]
        return made

    def reorder(self, *args: Any) -> None:
        """Put the given axes, which keep the places they have together, into the given order."""
        axes = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        for axis in axes:
            self._leaf(axis, "reorder")
        if len({id(a) for a in axes}) != len(axes):
            raise ScheduleError(f"reorder of stage {self.op.name}: an axis is given twice")
        places = sorted(next(i for i, leaf in enumerate(self.leaf_iter_vars) if leaf is axis) for axis in axes)
        for place, axis in zip(places, axes, strict=True):
            self.leaf_iter_vars[place] = axis
        self._add("reorder", axes)

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and put the inner parts inside: ``x_outer, y_outer, x_inner, y_inner``."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Run an axis by hardware threads: ``te.thread_axis("threadIdx.x")``."""
        tag = getattr(thread_ivar, "thread_tag", "")
        if not tag:
            raise ScheduleError(f"bind of stage {self.op.name} takes te.thread_axis(...), got {thread_ivar!r}")
        self._add("bind", (self._leaf(ivar, "bind"),), (), tag)

    def vectorize(self, var: IterVar) -> None:
        """Compute an axis by vector instructions."""
        self._add("vectorize", (self._leaf(var, "vectorize"),))

    def unroll(self, var: IterVar) -> None:
        """Write out every step of an axis."""
        self._add("unroll", (self._leaf(var, "unroll"),))

    def parallel(self, var: IterVar) -> None:
        """Share an axis among the processor's threads."""
        self._add("parallel", (self._leaf(var, "parallel"),))

    def tensorize(self, var: IterVar, tensor_intrin: Any) -> None:
        """Replace an axis and all inside by a registered tensor intrinsic, given by name."""
        name = tensor_intrin if isinstance(tensor_intrin, str) else getattr(tensor_intrin, "name", None)
        if not isinstance(name, str):
            raise ScheduleError(
                f"tensorize of stage {self.op.name} takes the name under which an intrinsic was registered "
                "(tir.TensorIntrin.register)"
            )
        self._add("tensorize", (self._leaf(var, "tensorize"),), (), name)

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Annotate an axis: ``s[C].pragma(yo, "auto_unroll_max_step", 16)``; without a value, 1."""
        value = 1 if pragma_value is None else pragma_value
        self._add("pragma", (self._leaf(var, "pragma"),), (), str(pragma_type), value)

    # -- what is asked of the stage

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute what one step of a loop of ``parent`` needs inside of it."""
        if not isinstance(parent, Stage):
            raise TypeError(f"compute_at takes a stage such as s[C], got {type(parent).__name__}")
        if parent is self:
            raise ScheduleError(f"stage {self.op.name} cannot be computed inside of itself")
        parent._leaf(scope, "compute_at")
        self.schedule.changed()
        self.attach, self.inlined = (parent, scope), False

    def compute_root(self) -> None:
        """Compute the stage by itself, which is so unless said otherwise."""
        self.schedule.changed()
        self.attach, self.inlined = None, False

    def compute_inline(self) -> None:
        """Compute the stage where its values are used. Raises ScheduleError for an output."""
        if any(self.op is op or self.origin_op is op for op in self.schedule.outputs):
            raise ScheduleError(f"stage {self.op.name} is an output, nobody reads it: it cannot be inlined")
        self.schedule.changed()
        self.attach, self.inlined = None, True

    def set_scope(self, scope: str) -> None:
        """Set the memory scope of the stage's values: ``"shared"``, ``"local"``, ..."""
        self._add("set_scope", (), (), str(scope))

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Make the stride of a dimension, given by its axis, ``offset`` modulo ``factor`` elements."""
        places = [i for i, a in enumerate(getattr(self.op, "axis", ())) if a is axis]
        if not places:
            raise ScheduleError(f"storage_align of stage {self.op.name} takes one of its op.axis")
        self._add("storage_align", (), (), places[0], int(factor), int(offset))

    def double_buffer(self) -> None:
        """Compute the next step's values while this step's are used (stages under a loop)."""
        self._add("double_buffer", ())

    def rolling_buffer(self) -> None:
        """Keep what the next step of the loop around needs again."""
        self._add("rolling_buffer", ())

    def transform_layout(self, mapping_function: Callable[..., Sequence[PrimExpr]]) -> None:
        """Store the stage's values by another index map."""
        self._add("transform_layout", (), (), mapping_function)

    def prefetch(self, tensor: Tensor, var: IterVar, offset: int) -> None:
        """Not available: raises ScheduleError that says what to use."""
        raise ScheduleError("prefetch is not available; use cache_read and compute_at")

    def env_threads(self, threads: Any) -> None:
        """Not available: raises ScheduleError that says what to use."""
        raise ScheduleError("env_threads is not available; bind axes of the stages to te.thread_axis(...)")

    def set_store_predicate(self, predicate: PrimExpr) -> None:
        """Not available: raises ScheduleError that says what to use."""
        raise ScheduleError("set_store_predicate is not available; guards come from splits that do not divide")


class Schedule:
    """The stages of everything some outputs are computed from; ``s[tensor]`` or ``s[op]`` is a stage."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        order = post_order(self.outputs)
        self.stages: list[Stage] = [Stage(self, op) for op in order]
        self.stage_map: dict[Operation, Stage] = {stage.op: stage for stage in self.stages}
        self.dataflow: list[Step] = []
        self._replayed: Replay | None = None

    def changed(self) -> None:
        """Something was asked for: what was carried out before is out of date."""
        self._replayed = None

    def __getitem__(self, key: Tensor) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        stage = self.stage_map.get(op) if isinstance(op, Operation) else None
        if stage is None:
            raise ScheduleError(f"Cannot find stage for {key}: it is computed by none of this schedule's operations")
        return stage

    def normalize(self) -> Schedule:
        """This schedule: nothing has to be put in order before it is lowered."""
        return self

    def create_group(self, outputs: Tensor, inputs: Tensor, include_inputs: bool = False) -> NoReturn:
        """Not available: raises ScheduleError that says what to use."""
        raise ScheduleError("stage groups are not available; put each stage where it belongs with compute_at")

    # -- changes of stages

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """A copy of ``tensor`` in ``scope``, which ``readers`` (tensors or operations) read from then on."""
        if not isinstance(tensor, Tensor):
            raise TypeError(f"cache_read takes a tensor, got {type(tensor).__name__}")
        stages = [self[r] for r in as_list(readers)]
        if not stages:
            raise ScheduleError(f"cache_read of {tensor.name}: no reader is given")
        name = f"{tensor.op.name}.{scope}"
        axes = [IterVar(Range.from_min_extent(0, n), Var(f"ax{i}", "int32"), 0) for i, n in enumerate(tensor.shape)]
        op = CacheOp(name, tensor.shape, tensor.dtype, axes, (), (tensor,))
        stage = Stage(self, op)
        at = min(self.stages.index(s) for s in stages)
        self._insert(at, stage)
        self.dataflow.append(Step("cache_read", args=(tensor, scope, tuple(stages), stage)))
        return op.output(0)

    def cache_write(self, tensor: Tensor, scope: str) -> Tensor:
        """Compute ``tensor`` in ``scope`` and copy it afterwards; gives the tensor that is computed."""
        if isinstance(tensor, (list, tuple)):
            if len(tensor) != 1:
                raise ScheduleError("cache_write takes one tensor; an operation of several outputs has no cache here")
            return [self.cache_write(tensor[0], scope)]
        stage = self[tensor]
        if stage.steps:
            raise ScheduleError(f"cache_write of {tensor.name} must come before its axes are split, fused or annotated")
        old = stage.op
        if not isinstance(old, (ComputeOp, CacheOp)) or old.num_outputs != 1:
            raise ScheduleError(f"{tensor.name} is not computed by one expression: it cannot be cached")
        axes = _fresh(old.axis, ".c")
        op = CacheOp(f"{old.name}.{scope}", tensor.shape, tensor.dtype, axes, old.reduce_axis, old.input_tensors)
        made = Stage(self, op)
        self._insert(self.stages.index(stage), made)
        copy = CacheOp(old.name, tensor.shape, tensor.dtype, old.axis, (), (op.output(0),))
        stage.op = copy
        self.stage_map[copy] = stage
        stage.all_iter_vars = list(copy.axis)
        stage.leaf_iter_vars = list(copy.axis)
        self.dataflow.append(Step("cache_write", args=(stage, scope, made)))
        return op.output(0)

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Reduce by parts: a stage that has reduction axis ``axis`` as a dimension, and ``tensor`` that sums it up."""
        stage = self[tensor]
        stage._leaf(axis, "rfactor")
        if axis.iter_type != IterVar.CommReduce:
            raise ScheduleError(f"rfactor of {tensor.name}: axis {axis.var.name} is no reduction axis")
        old = stage.op
        spatial = list(getattr(old, "axis", ()))
        leaves = stage.leaf_iter_vars
        if any(not any(a is leaf for leaf in leaves) for a in spatial):
            raise ScheduleError(f"rfactor of {tensor.name} must come before its spatial axes are split or fused")
        if old.num_outputs != 1:
            raise ScheduleError(f"rfactor of {tensor.name}: an operation of several outputs is not supported")
        extent = axis_extent(axis)
        if extent is None:
            raise ScheduleError(f"rfactor of {tensor.name}: the extent of {axis.var.name} must be known")
        place = factor_axis if factor_axis >= 0 else len(spatial) + 1 + factor_axis
        if not 0 <= place <= len(spatial):
            raise ScheduleError(f"rfactor of {tensor.name}: factor_axis {factor_axis} is not in its {len(spatial) + 1}")
        own = IterVar(Range.from_min_extent(0, extent), Var(axis.var.name, "int32"), IterVar.DataPar)
        kept = _fresh(spatial, ".rf")
        dims: list[IterVar] = [*kept]
        shape: list[Dim] = [*tensor.shape]
        dims.insert(place, own)
        shape.insert(place, extent)
        rest = [leaf for leaf in leaves if leaf.iter_type == IterVar.CommReduce and leaf is not axis]
        fresh_rest = _fresh(rest, "")
        op = CacheOp(f"{old.name}.rf", shape, tensor.dtype, dims, fresh_rest, old.input_tensors)
        made = Stage(self, op)
        last = IterVar(Range.from_min_extent(0, extent), Var(f"{axis.var.name}.v", "int32"), IterVar.CommReduce)
        final = CacheOp(old.name, tensor.shape, tensor.dtype, spatial, (last,), (op.output(0),))
        done = tuple(stage.steps)
        rows = tuple(zip([axis, *spatial, *rest], [own, *kept, *fresh_rest], strict=True))
        self._insert(self.stages.index(stage), made)
        stage.op, stage.steps = final, []
        self.stage_map[final] = stage
        stage.all_iter_vars = [*spatial, last]
        stage.leaf_iter_vars = [*spatial, last]
        self.dataflow.append(Step("rfactor", args=(stage, made, axis, place, done, rows, last, tuple(leaves))))
        return op.output(0)

    def _insert(self, at: int, stage: Stage) -> None:
        self.changed()
        self.stages.insert(at, stage)
        self.stage_map[stage.op] = stage

    # -- results

    @property
    def inputs(self) -> list[Tensor]:
        """The placeholders, in order of first use."""
        return [s.op.output(0) for s in self.stages if isinstance(s.op, PlaceholderOp)]

    def replay(self) -> Replay:
        """The schedule carried out on a function, once."""
        if self._replayed is None:
            from .schedule_replay import carry_out

            self._replayed = carry_out(self)
        return self._replayed

    def block_schedule(self) -> BlockSchedule:
        """The ``tir.Schedule`` that results, with placeholders and outputs as parameters."""
        return self.replay().sch

    def prim_func(self, args: Sequence[Any], name: str = "main") -> PrimFunc:
        """The scheduled program with the parameters ``args``: tensors, scalar variables, in the order wanted."""
        from .schedule_replay import with_parameters

        return with_parameters(self, list(args), name)


def create_schedule(ops: Any) -> Schedule:
    """A schedule for the operations ``ops`` (one or a list; tensors stand for theirs) and all they depend on.

    >>> from relaxish import te
    >>> A = te.placeholder((64,), name="A")
    >>> B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B.op)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=16)
    >>> s[B].vectorize(inner)
    >>> print(s.prim_func([A, B]).script(show_meta=False).splitlines()[-4].strip())
    v_i = T.axis.spatial(64, i_0 * 16 + i_1)
    """
    items = as_list(ops)
    outputs = [item.op if isinstance(item, Tensor) else item for item in items]
    for op in outputs:
        if not isinstance(op, (ComputeOp, ExternOp)):
            raise CheckValueError(
                f"create_schedule takes operations of te.compute or te.extern, got {type(op).__name__}; "
                "write te.create_schedule(C.op)"
            )
    return Schedule(outputs)
