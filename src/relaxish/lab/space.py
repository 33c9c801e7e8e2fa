"""Recorded spaces: every program of a sketch with the times it took once, for searches that need no machine."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..ir import IRModule, load_json, save_json
from ..ir.plain import plain_float, plain_int, plain_ints
from ..meta_schedule.measure.status import MeasureStatus
from ..support.errors import MalformedDataError, RelaxishError
from ..support.untrusted import malformed
from ..target import Target
from ..tir.schedule import Instruction, Trace
from ..tir.schedule.sampling import factor_tuples

__all__ = ["Dimension", "RecordedSpace", "UnsupportedSpaceError", "bundled_spaces", "load_space"]

Array = np.ndarray[Any, Any]
_FORMAT = 1
_STATUSES = list(MeasureStatus)
_DATA = Path(__file__).parent / "data"


class UnsupportedSpaceError(RelaxishError):
    """A sketch whose programs cannot be numbered: it samples something else than tiles and categories."""


@dataclass(frozen=True)
class Dimension:
    """One sampling instruction: its ``values`` are factorisations of a loop (``tile``) or choices (``category``).

    ``decision(i)`` is what a trace holds for the ``i``-th value. ``shares`` say how likely each choice is.
    """

    name: str
    kind: Literal["tile", "category"]
    values: tuple[tuple[int, ...], ...]
    shares: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def decision(self, index: int) -> list[int] | int:
        """The decision of a trace that stands for a value."""
        return list(self.values[index]) if self.kind == "tile" else index

    def index(self, decision: Any) -> int | None:
        """The number of a decision's value; None for one that is not in the space."""
        if self.kind == "category":
            found = plain_int(decision)
            return found if 0 <= found < len(self.values) else None
        return self._numbers.get(tuple(plain_ints(decision)))

    @functools.cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        return {value: i for i, value in enumerate(self.values)}

    @functools.cached_property
    def features(self) -> Array:
        """``[values, numbers]``: sizes as logarithms, choices as they are."""
        table = np.array(self.values, dtype=np.float64)
        return np.log2(table) if self.kind == "tile" else table


def _sampled(trace: Trace) -> list[Instruction]:
    return [inst for inst in trace.insts if inst.kind.name.startswith("Sample")]


def dimensions_of(trace: Trace) -> list[Dimension]:
    """The dimensions of a sketch, in the order of its sampling instructions. Raises UnsupportedSpaceError."""
    found: list[Dimension] = []
    for inst in _sampled(trace):
        named = dict(zip(inst.kind.attrs, inst.attrs, strict=False))
        match inst.kind.name:
            case "SamplePerfectTile":
                extent = math.prod(plain_ints(trace.decisions[inst]))
                sizes = factor_tuples(extent, plain_int(named["n"]), plain_int(named["max_innermost_factor"]))
                found.append(Dimension(f"tile_{len(found)}", "tile", sizes))
            case "SampleCategorical":
                values = tuple((x,) for x in plain_ints(named["candidates"]))
                shares = tuple(plain_float(p) for p in named["probs"])
                found.append(Dimension(f"option_{len(found)}", "category", values, shares))
            case other:
                raise UnsupportedSpaceError(
                    f"the sketch samples with {other}; spaces of tiles (sample_perfect_tile) and choices "
                    "(sample_categorical) can be recorded: leave the rule that samples it out of the space"
                )
    return found


