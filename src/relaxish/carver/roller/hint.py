"""Hints: recommended tilings of a kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...ir import dtype as dt
from ...ir.errors import CheckValueError
from .rasterization import NoRasterization, Rasterization

if TYPE_CHECKING:
    from .node import PrimFuncNode
    from ..arch import TileDevice

__all__ = ["Hint", "IntrinInfo", "Stride", "TileDict"]


class Stride:
    """Distance of neighbours along an axis of a tile whose rows are padded; axis -1 stands for no padding."""

    def __init__(self, stride: int = 1, ax: int = -1) -> None:
        self.ax = int(ax)
        self.stride = int(stride)

    def is_valid(self) -> bool:
        """Whether there is padding."""
        return self.ax >= 0

    def compute_strides_from_shape(self, shape: list[int]) -> list[int]:
        """The distance of neighbours along each axis of a tile."""
        strides = [1] * len(shape)
        for i in range(len(shape) - 2, -1, -1):
            strides[i] = self.stride if i == self.ax else strides[i + 1] * int(shape[i + 1])
        return strides

    def compute_elements_from_shape(self, shape: list[int]) -> int:
        """Elements of memory that a tile takes. Raises CheckValueError where the padding is negative."""
        whole = math.prod(int(n) for n in shape)
        if not self.is_valid():
            return whole
        padded = math.prod(int(n) for n in shape[: self.ax + 1]) * self.stride
        if self.ax >= len(shape) or padded < whole:
            raise CheckValueError(f"{self!r} is no padding of a tile of shape {list(shape)}")
        return padded

    def __repr__(self) -> str:
        return f"<Stride, {self.ax}, {self.stride}>"


class TileDict:
    """A tile of the result with what it costs, while a policy compares tiles."""

    def __init__(self, output_tile: list[int]) -> None:
        self.output_tile = list(output_tile)
        self.tile_map: dict[Any, list[int]] = {}
        self.rstep_map: dict[Any, dict[str, int]] = {}
        self.cached_tensors_map: dict[Any, list[str]] = {}
        self.traffic: float = -1
        self.smem_cost = -1
        self.block_per_SM = -1
        self.num_wave = -1
        self.grid_size = -1
        self.valid = True

    def get_tile(self, node: PrimFuncNode) -> list[int]:
        """The node's part of the tile."""
        return self.tile_map[node]

    def get_rstep(self, node: PrimFuncNode) -> dict[str, int]:
        """Steps of the node's reduction axes, by name."""
        return self.rstep_map[node]

    def __repr__(self) -> str:
        return f"TileDict({self.output_tile}, traffic={self.traffic:g}, smem={self.smem_cost}, waves={self.num_wave})"


class IntrinInfo:
    """The matrix instruction a tile is computed with: dtypes, and whether B is stored by columns."""

    def __init__(self, in_dtype: str, out_dtype: str, trans_b: bool, trans_a: bool = False) -> None:
        self.in_dtype = str(in_dtype)
        self.out_dtype = str(out_dtype)
        self.trans_a = bool(trans_a)
        self.trans_b = bool(trans_b)

    def is_input_8bit(self) -> bool:
        """Whether operands have 8 bits."""
        return dt.bits(self.in_dtype) == 8

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntrinInfo) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<IntrinInfo, {self.in_dtype}, {self.out_dtype}, {self.trans_b}>"


