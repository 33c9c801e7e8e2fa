"""The sets of values a tunable parameter may have."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any

from ...ir.expr import ExprLike
from ...support.errors import RelaxishError
from ...tir import IntImm, IterVar
from .entity import ANNOTATIONS, AnnotateEntity, Entity, OtherOptionEntity, ReorderEntity, SplitEntity

__all__ = [
    "AnnotateSpace", "Axis", "OtherOptionSpace", "ReorderSpace", "SplitSpace", "TransformSpace", "VirtualAxis",
    "get_factors", "get_pow2s",
]  # fmt: skip

#: An axis that a definition gives: the ``index``-th of a parameter's ``space``.
Axis = namedtuple("Axis", ["space", "index"])


def get_factors(n: int) -> list[int]:
    """The divisors of ``n``, ascending."""
    small = [i for i in range(1, isqrt(n) + 1) if n % i == 0]
    return small + [n // i for i in reversed(small) if i * i != n]


def get_pow2s(n: int) -> list[int]:
    """The powers of two up to ``n``, ascending."""
    return [1 << i for i in range(n.bit_length())]


class TransformSpace:
    """Values in the order of their numbers."""

    def __init__(self) -> None:
        self.ins: list[Any] = []
        self.num_output = 0
        self.entities: list[Any] = []

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Entity:
        return self.entities[index]

    @staticmethod
    def get_num_output(axes: Sequence[Any], policy: str, **kwargs: Any) -> int:
        """Number of resulting axes."""
        return len(axes)


class VirtualAxis(TransformSpace):
    """An axis that stands for one of a program: its length, and a name (``-1``: a length that is not known)."""

    name_ct = 0

    def __init__(self, var: ExprLike, name: str | None = None) -> None:
        super().__init__()
        self.num_output = 1
        if name is None:
            name = f"axis_{VirtualAxis.name_ct}"
            VirtualAxis.name_ct += 1
        self.name = name
        match var:
            case bool():
                raise TypeError("an axis is a length or an IterVar, not a truth value")
            case int():
                self.length = var
            case IntImm():
                self.length = int(var.value)
            case IterVar():
                self.name = var.var.name
                extent = None if var.dom is None else var.dom.extent
                if extent is not None and not isinstance(extent, IntImm):
                    raise RelaxishError(
                        f"axis {self.name} has the symbolic extent {extent}: a space can only be defined over axes of known "
                        "length; make the template for fixed shapes"
                    )
                self.length = -1 if extent is None else int(extent.value)
            case VirtualAxis():
                self.length = var.length
            case _:
                raise RuntimeError(
                    f"Invalid type of axis: {type(var).__name__}; pass an axis of a stage, an int, or "
                    "cfg.axis(sch.get(loop).extent)"
                )

    def __repr__(self) -> str:
        return f"vaxis({self.name})"


def _length(axis: VirtualAxis) -> int:
    """How long an axis is, also one that another parameter gives."""
    if isinstance(axis, Axis):
        raise RelaxishError(
            "the length of an axis that another define_* gave depends on the configuration; split the original axis "
            "into more outputs instead"
        )
    return int(axis.length)


class SplitSpace(TransformSpace):
    """All ways to split an axis under a policy."""

    def __init__(
        self,
        axes: Sequence[Any],
        policy: str,
        *,
        num_outputs: int = 0,
        max_factor: int = 1 << 31,
        filter: Callable[[SplitEntity], bool] | None = None,
        no_tail: bool | None = None,
        candidate: Sequence[Sequence[int]] = (),
    ) -> None:
        super().__init__()
        self.policy = policy
        self.product = _length(axes[0])
        self.num_output = num_outputs
        if num_outputs <= 0:
            raise ValueError("define_split needs num_outputs, the number of axes after the split")
        if policy == "candidate":
            for size in candidate:
                if len(size) != num_outputs:
                    raise ValueError(f"the candidate {list(size)} has {len(size)} sizes, num_outputs is {num_outputs}")
            self.entities = [SplitEntity(size) for size in candidate]
        else:
            self.factors = [f for f in self._factors(policy) if f <= max_factor]
            exact = policy == "factors" if no_tail is None else no_tail
            self.entities = self._choices(exact)
        if filter is not None:
            self.entities = [e for e in self.entities if filter(e)]

    def _factors(self, policy: str) -> list[int]:
        if policy not in ("factors", "power2", "verbose"):
            raise RuntimeError(f"Invalid policy: {policy}; use factors, power2, verbose or candidate")
        if self.product < 1:
            raise RelaxishError("an axis of unknown length cannot be split by policy; give policy='candidate'")
        if policy == "factors":
            return get_factors(self.product)
        if policy == "power2":
            return get_pow2s(self.product)
        return sorted({*get_factors(self.product), *get_pow2s(self.product)})

    def _choices(self, exact: bool) -> list[SplitEntity]:
        """The first chosen factor, which is the innermost size, varies slowest."""
        found: list[SplitEntity] = []

        def choose(taken: list[int], so_far: int) -> None:
            if len(taken) == self.num_output - 1:
                if self.product % so_far == 0 or not exact:
                    found.append(SplitEntity([-1, *reversed(taken)]))
                return
            for factor in self.factors:
                if so_far * factor <= self.product:  # larger ones only get larger
                    choose([*taken, factor], so_far * factor)

        choose([], 1)
        return found

    @staticmethod
    def get_num_output(axes: Sequence[Any], policy: str, **kwargs: Any) -> int:
        return int(kwargs["num_outputs"])

    def __repr__(self) -> str:
        return f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_output}) len={len(self)}"


def _merged(chains: Sequence[Sequence[int]]) -> list[int]:
    """One order of all chains: always the next of the chain with most left, the first of such chains."""
    rest = [list(c) for c in chains]
    out: list[int] = []
    while any(rest):
        longest = max(rest, key=len)
        out.append(longest.pop(0))
    return out


class ReorderSpace(TransformSpace):
    """Orders of axes under a policy."""

    def __init__(self, axes: Sequence[Any], policy: str, **kwargs: Any) -> None:
        super().__init__()
        self.ins = list(axes)
        self.policy = policy
        self.num_output = count = len(axes)
        if policy == "identity":
            orders: list[Sequence[int]] = [range(count)]
        elif policy == "all":
            orders = list(itertools.permutations(range(count)))
        elif policy == "interval_all":
            begin, end = kwargs["interval"]
            inside = itertools.permutations(range(begin, end))
            orders = [(*range(begin), *p, *range(end, count)) for p in inside]
        elif policy == "candidate":
            orders = [[self.ins.index(x) for x in order] for order in kwargs["candidate"]]
        elif policy in ("interleave", "interleave_cuda"):
            spatial = [[self.ins.index(x) for x in chain] for chain in kwargs["spatial"]]
            reduce = [[self.ins.index(x) for x in chain] for chain in kwargs["reduce"]]
            outer = _merged([chain[:-1] for chain in spatial])
            if policy == "interleave":
                orders = [outer + _merged([*(chain[-1:] for chain in spatial), *reduce])]
            else:
                orders = [outer + _merged(reduce) + [chain[-1] for chain in spatial]]
        else:
            raise RuntimeError(
                f"Invalid policy: {policy}; use identity, all, interval_all, candidate, interleave or interleave_cuda"
            )
        self.entities = [ReorderEntity(order) for order in orders]

    def __repr__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self)}"


_GPU_WORDS = {
    "bind_gpu": {
        6: ["blockIdx.z", "blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x"],
        4: ["blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"],
        2: ["blockIdx.x", "threadIdx.x"],
    },
    "bind_gpu_virtual": {
        9: ["blockIdx.z", "blockIdx.y", "blockIdx.x", *["vthread"] * 3, "threadIdx.z", "threadIdx.y", "threadIdx.x"],
        6: ["blockIdx.y", "blockIdx.x", "vthread", "vthread", "threadIdx.y", "threadIdx.x"],
        3: ["blockIdx.x", "vthread", "threadIdx.x"],
    },
}


class AnnotateSpace(TransformSpace):
    """Annotations of axes under a policy."""

    def __init__(self, axes: Sequence[Any], policy: str, **kwargs: Any) -> None:
        super().__init__()
        self.ins = list(axes)
        self.policy = policy
        self.num_output = count = len(axes)
        if policy in _GPU_WORDS:
            table = _GPU_WORDS[policy]
            fits = [n for n in sorted(table, reverse=True) if n <= count]
            if not fits:
                raise RuntimeError(
                    f"Unhandled case in {policy}: it needs at least {min(table)} axes, there are {count}"
                )
            self.entities = [AnnotateEntity(["fuse"] * (count - fits[0]) + table[fits[0]])]
        elif policy == "locate_cache":
            places = itertools.combinations(range(count), int(kwargs["num_anchor"]))
            self.entities = [AnnotateEntity(list(place)) for place in places]
        else:
            self.entities = [AnnotateEntity(words) for words in self._words(policy)]

    def _words(self, policy: str) -> list[list[str]]:
        """Every choice of a word for each axis, of which ``vec`` at most once."""
        words = ["none" if w == "try" else w for w in policy.split("_")]
        unknown = [w for w in words if w not in ANNOTATIONS]
        if unknown:
            raise RuntimeError(f"Invalid policy: {policy}; its words are try, none, unroll, vec joined by '_'")
        rows = itertools.product(words, repeat=self.num_output)
        return [list(row) for row in rows if row.count("vec") <= 1]

    def __repr__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self)}"


class OtherOptionSpace(TransformSpace):
    """Values of an option."""

    def __init__(self, axes: Sequence[Any], policy: str, *, candidate: Sequence[Any]) -> None:
        super().__init__()
        self.entities = [OtherOptionEntity(value) for value in candidate]

    @staticmethod
    def get_num_output(axes: Sequence[Any], policy: str, **kwargs: Any) -> int:
        return 0

    def __repr__(self) -> str:
        return f"OtherOption({self.entities}) len={len(self)}"
