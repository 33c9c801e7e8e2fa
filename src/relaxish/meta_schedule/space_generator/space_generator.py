"""Space generators: from a module to its sketches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir import IRModule
from ...tir import PrimFunc, Schedule
from ...tir.schedule import BlockRV, Trace
from ..analysis import blocks as ba
from ..defaults import kind_of_target, rules_for_target
from ..mutator import Mutator
from ..postproc import Postproc
from ..schedule_rule import ScheduleRule
from ..utils import MethodNotDefinedError

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["PostOrderApply", "PySpaceGenerator", "ScheduleFn", "SpaceGenerator", "SpaceGeneratorUnion"]

Rules = "Sequence[ScheduleRule] | str | None"


class SpaceGenerator:
    """Subclass and define ``generate_design_space(mod) -> [schedules]``.

    ``sch_rules``, ``postprocs`` and ``mutator_probs`` are objects, a kind such as ``"llvm"``,
    ``"from-target"``, or None.
    """

    def __init__(
        self,
        sch_rules: Sequence[ScheduleRule] | str | None = "from-target",
        postprocs: Sequence[Postproc] | str | None = "from-target",
        mutator_probs: Mapping[Mutator, float] | str | None = "from-target",
    ) -> None:
        self._given = (sch_rules, postprocs, mutator_probs)
        self.sch_rules: list[ScheduleRule] = []
        self.postprocs: list[Postproc] = []
        self.mutator_probs: dict[Mutator, float] = {}
        self._context: Task | None = None

    def _initialize_with_tune_context(self, context: Task) -> None:
        """Called once before use; a subclass may do more here. Raises MethodNotDefinedError where there is no more."""
        raise MethodNotDefinedError(self, "_initialize_with_tune_context")

    def initialize_with_tune_context(self, context: Task) -> None:
        """Resolve the rules for the context's target and initialise them."""
        if not hasattr(self, "_given"):  # a subclass that never called our constructor
            SpaceGenerator.__init__(self)
        self._context = context
        given = ((None if context.target is None and v == "from-target" else v) for v in self._given)
        rules: Any
        postprocs: Any
        mutators: Any
        rules, postprocs, mutators = given

        def kind_of(value: str) -> str:
            return kind_of_target(context.target) if value == "from-target" and context.target is not None else value

        if rules == "from-target" and context.target is not None:
            self.sch_rules = rules_for_target(context.target)
        else:
            self.sch_rules = ScheduleRule.create(kind_of(rules)) if isinstance(rules, str) else list(rules or [])
        self.postprocs = Postproc.create(kind_of(postprocs)) if isinstance(postprocs, str) else list(postprocs or [])
        self.mutator_probs = Mutator.create(kind_of(mutators)) if isinstance(mutators, str) else dict(mutators or {})
        parts: list[Any] = [*self.sch_rules, *self.postprocs, *self.mutator_probs]
        for part in parts:
            part.initialize_with_tune_context(context)
        if type(self)._initialize_with_tune_context is not SpaceGenerator._initialize_with_tune_context:
            self._initialize_with_tune_context(context)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """The sketches of a module."""
        raise MethodNotDefinedError(self, "generate_design_space")

    def known_candidate(self, trace: Trace, seed: int) -> Schedule | None:
        """The candidate of a trace whose undecided samples ``seed`` decides, where it is known without making the
        program; None where it has to be made."""
        return None

    def clone(self) -> SpaceGenerator:
        """An independent copy, to be initialised again."""
        import copy

        made = copy.copy(self)
        made._context = None
        return made

    @staticmethod
    def create(kind: str | Callable[[Schedule], Any] = "post-order-apply", *args: Any, **kwargs: Any) -> SpaceGenerator:
        """``post-order-apply`` | ``union`` | a scheduling function."""
        if callable(kind):
            return ScheduleFn(kind, *args, **kwargs)
        if kind == "post-order-apply":
            return PostOrderApply(*args, **kwargs)
        if kind == "union":
            return SpaceGeneratorUnion(*args, **kwargs)
        raise ValueError(f"unknown space generator {kind!r}; expected 'post-order-apply', 'union' or a function")