class Hint:
    """A tiling, for a GPU or a CPU.

    GPU: ``block`` results a thread block computes along each axis; with ``use_tc`` tensor cores ``warp`` of them a warp,
    else ``thread`` threads along each axis; ``rstep`` of each reduction axis at a time; ``reduce_thread`` threads along
    each reduction axis; ``vectorize`` lanes with which each tensor is copied; ``pipeline_stage`` tiles in flight, copied
    asynchronously if ``use_async``; ``rasterization_plan``; ``cached_tensors`` go through shared memory, in
    ``shared_scope``; ``split_k_factor`` blocks share the reduction of a tile; ``warpgroups``, and of a ``cluster``
    the blocks that share columns, of ``cluster_columns`` those that share rows, ``persistent`` blocks for all tiles
    (Hopper).

    CPU: ``block`` results of one task, ``thread`` the register tile within it, ``rstep`` of each reduction axis at a
    time, ``packed`` operands to be copied into strips first, ``parallel`` the axes (numbers) that tasks are divided along,
    ``order`` of the loops over register tiles.

    >>> hint = Hint.from_dict({"block": [64, 64], "warp": [32, 32], "rstep": [32], "use_tc": True})
    >>> hint.block, hint
    ([64, 64], {'block': [64, 64], 'warp': [32, 32], 'rstep': [32], 'use_tc': True})
    """

    def __init__(self) -> None:
        self.arch: TileDevice | None = None
        self.use_tc: bool | None = None
        self.block: list[int] = []
        self.thread: list[int] = []
        self.warp: list[int] = []
        self.rstep: list[int] = []
        self.reduce_thread: list[int] = []
        self.rasterization_plan: Rasterization = NoRasterization()
        self.cached_tensors: list[str] = []
        self.output_strides: dict[int, Stride] = {}
        self.schedule_stages: Any = None
        self.block_reduction_depth: int | None = None
        self.split_k_factor = 1
        self.raxis_order_: list[int] = []
        self.step_: list[int] = []
        self.vectorize: dict[str, int] = {}
        self.pipeline_stage = 1
        self.use_async = False
        self.opt_shapes: dict[str, int] = {}
        self.intrin_info = IntrinInfo("float16", "float16", True)
        self.shared_scope = "shared"
        self.pass_context: dict[str, Any] = {}
        self.warpgroups = 0
        self.cluster = 1
        self.cluster_columns = 1
        self.persistent = 0
        self.packed: list[str] = []
        self.parallel: list[int] = []
        self.order = ""
        #: Estimated seconds (GPU) or cycles of the busiest core (CPU); None where the policy does not estimate time.
        self.cost: float | None = None

    @property
    def step(self) -> list[int]:
        """Neighbouring results of a thread along each axis."""
        return self.step_ or [1] * len(self.block)

    @step.setter
    def step(self, value: list[int]) -> None:
        self.step_ = list(value)

    @property
    def raxis_order(self) -> list[int]:
        """Order of the reduction axes, outermost first."""
        return self.raxis_order_ or list(range(len(self.rstep)))

    @raxis_order.setter
    def raxis_order(self, value: list[int]) -> None:
        self.raxis_order_ = list(value)

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        if self.use_tc:
            warps = math.prod(-(-b // w) for b, w in zip(self.block, self.warp, strict=True))
            return warps * (self.arch.warp_size if self.arch is not None else 32)
        return math.prod(self.thread) * math.prod(self.reduce_thread)

    def to_dict(self) -> dict[str, Any]:
        """Fields that differ from a plain tiling, as a dictionary for :meth:`from_dict`."""
        found: dict[str, Any] = {"block": list(self.block)}
        found["warp" if self.use_tc else "thread"] = list(self.warp if self.use_tc else self.thread)
        found["rstep"] = list(self.rstep)
        if math.prod(self.reduce_thread) > 1:
            found["reduce_thread"] = list(self.reduce_thread)
        if self.use_tc:
            found["use_tc"] = self.use_tc
        strides = {k: stride for k, stride in self.output_strides.items() if stride.is_valid()}
        for name, value, usual in (
            ("strides", strides, {}), ("step", self.step_, []), ("raxis_order", self.raxis_order_, []),
            ("vectorize", self.vectorize, {}), ("pipeline_stage", self.pipeline_stage, 1),
            ("block_reduction_depth", self.block_reduction_depth, None), ("split_k_factor", self.split_k_factor, 1),
            ("warpgroups", self.warpgroups, 0), ("cluster", self.cluster, 1), ("cluster_columns", self.cluster_columns, 1),
            ("persistent", self.persistent, 0), ("packed", self.packed, []),
            ("parallel", self.parallel, []), ("order", self.order, ""),
        ):  # fmt: skip
            if value != usual and not (name == "step" and math.prod(self.step_) == 1):
                found[name] = value
        return found

    @classmethod
    def from_dict(cls, dic: Mapping[str, Any]) -> Hint:
        """The hint with these fields. Raises CheckValueError for a field that hints do not have."""
        hint = cls()
        for key, value in dic.items():
            name = "output_strides" if key == "strides" else key
            if not hasattr(hint, name) or callable(getattr(hint, name)) or name == "threads":
                fields = ", ".join(sorted(k for k in vars(hint) if not k.endswith("_")))
                raise CheckValueError(f"a hint has no field {key!r}; fields are {fields}, step, raxis_order")
            setattr(hint, name, value)
        return hint

    def tensorcore_legalization(self) -> Hint:
        """Keep rows and columns of tile and warp only: batch axes have one tile each."""
        self.warp, self.block = self.warp[-2:], self.block[-2:]
        return self

    def complete_config(self, node: PrimFuncNode | None = None) -> Hint:
        """Fill in what follows from the other fields."""
        wide = bool(self.use_tc) and self.intrin_info.out_dtype in ("float32", "int32")
        self.pass_context = {"tir.merge_static_smem": wide or self.shared_scope == "shared.dyn"}
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hint) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return str(self.to_dict())
