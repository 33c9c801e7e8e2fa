"""Spaces of configurations: what a template says can be tuned, and one choice of it.

A template gets one of three as its ``cfg``: a :class:`ConfigSpace` collects what is defined, a :class:`ConfigEntity`
has a value for each parameter, and a :class:`FallbackConfigEntity` stands in where nothing was tuned. The number of a
configuration is a mixed-radix number whose *first* defined parameter changes fastest.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir.expr import ExprLike
from ...ir.prim import IterVar
from ...support.errors import RelaxishError
from .columns import SpaceColumns
from .entity import ENTITIES, AnnotateEntity, Entity, InstantiationError, OtherOptionEntity, ReorderEntity, SplitEntity
from .subspace import (
    AnnotateSpace, Axis, OtherOptionSpace, ReorderSpace, SplitSpace, TransformSpace, VirtualAxis, get_factors,
    get_pow2s,
)  # fmt: skip
from ...ir.plain import plain_float

__all__ = [
    "AnnotateEntity", "AnnotateSpace", "Axis", "ConfigEntity", "ConfigSpace", "FallbackConfigEntity", "InstantiationError",
    "MissingKnobError", "OtherOptionEntity", "OtherOptionSpace", "ReorderEntity", "ReorderSpace", "SplitEntity", "SplitSpace",
    "TransformSpace", "VirtualAxis", "get_factors", "get_pow2s",
]  # fmt: skip


class MissingKnobError(RelaxishError, KeyError):
    """A configuration has no value for a parameter that a template asks for."""

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigSpace:
    """Space of a template's parameters. ``cfg.define_*`` in a template add parameters, ``cfg["name"]`` is the value to
    use now."""

    def __init__(self) -> None:
        self.space_map: dict[str, TransformSpace] = {}
        self._entity_map: dict[str, Entity] = {}
        self._collect = True
        self._constraints: list[Any] = []
        self._shared_filter: Callable[[ConfigEntity], bool] | None = None
        self._columns: SpaceColumns | None = None
        self._valid: np.ndarray[Any, Any] | None = None
        self.errors: list[str] = []
        self.code_hash: str | None = None
        self.flop: float = 0
        self.cost: Any = None
        self.is_fallback = False

    # ---- what templates call

    @staticmethod
    def axis(var: ExprLike) -> VirtualAxis:
        """An axis by its length, or that of an axis of a program."""
        return VirtualAxis(var)

    reduce_axis = axis

    def define_split(
        self, name: str, axis: IterVar | VirtualAxis, policy: str = "factors", **kwargs: Any
    ) -> list[Axis]:
        """Define the split of an axis into ``num_outputs`` axes.

        ``policy``: "factors" (divisors), "power2", "verbose" (both), or "candidate" with a list ``candidate``. Further:
        ``max_factor``, ``filter`` (a predicate on the entity), ``no_tail`` (sizes must divide; so with "factors").
        """
        return self._add_new_transform(SplitSpace, name, [axis], policy, **kwargs)

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> list[Axis]:
        """In which order axes are: "identity", "all", "interval_all", "candidate", "interleave" or "interleave_cuda"."""
        return self._add_new_transform(ReorderSpace, name, list(axes), policy, **kwargs)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> list[Axis]:
        """Define the annotations of axes: words such as "try_unroll_vec", "bind_gpu", "bind_gpu_virtual" or
        "locate_cache"."""
        return self._add_new_transform(AnnotateSpace, name, list(axes), policy, **kwargs)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> list[Axis]:
        """An option with the given values; ``cfg[name].val`` is the one to use."""
        return self._add_new_transform(OtherOptionSpace, name, [], None, candidate=candidate)

    def multi_filter(self, filter: Callable[[ConfigEntity], bool]) -> None:
        """Only configurations for which ``filter(entity)`` holds are part of the space; numbers keep their meaning."""
        if self._collect:
            self._shared_filter = filter
            self._valid = None

    def add_flop(self, flop: float) -> None:
        """Say how many operations the program does (otherwise they are counted)."""
        self.flop += plain_float(flop)

    def raise_error(self, msg: str) -> None:
        """Refuse this configuration, so that it is not measured."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Whether no instantiation has refused this configuration."""
        return not self.errors

    def _add_new_transform(
        self, space_class: Any, name: str, axes: list[Any], policy: str | None, **kwargs: Any
    ) -> list[Axis]:
        # A value that a fallback was given before the definition stays.
        if not self._collect or (self.is_fallback and name in self._entity_map):
            return [Axis(None, i) for i in range(space_class.get_num_output(axes, policy, **kwargs))]
        known = [x if isinstance(x, (VirtualAxis, Axis)) else self.axis(x) for x in axes]
        space = space_class(known, policy, **kwargs)
        if not len(space):
            raise RelaxishError(f"parameter {name!r} has no value to choose from; loosen its filter or max_factor")
        self.space_map[name] = space
        self._entity_map[name] = space[0]
        self._columns = self._valid = None
        return [Axis(space, i) for i in range(space.num_output)]

    # ---- arithmetic of numbers

    @property
    def dims(self) -> list[int]:
        """Number of values of each parameter, in the order of definition."""
        return [len(space) for space in self.space_map.values()]

    @property
    def range_length(self) -> int:
        """Number of indices, those of filtered configurations included."""
        return prod(self.dims)

    @property
    def columns(self) -> SpaceColumns:
        """The values of all configurations as columns of numbers."""
        if self._columns is None:
            self._columns = SpaceColumns(list(self.space_map.values()))
        return self._columns

    def point2knob(self, point: int) -> list[int]:
        """The number of each parameter's value in configuration ``point``."""
        knob = []
        for dim in self.dims:
            point, digit = divmod(point, dim)
            knob.append(digit)
        return knob

    def knob2point(self, knob: Sequence[int]) -> int:
        """The number of the configuration with these values."""
        point, weight = 0, 1
        for digit, dim in zip(knob, self.dims, strict=True):
            point += int(digit) * weight
            weight *= dim
        return point

    def _entity(self, index: int) -> ConfigEntity:
        entities: dict[str, Entity] = {}
        rest = index
        for name, space in self.space_map.items():
            rest, digit = divmod(rest, len(space))
            entities[name] = space[digit]
        return ConfigEntity(index, self.code_hash, entities, self._constraints)

    def get(self, index: int) -> ConfigEntity:
        """Configuration ``index``. Raises IndexError if there is none of that number."""
        index = int(index)
        if not 0 <= index < self.range_length:
            raise IndexError(f"Index out of range: size {self.range_length}, got index {index}")
        if not self.is_index_valid(index):
            raise IndexError(
                f"Index does not correspond to the multi-filter condition, got index {index}. "
                "Use is_index_valid to pre-check"
            )
        return self._entity(index)

    def is_index_valid(self, index: int) -> bool:
        """Whether there is a configuration of that number."""
        if not 0 <= index < self.range_length:
            return False
        if self._shared_filter is None:
            return True
        if self._valid is not None:
            return bool(self._valid[index])
        return bool(self._shared_filter(self._entity(int(index))))

    def valid_mask(self, points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Mask of the numbers, all in range, that are those of configurations."""
        if self._shared_filter is None:
            return np.ones(len(points), bool)
        return np.array([self.is_index_valid(int(p)) for p in points], bool)

    def _all_valid(self) -> np.ndarray[Any, Any]:
        if self._valid is None:
            keep = self._shared_filter
            assert keep is not None
            count = self.range_length
            self._valid = np.fromiter((bool(keep(self._entity(i))) for i in range(count)), bool, count)
        return self._valid

    def subrange_length(self, start: int, end: int) -> int:
        """Number of configurations with numbers from ``start`` to below ``end``."""
        if not 0 <= start <= end <= self.range_length:
            raise IndexError(f"[{start}, {end}) is no part of the {self.range_length} numbers of this space")
        return end - start if self._shared_filter is None else int(self._all_valid()[start:end].sum())

    def get_rand_index(
        self, start: int | None = None, end: int | None = None, to_exclude: Collection[int] | None = None
    ) -> int:
        """A random number of a configuration, from ``start`` to below ``end``, none of ``to_exclude``."""
        low, high = start or 0, self.range_length if end is None else end
        excluded = set(to_exclude or ())
        for _ in range(64):
            index = random.randrange(low, high)
            if index not in excluded and self.is_index_valid(index):
                return index
        left = [i for i in range(low, high) if i not in excluded and self.is_index_valid(i)]
        if not left:
            raise IndexError(f"no configuration is left in [{low}, {high})")
        return random.choice(left)

    def get_next_index(self, index: int, n: int = 1, start: int | None = None, end: int | None = None) -> int | None:
        """The ``n``-th next configuration after ``index`` (before it, if negative); None if that is out of range."""
        if n == 0:
            raise ValueError("the distance to the next configuration is not 0")
        low, high = start or 0, self.range_length if end is None else end
        step, left = (1, n) if n > 0 else (-1, -n)
        if self._shared_filter is None:
            found = index + n
            return found if low <= found < high else None
        while low <= index + step < high:
            index += step
            left -= self.is_index_valid(index)
            if not left:
                return index
        return None

    def sample_ints(self, m: int) -> np.ndarray[Any, Any]:
        """``m`` different numbers of configurations at random. Raises ValueError if there are fewer."""
        if m > self.count:
            raise ValueError(f"cannot choose {m} different ones of {self.count} configurations")
        if self._shared_filter is not None and self._valid is not None:
            return np.array(random.sample(list(np.flatnonzero(self._valid)), m), dtype=np.int64)
        found: set[int] = set()
        if 2 * m >= self.range_length:
            everything = [i for i in range(self.range_length) if self.is_index_valid(i)]
            return np.array(random.sample(everything, m), dtype=np.int64)
        while len(found) < m:
            index = random.randrange(self.range_length)
            if index not in found and self.is_index_valid(index):
                found.add(index)
        return np.array(list(found), dtype=np.int64 if self.range_length < 1 << 62 else object)

    def random_walk(self, point: int) -> int:
        """A neighbour: random parameters get random values until the configuration is another, valid one."""
        if self.count <= 1:
            return point
        old = self.point2knob(point)
        knob = list(old)
        dims = self.dims
        while True:
            which = int(np.random.randint(len(dims)))
            knob[which] = int(np.random.randint(dims[which]))
            found = self.knob2point(knob)
            if knob != old and self.is_index_valid(found):
                return found

    @property
    def count(self) -> int:
        """Number of configurations; equals the length, which Python bounds, for spaces of less than ``sys.maxsize``."""
        return self.range_length if self._shared_filter is None else self.subrange_length(0, self.range_length)

    def __len__(self) -> int:
        return min(self.count, sys.maxsize)

    def __bool__(self) -> bool:
        return True  # an empty space, or one entity, is still there

    def __iter__(self) -> Iterator[str]:
        return iter(self._entity_map)

    def __contains__(self, name: object) -> bool:
        return name in self._entity_map

    def __getitem__(self, name: str) -> Entity:
        found = self._entity_map.get(name)
        if found is None:
            raise MissingKnobError(
                f"the configuration has no parameter {name!r} (it has {', '.join(self._entity_map) or 'none'}): define it "
                "in the template before it is used; a record of an older template must be tuned again"
            )
        return found

    def __repr__(self) -> str:
        rows = "".join(f"  {i:2d} {name}: {space}\n" for i, (name, space) in enumerate(self.space_map.items()))
        return f"ConfigSpace (len={self.count}, range_length={self.range_length}, space_map=\n{rows})"


def _shown(entities: Mapping[str, Entity]) -> str:
    return str([(name, entity) for name, entity in entities.items()])


class ConfigEntity(ConfigSpace):
    """One configuration: a value for each parameter."""

    def __init__(
        self, index: int, code_hash: str | None, entity_map: Mapping[str, Entity], constraints: Sequence[Any] = ()
    ) -> None:
        super().__init__()
        self.index = int(index)
        self._collect = False
        self._entity_map = dict(entity_map)
        self._constraints = list(constraints)
        self.code_hash = code_hash

    def get_flatten_feature(self) -> np.ndarray[Any, Any]:
        """All values in one row of float32: sizes, orders, one-hot annotations, options."""
        return np.array([x for e in self._entity_map.values() for x in e.features()], dtype=np.float32)

    def get_other_option(self) -> dict[str, Any]:
        """The values of the options by name."""
        return {name: e.val for name, e in self._entity_map.items() if isinstance(e, OtherOptionEntity)}

    def to_json_dict(self) -> dict[str, Any]:
        """As it stands in a log."""
        entities = [[name, e.kind, e.value] for name, e in self._entity_map.items()]
        return {"index": self.index, "code_hash": self.code_hash, "entity": entities}

    @staticmethod
    def from_json_dict(json_dict: Mapping[str, Any]) -> ConfigEntity:
        """Space from the result of :meth:`to_json_dict`. Raises RuntimeError for an unknown kind of parameter."""
        entities: dict[str, Entity] = {}
        for name, kind, value in json_dict["entity"]:
            if kind not in ENTITIES:
                raise RuntimeError(f"Invalid config knob type: {kind}")
            made: Any = ENTITIES[kind]
            entities[str(name)] = made(value)
        return ConfigEntity(json_dict["index"], json_dict.get("code_hash"), entities)

    def __len__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigEntity):
            return NotImplemented
        mine, theirs = self._entity_map, other._entity_map
        return self.index == other.index and list(mine.items()) == list(theirs.items())

    def __hash__(self) -> int:
        return hash((self.index, tuple(self._entity_map.items())))

    def __repr__(self) -> str:
        return f"{_shown(self._entity_map)},{self.code_hash},{self.index}"


class FallbackConfigEntity(ConfigSpace):
    """Stands in where nothing was tuned: the first value of each parameter, unless the template sets another."""

    def __init__(self) -> None:
        super().__init__()
        self.is_fallback = True

    def __setitem__(self, name: str, entity: Entity) -> None:
        self._entity_map[name] = entity

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Sizes that divide the axis, from the inside out the greatest that their bounds allow (-1: no bound).

        >>> cfg = FallbackConfigEntity()
        >>> _ = cfg.define_split("tile", cfg.axis(128), num_outputs=3)
        >>> cfg.fallback_split("tile", [-1, 8, 4])
        >>> cfg["tile"]
        [4, 8, 4]
        """
        space = self.space_map.get(name)
        if not isinstance(space, SplitSpace):
            raise MissingKnobError(f"{name!r} is no split of this configuration; define_split comes first")
        if len(constraints) != space.num_output:
            raise ValueError(f"{name!r} has {space.num_output} sizes, {len(constraints)} bounds are given")
        size, left = [1] * space.num_output, space.product
        for i in reversed(range(space.num_output)):
            fits = [f for f in get_factors(left) if constraints[i] == -1 or f <= constraints[i]]
            if not fits:
                raise RuntimeError(f"Cannot find feasible fallback split entity for node: {name}")
            size[i] = fits[-1]
            left //= size[i]
        self._entity_map[name] = SplitEntity(size)

    def fallback_with_reference_log(self, ref_log: Sequence[tuple[Any, Any]]) -> None:
        """Follow the record whose splits share most factors with this space's; without records nothing changes."""
        splits = {n: s for n, s in self.space_map.items() if isinstance(s, SplitSpace)}
        wanted = {name: set(get_factors(space.product)) for name, space in splits.items()}
        best, best_score = None, 0.0
        for measured, _ in ref_log:
            score = 0.0
            for name, factors in wanted.items():
                if name in measured.config:
                    theirs = set(get_factors(abs(prod(measured.config[name].size))))
                    score += len(factors & theirs) / len(factors)
            if score > best_score:
                best, best_score = measured.config, score
        if best is None:
            return
        for name in splits:
            self.fallback_split(name, [-1, *best[name].size[1:]])
        for name in self.space_map:
            if name not in splits:
                self._entity_map[name] = best[name]

    def __repr__(self) -> str:
        return f"{_shown(self._entity_map)},{self.code_hash}"
