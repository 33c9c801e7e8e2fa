"""The values of tunable parameters: what a configuration says about one split, order, annotation or option.

Each knows how to carry itself out on either face of a schedule: ``apply(s, C, axis)`` with a schedule by stages
(``te.create_schedule``), ``apply(sch, block, loop)`` with a ``tir.Schedule``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import Any, TYPE_CHECKING

from ... import te
from ...ir.prim import IterVar
from ...support.errors import RelaxishError
from ...te.tensor import Tensor
from ...tir.schedule.rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from .space import ConfigSpace

__all__ = [
    "ANNOTATIONS", "AnnotateEntity", "Entity", "InstantiationError", "OtherOptionEntity", "ReorderEntity", "SplitEntity",
]  # fmt: skip

#: Annotations in the order of their numbers (one-hot features).
ANNOTATIONS = (
    "none", "vec", "unroll", "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "vthread", "fuse",
)  # fmt: skip
#: What a log can hold: numbers, words, and sequences of them.
Plain = float | str | Sequence["Plain"] | None
_NUMBER = {name: i for i, name in enumerate(ANNOTATIONS)}
_VTHREADS = ("vthread.x", "vthread.y", "vthread.z")


class InstantiationError(RelaxishError, ValueError):
    """A template refused a configuration (``cfg.raise_error``), so it is not measured."""


class Entity:
    """One value of one tunable parameter; ``kind`` is its two letters in a log, ``value`` what stands there."""

    kind = ""

    @property
    def value(self) -> Plain:
        """As it is written to a log."""
        raise NotImplementedError

    def features(self) -> list[float]:
        """As numbers for a cost model."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self.value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Entity) and list_of(self.value) == list_of(other.value)

    def __hash__(self) -> int:
        return hash((self.kind, repr(list_of(self.value))))


def list_of(value: Plain) -> Plain:
    """Sequences of any kind as lists, so that what was read from a log equals what was written."""
    return [list_of(v) for v in value] if isinstance(value, (list, tuple, range)) else value


def _staged(sch: Any) -> bool:
    return isinstance(sch, te.Schedule)


class SplitEntity(Entity):
    """Sizes of the axes that one axis becomes, outermost first; the first may be -1 (what is left)."""

    kind = "sp"

    def __init__(self, size: Sequence[int]) -> None:
        self.size = list(size)

    @property
    def value(self) -> list[int]:
        return self.size

    def features(self) -> list[float]:
        return [float(s) for s in self.size]

    def apply(self, sch: Any, op: BlockRV | Tensor, axis: IterVar | LoopRV) -> list[Any]:
        """Split the axis, the inner axes first gathered in one: ``[-1, 4, 8]`` splits by 32, then by 8."""
        inner = [int(prod(self.size[i:])) for i in range(1, len(self.size))]
        out: list[Any] = []
        for factor in inner:
            if _staged(sch):
                outer, axis = sch[op].split(axis, factor=factor)
            else:
                outer, axis = sch.split(axis, [None, factor])
            out.append(outer)
        return [*out, axis]


class ReorderEntity(Entity):
    """An order of axes."""

    kind = "re"

    def __init__(self, perm: Sequence[int]) -> None:
        self.perm = list(perm)

    @property
    def value(self) -> list[int]:
        return self.perm

    def features(self) -> list[float]:
        return [float(p) for p in self.perm]

    def apply(self, sch: Any, op: BlockRV | Tensor, axes: Sequence[Any]) -> list[Any]:
        """Put the axes into the order; with fewer axes than the order knows, those that are there."""
        chosen = [axes[i] for i in self.perm if i < len(axes)]
        (sch[op] if _staged(sch) else sch).reorder(*chosen)
        return chosen


class AnnotateEntity(Entity):
    """A word for each axis; with ``locate_cache`` the numbers of the axes at which caches are computed."""

    kind = "an"

    def __init__(self, anns: Sequence[Any]) -> None:
        self.anns = list(anns)

    @property
    def value(self) -> list[Any]:
        return self.anns

    def features(self) -> list[float]:
        out: list[float] = []
        for ann in self.anns:
            if isinstance(ann, int):
                out.append(float(ann))
            else:
                out += [float(i == _NUMBER[ann]) for i in range(len(ANNOTATIONS))]
        return out

    def apply(
        self,
        sch: Any,
        op: BlockRV | Tensor,
        axes: Sequence[Any],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: ConfigSpace | None = None,
        source: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Annotate the axes; what is too long for ``max_unroll``, or no width in ``vec_size``, is an error of ``cfg``.

        With ``source``, lists of cached tensors (or blocks), each list is computed at the axis that its number says.
        """
        made = axes if isinstance(axes, list) else list(axes)
        if source is not None:
            for tensors, where in zip(source, self.anns, strict=False):
                for tensor in tensors:
                    if _staged(sch):
                        sch[tensor].compute_at(sch[op], made[where])
                    else:
                        sch.compute_at(tensor, made[where])
            return made
        virtual = 0
        for i, ann in enumerate(self.anns):
            if ann == "none":
                continue
            if ann == "unroll" and max_unroll and axis_lens is not None and axis_lens[i] > max_unroll:
                _refuse(cfg, "Too large factor for unrolling")
            if ann == "vec" and vec_size and axis_lens is not None and axis_lens[i] not in vec_size:
                _refuse(cfg, "Wrong size of lanes in vectorization")
            if ann == "fuse":
                if i + 1 >= len(made):
                    raise InstantiationError("the last axis has no next one to be fused with")
                pair = (made[i], made[i + 1])
                made[i + 1] = sch[op].fuse(*pair) if _staged(sch) else sch.fuse(*pair)
                continue
            _mark(sch, op, made[i], str(ann), virtual)
            virtual += ann == "vthread"
        return made


def _refuse(cfg: Any, message: str) -> None:
    if cfg is None:
        raise InstantiationError(message)
    cfg.raise_error(message)


def _mark(sch: Any, op: BlockRV | Tensor, axis: IterVar | LoopRV, ann: str, virtual: int) -> None:
    """One annotation of one axis."""
    if ann in ("unroll", "vec"):
        word = {"unroll": "unroll", "vec": "vectorize"}[ann]
        getattr(sch[op] if _staged(sch) else sch, word)(axis)
    elif ann in _NUMBER:
        if _staged(sch):
            sch[op].bind(axis, te.thread_axis(ann))
        else:
            sch.bind(axis, _VTHREADS[virtual] if ann == "vthread" else ann)
    else:
        raise InstantiationError(f"unknown annotation {ann!r}; the words are {', '.join(ANNOTATIONS)}")


class OtherOptionEntity(Entity):
    """The value of an option."""

    kind = "ot"

    def __init__(self, val: Any) -> None:
        self.val = val

    @property
    def value(self) -> Plain:
        return self.val

    def features(self) -> list[float]:
        return [option_number(self.val)]


def option_number(value: Plain) -> float:
    """An option as a number: itself where it is one, else one between 0 and 1 that only depends on how it is written."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    return zlib.crc32(repr(list_of(value)).encode()) / 2.0**32


ENTITIES: dict[str, type[Entity]] = {
    c.kind: c for c in (SplitEntity, ReorderEntity, AnnotateEntity, OtherOptionEntity)
}  # fmt: skip
