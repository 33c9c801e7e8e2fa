"""PatternContext: patterns of a graph with constraints between them, matched against a dataflow block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from ...support.errors import InternalError
from ..expr import DataflowBlock, Var

if TYPE_CHECKING:
    from .pattern import DFPattern

__all__ = ["DFConstraint", "PatternContext", "SameShapeConstraint", "relate"]


class DFConstraint:
    """A condition on several matches at once; it joins the pattern context in scope."""

    def __init__(self) -> None:
        context = PatternContext.current()
        if context is not None:
            context.add_validation(self)

    def holds(self, matched: dict[DFPattern, Any]) -> bool:
        """Whether the matches made so far may still fulfil it."""
        raise NotImplementedError


class SameShapeConstraint(DFConstraint):
    """All matches have the same shape."""

    def __init__(self, *args: DFPattern) -> None:
        self.args = args
        super().__init__()

    def __repr__(self) -> str:
        return f"SameShapeConstraint({', '.join(map(str, self.args))})"

    def holds(self, matched: dict[DFPattern, Any]) -> bool:
        """Whether all shapes known so far are provably equal; an unknown shape equals none."""
        from ..scalars import prove_equal_shapes

        infos = [matched[p].struct_info_ for p in self.args if p in matched]
        shapes = [info.dims() if hasattr(info, "dims") else None for info in infos]
        known = [shape for shape in shapes if shape is not None]
        return len(known) == len(shapes) and all(prove_equal_shapes(known[0], shape) for shape in known[1:])


class PatternContext:
    """A scope that collects patterns and their constraints.

    ::

        with PatternContext() as ctx:
            conv = is_op("relax.nn.conv2d")(wildcard(), wildcard())
            relu = is_op("relax.nn.relu")(wildcard())
            conv >> relu
        ctx.match_dfb(func.body.blocks[0])     # {pattern: variable} or None

    With ``incremental`` the constraints of the context around it hold as well.
    """

    _stack: ClassVar[list[PatternContext]] = []

    def __init__(self, incremental: bool = False) -> None:
        self.edges: dict[DFPattern, dict[DFPattern, list[tuple[bool, int]]]] = {}
        self.validations: list[DFConstraint] = []
        outer = PatternContext.current() if incremental else None
        if incremental and outer is None:
            raise InternalError("Incremental context needs to be built inside a existing context.")
        if outer is not None:
            self.edges = {p: {c: list(v) for c, v in uses.items()} for p, uses in outer.edges.items()}
            self.validations = list(outer.validations)

    def __enter__(self) -> PatternContext:
        PatternContext._stack.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        PatternContext._stack.pop()

    @staticmethod
    def current() -> PatternContext | None:
        """The innermost context in scope, or None."""
        return PatternContext._stack[-1] if PatternContext._stack else None

    def add_edge(self, producer: DFPattern, consumer: DFPattern, index: int, only: bool) -> None:
        """Demand that the match of ``producer`` is used by the match of ``consumer``."""
        demands = self.edges.setdefault(producer, {}).setdefault(consumer, [])
        if (only, index) not in demands:
            demands.append((only, index))

    def add_validation(self, constraint: DFConstraint) -> None:
        """Demand a condition on the whole match."""
        self.validations.append(constraint)

    def match_dfb(self, dfb: DataflowBlock) -> dict[DFPattern, Var] | None:
        """A match of all patterns in the block, from pattern to bound variable, or None."""
        from .graph_match import match_graph

        return match_graph(self, dfb)


def relate(producer: DFPattern, consumer: DFPattern, index: int, *, only: bool) -> None:
    """Add a use constraint to the context in scope, if there is one."""
    context = PatternContext.current()
    if context is not None:
        context.add_edge(producer, consumer, index, only)