class RecordedSpace:
    """The programs of one sketch of ``mod``, numbered, with what some or all of them took.

    A program's number is a mixed-radix number of its decisions whose first one changes fastest. ``points`` are the
    recorded numbers, ascending; ``seconds[i]`` the times of ``points[i]``, one for each repeat (NaN where it failed), and
    ``statuses[i]`` what became of it. ``about`` says when and on what machine that was.
    """

    def __init__(
        self,
        name: str,
        mod: IRModule,
        trace: Trace,
        target: Target,
        points: Array,
        seconds: Array,
        statuses: Sequence[MeasureStatus],
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.mod, self.trace, self.target = name, mod, trace, target
        self.dims = dimensions_of(trace)
        self.points = np.asarray(points, dtype=np.int64)
        self.seconds = np.asarray(seconds, dtype=np.float32)
        self.statuses = list(statuses)
        self.about = dict(about or {})
        if not len(self.points) == len(self.seconds) == len(self.statuses):
            raise MalformedDataError(f"{name}: points, seconds and statuses differ in number")
        if len(self.points) and (
            self.points[0] < 0 or self.points[-1] >= self.size or (np.diff(self.points) <= 0).any()
        ):
            raise MalformedDataError(f"{name}: points are ascending numbers below {self.size}")
        self._rows = {int(p): i for i, p in enumerate(self.points)}

    # ---- numbers and decisions

    @property
    def size(self) -> int:
        """Number of programs of the sketch, recorded or not."""
        return math.prod(len(d) for d in self.dims)

    @property
    def complete(self) -> bool:
        """Whether all of them are recorded."""
        return len(self.points) == self.size

    def __len__(self) -> int:
        return len(self.points)

    def __contains__(self, point: object) -> bool:
        return point in self._rows

    def digits(self, point: int) -> list[int]:
        """The number of each dimension's value."""
        out = []
        for dim in self.dims:
            point, digit = divmod(point, len(dim))
            out.append(digit)
        return out

    def point(self, digits: Sequence[int]) -> int:
        """The inverse of :meth:`digits`."""
        point, weight = 0, 1
        for digit, dim in zip(digits, self.dims, strict=True):
            point += int(digit) * weight
            weight *= len(dim)
        return point

    def trace_of(self, point: int) -> Trace:
        """The trace of a program."""
        decisions = dict(self.trace.decisions)
        for inst, dim, digit in zip(_sampled(self.trace), self.dims, self.digits(point), strict=True):
            decisions[inst] = dim.decision(digit)
        return Trace(self.trace.insts, decisions)

    def decided(self, trace: Trace, rand: random.Random) -> Trace | None:
        """A trace of this sketch with random values for what it leaves open, each as likely as it says; None for a trace
        of something else."""
        own = _sampled(trace)
        if len(own) != len(self.dims):
            return None
        decisions = dict(trace.decisions)
        for inst, dim in zip(own, self.dims, strict=True):
            if decisions.get(inst) is None:
                weights = None if dim.kind == "tile" else dim.shares
                decisions[inst] = dim.decision(rand.choices(range(len(dim)), weights)[0])
        return Trace(trace.insts, decisions)

    def point_of(self, trace: Trace) -> int | None:
        """The number of a trace of this sketch, postprocs or not; None for one that is none of its programs."""
        own = _sampled(trace)[: len(self.dims)]
        if len(own) != len(self.dims) or any(inst not in trace.decisions for inst in own):
            return None
        found = [dim.index(trace.decisions[inst]) for dim, inst in zip(self.dims, own, strict=True)]
        return None if any(x is None for x in found) else self.point([x for x in found if x is not None])

    def features(self, points: Sequence[int] | Array) -> Array:
        """``[len(points), numbers]`` float64: sizes of tiles as logarithms, choices as they are."""
        digits = np.array([self.digits(int(p)) for p in points], dtype=np.int64).reshape(len(points), len(self.dims))
        return np.concatenate([dim.features[digits[:, j]] for j, dim in enumerate(self.dims)], axis=1)

    # ---- what was measured

    @functools.cached_property
    def times(self) -> Array:
        """Seconds of each recorded point: of its repeats the lower quartile, the time of a run that nothing disturbed
        without being the luckiest one; infinite where it failed."""
        found = np.full(len(self.seconds), np.inf)
        ran = np.isfinite(self.seconds).any(axis=1)
        found[ran] = np.nanquantile(self.seconds[ran].astype(np.float64), 0.25, axis=1, method="lower")
        return found

    @functools.cached_property
    def best(self) -> float:
        """The least time of all. Raises RelaxishError where nothing ran."""
        found = float(self.times.min(initial=math.inf))
        if not math.isfinite(found):
            raise RelaxishError(f"{self.name}: no program of the space ran")
        return found

    def row(self, point: int) -> int:
        """The place of a point. Raises KeyError for one that was not recorded."""
        return self._rows[point]

    def time(self, point: int) -> float:
        """The time of a recorded point; infinite if it failed."""
        return float(self.times[self._rows[point]])

    # ---- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to one compressed file (``.npz``, no pickles)."""
        text = json.dumps(
            {
                "format": _FORMAT,
                "name": self.name,
                "mod": save_json(self.mod),
                "trace": self.trace.as_json(),
                "target": self.target.export(),
                "about": self.about,
            }
        )
        with open(path, "wb") as file:
            np.savez_compressed(
                file,
                text=np.frombuffer(text.encode(), dtype=np.uint8),
                steps=np.diff(self.points, prepend=0).astype(np.uint32),
                seconds=self.seconds,
                statuses=np.array([_STATUSES.index(s) for s in self.statuses], dtype=np.uint8),
            )

    @staticmethod
    def load(path: str | PathLike[str]) -> RecordedSpace:
        """Read what :meth:`save` wrote. Raises MalformedDataError for anything else, OSError where there is no file."""
        with malformed(f"the recorded space {Path(path).name}"), np.load(path, allow_pickle=False) as arrays:
            data = json.loads(arrays["text"].tobytes().decode())
            if data.get("format") != _FORMAT:
                raise MalformedDataError(
                    f"{path}: format {data.get('format')!r} is not {_FORMAT}; record the space again"
                )
            mod = load_json(data["mod"])
            if not isinstance(mod, IRModule):
                raise MalformedDataError(f"{path}: the program is no module")
            return RecordedSpace(
                str(data["name"]),
                mod,
                Trace.from_json(data["trace"]),
                Target(data["target"]),
                np.cumsum(arrays["steps"].astype(np.int64)),
                arrays["seconds"],
                [_STATUSES[int(s)] for s in arrays["statuses"]],
                dict(data["about"]),
            )


def bundled_spaces() -> list[str]:
    """The names of the spaces that come with the package."""
    return sorted(path.stem for path in _DATA.glob("*.npz"))


def load_space(name: str | PathLike[str]) -> RecordedSpace:
    """A space that comes with the package, by its name, or one in a file. Raises RelaxishError where there is none."""
    if isinstance(name, str) and name in bundled_spaces():
        return RecordedSpace.load(_DATA / f"{name}.npz")
    if not Path(name).is_file():
        known = ", ".join(bundled_spaces())
        raise RelaxishError(f"there is no recorded space {str(name)!r}: give a file, or one of {known}")
    return RecordedSpace.load(name)
