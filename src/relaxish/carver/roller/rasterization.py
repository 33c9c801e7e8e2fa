"""In which order blocks are visited, so that blocks running at the same time share operands in the second-level cache.

>>> plan = Rasterization2DColumn(8)
>>> plan.panel_width, plan.is_identity, NoRasterization().is_identity
(8, False, True)

Scripts that write ``hint.rasterization_plan is not NoRasterization`` compare an instance with a class, which is always
true: ask ``plan.is_identity`` or ``isinstance(plan, NoRasterization)``.
"""

from __future__ import annotations

from ...ir.errors import CheckValueError

__all__ = ["NoRasterization", "Rasterization", "Rasterization2DColumn", "Rasterization2DRow"]


class Rasterization:
    """An order of blocks; ``panel_width``: blocks of a panel across the direction in which the panel is walked."""

    panel_width_: int | None = None
    #: ``T.use_swizzle(panel_width, order=...)`` of the tile language.
    order: str | None = None

    @property
    def panel_width(self) -> int:
        """Blocks across a panel. Raises CheckValueError for the identity, which has no panels."""
        if self.panel_width_ is None:
            raise CheckValueError(f"{self!r} visits blocks in their usual order; it has no panels")
        return self.panel_width_

    @property
    def is_identity(self) -> bool:
        """Whether blocks are visited in their usual order."""
        return self.panel_width_ is None

    def visit(self, columns: int, rows: int) -> list[tuple[int, int]]:
        """(column, row) of each block of a grid, in the order in which they run.

        >>> Rasterization2DColumn(2).visit(2, 3)
        [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (0, 2)]
        """
        if self.panel_width_ is None:
            return [(i % columns, i // columns) for i in range(columns * rows)]
        across, along = (rows, columns) if self.order == "column" else (columns, rows)
        found = []
        for panel, first in enumerate(range(0, across, self.panel_width_)):
            width = min(self.panel_width_, across - first)
            for step in range(along):
                at = along - 1 - step if panel % 2 else step
                found += [(at, first + w) if self.order == "column" else (first + w, at) for w in range(width)]
        return found

    def get_code(self) -> list[str]:
        """CUDA C++ lines that renumber ``blockIdx``; none for the identity."""
        if self.panel_width_ is None:
            return []
        across, along = ("gridDim.y", "gridDim.x") if self.order == "column" else ("gridDim.x", "gridDim.y")
        name = f"rasterization2D{'Column' if self.order == 'column' else 'Row'}"
        place = "dim3(along, across, blockIdx.z)" if self.order == "column" else "dim3(across, along, blockIdx.z)"
        function = (
            f"__device__ __forceinline__ dim3 {name}(const int panel) {{\n"
            "  const int index = blockIdx.x + gridDim.x * blockIdx.y;\n"
            f"  const int number = index / (panel * {along}), inside = index % (panel * {along});\n"
            f"  const int left = {across} - number * panel, width = left < panel ? left : panel;\n"
            f"  const int step = inside / width, along = number & 1 ? {along} - 1 - step : step;\n"
            "  const int across = number * panel + inside % width;\n"
            f"  return {place};\n"
            "}\n"
        )
        return [function, f"const dim3 blockIdx = {name}({self.panel_width_});\n"]


class NoRasterization(Rasterization):
    """Blocks in their usual order."""

    def __repr__(self) -> str:
        return "<NoRasterization>"


class _Panels(Rasterization):
    def __init__(self, panel_width: int = 4) -> None:
        if int(panel_width) < 1:
            raise CheckValueError(f"panel_width is the number of blocks across a panel, at least 1; got {panel_width}")
        self.panel_width_ = int(panel_width)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self.panel_width_})>"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.panel_width_ == getattr(other, "panel_width_", None)

    def __hash__(self) -> int:
        return hash((type(self), self.panel_width_))


class Rasterization2DRow(_Panels):
    """Panels of ``panel_width`` columns, each walked along the rows, every second one backwards."""

    order = "row"


class Rasterization2DColumn(_Panels):
    """Panels of ``panel_width`` rows, each walked along the columns, every second one backwards."""

    order = "column"