PySpaceGenerator = SpaceGenerator


def _seed(context: Task | None) -> int | None:
    return None if context is None else context.fork_seed()


class ScheduleFn(SpaceGenerator):
    """A function that schedules: it returns nothing (having changed the schedule), a schedule, or several."""

    def __init__(
        self,
        sch_fn: Callable[[Schedule], Any],
        sch_rules: str | Sequence[ScheduleRule] | None = "from-target",
        postprocs: str | Sequence[Postproc] | None = "from-target",
        mutator_probs: str | Mapping[Mutator, float] | None = "from-target",
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.sch_fn = sch_fn

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        sch = Schedule(mod, seed=_seed(self._context))
        result = self.sch_fn(sch)
        match result:
            case None:
                return [sch]
            case Schedule():
                return [result]
            case list() | tuple():
                for item in result:
                    if not isinstance(item, Schedule):
                        raise TypeError(f"a scheduling function must give schedules, got {type(item).__name__}")
                return list(result)
        raise TypeError(f"a scheduling function must give None, a schedule or a list, got {type(result).__name__}")


class SpaceGeneratorUnion(SpaceGenerator):
    """The sketches of several generators, one after the other."""

    def __init__(
        self,
        space_generators: Sequence[SpaceGenerator],
        sch_rules: str | Sequence[ScheduleRule] | None = "from-target",
        postprocs: str | Sequence[Postproc] | None = "from-target",
        mutator_probs: str | Mapping[Mutator, float] | None = "from-target",
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.space_generators = list(space_generators)

    def _initialize_with_tune_context(self, context: Task) -> None:
        for generator in self.space_generators:
            generator.initialize_with_tune_context(context)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        return [sch for generator in self.space_generators for sch in generator.generate_design_space(mod)]


class PostOrderApply(SpaceGenerator):
    """Applies every rule, in order, to every block; a rule that gives several schedules forks the space."""

    def __init__(
        self,
        f_block_filter: Callable[..., bool] | None = None,
        sch_rules: str | Sequence[ScheduleRule] | None = "from-target",
        postprocs: str | Sequence[Postproc] = "from-target",
        mutator_probs: str | Mapping[Mutator, float] = "from-target",
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.f_block_filter = f_block_filter

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        from ..schedule_rule import ApplyCustomRule

        sch = Schedule(mod, seed=_seed(self._context), debug_mask="none", error_render_level="none")
        result = [sch]
        # Rules see the blocks of the program as it was given, not those that rules add.
        every = self._blocks(sch)
        for rule in self.sch_rules:
            custom = isinstance(rule, ApplyCustomRule)
            stack = [(s, every) for s in result]
            result = []
            while stack:
                sch, blocks = stack.pop()
                if not blocks:
                    result.append(sch)
                    continue
                *rest, block = blocks
                if self._applies(sch, block, custom):
                    stack += [(made, rest) for made in rule.apply(sch, block)]
                else:
                    stack.append((sch, rest))
        return result

    @staticmethod
    def _applies(sch: Schedule, block: BlockRV, custom: bool) -> bool:
        """Whether the block is still there; one with its own rule is not touched by the others."""
        try:
            node = sch.get(block)
        except (IndexError, ValueError):
            # An earlier rule inlined it.
            return False
        return custom or ba.annotation(node, "schedule_rule") is None

    def _blocks(self, sch: Schedule) -> list[BlockRV]:
        found = []
        for gv, func in sch.mod.functions.items():
            if not isinstance(func, PrimFunc):
                continue
            names: set[str] = set()
            for place in ba.places(func):
                block = place.realize.block
                if block.name_hint in names:
                    raise ValueError(f"two blocks of {gv.name_hint} are called {block.name_hint!r}; names must differ")
                names.add(block.name_hint)
                if self.f_block_filter is not None and not self.f_block_filter(block):
                    continue
                found.append(sch.get_block(block.name_hint, gv.name_hint))
        return found
