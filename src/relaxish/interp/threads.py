"""Threads of a block that run in turns: each is a generator that yields where it must wait for others.

A bare ``yield`` is a barrier of the block. A request ``(kind, site, arguments)`` is answered once all who take part
have made it: the lanes of a warp for shuffles and matrix instructions, groups of threads for all-reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from .hopper import GROUPS, WAITS, BlockWaits
from .mfma import WAVE, matrix_core
from .mma import WARP_INSTRUCTIONS

__all__ = ["COLLECTIVE", "run_threads"]

WARP = 32
Thread = Generator[Any, Any, None]


def _shuffled(lane: int, name: str, args: tuple[Any, ...]) -> int:
    """The lane whose value a shuffle returns; a lane outside of its group of ``width`` gets its own."""
    width = int(args[3])
    first = lane - lane % width
    if name == "tvm_warp_shuffle":
        return first + int(args[2]) % width
    step = int(args[2])
    if name == "tvm_warp_shuffle_xor":
        return lane ^ step if (lane ^ step) - first in range(width) else lane
    source = lane - step if name == "tvm_warp_shuffle_up" else lane + step
    return source if first <= source < first + width else lane


def _shuffle(name: str) -> Callable[[dict[int, Any]], dict[int, Any]]:
    def answer(requests: dict[int, Any]) -> dict[int, Any]:
        out = {}
        for lane, args in requests.items():
            source = _shuffled(lane, name, args)
            out[lane] = requests[source][1] if source in requests else args[1]
        return out

    return answer


def _active(requests: dict[int, Any]) -> dict[int, Any]:
    mask = sum(1 << lane for lane in requests)
    return dict.fromkeys(requests, mask)


_WARP_ANSWERS: dict[str, Callable[[dict[int, Any]], dict[int, Any]]] = {
    f"tvm_warp_shuffle{kind}": _shuffle(f"tvm_warp_shuffle{kind}") for kind in ("", "_up", "_down", "_xor")
}
_WARP_ANSWERS["tvm_warp_activemask"] = _active
_WARP_ANSWERS.update(WARP_INSTRUCTIONS)
_WARP_ANSWERS["mfma"] = matrix_core
COLLECTIVE = frozenset(_WARP_ANSWERS) | frozenset(GROUPS) | WAITS
"""Intrinsics that the lanes of a warp or a warpgroup execute together, or that make a thread wait."""


class _Block:
    """The threads of one block and what each of them waits for."""

    def __init__(self, threads: list[Thread]) -> None:
        self.threads = threads
        self.waiting: dict[int, Any] = {}
        self.alive = set(range(len(threads)))
        self.waits = BlockWaits()

    def step(self, index: int, answer: object | None = None) -> None:
        """Let one thread run to its next request."""
        try:
            self.waiting[index] = self.threads[index].send(answer)
        except StopIteration:
            self.alive.discard(index)
            self.waiting.pop(index, None)

    def run(self) -> None:
        """Run all threads to their ends. Raises RuntimeError if they wait for each other."""
        for index in range(len(self.threads)):
            self.step(index)
        while self.alive:
            if not (self._warps() or self._groups() or self._reductions() or self._barrier()):
                raise RuntimeError("threads of a block wait for each other: a barrier stands in a divergent branch")

    def _answer(self, answers: dict[int, Any]) -> bool:
        for index in answers:
            del self.waiting[index]
        for index, answer in sorted(answers.items()):
            self.step(index, answer)
        return bool(answers)

    def _warps(self) -> bool:
        answers: dict[int, Any] = {}
        groups: dict[tuple[int, Any, str], dict[int, Any]] = {}
        for index, request in self.waiting.items():
            if request is not None and request[0] in _WARP_ANSWERS:
                size = WAVE if request[0] == "mfma" else WARP
                key = (index // size, request[1], request[0])
                groups.setdefault(key, {})[index % size] = request[2]
        for (warp, _, name), requests in groups.items():
            first = warp * (WAVE if name == "mfma" else WARP)
            for lane, answer in _WARP_ANSWERS[name](requests).items():
                answers[first + lane] = answer
        return self._answer(answers)

    def _groups(self) -> bool:
        """Warpgroups, and threads that wait for barriers in memory."""
        answers = self.waits.answers(self.waiting)
        groups: dict[tuple[int, Any, str], dict[int, Any]] = {}
        for index, request in self.waiting.items():
            if request is not None and request[0] in GROUPS:
                size = GROUPS[request[0]][0]
                groups.setdefault((index // size, request[1], request[0]), {})[index % size] = request[2]
        for (group, _, name), requests in groups.items():
            size, whole, answer = GROUPS[name]
            if len(requests) == min(size, len(self.threads) - group * size) or not whole:
                answers.update({group * size + lane: made for lane, made in answer(requests, group).items()})
        return self._answer(answers)

    def _reductions(self) -> bool:
        groups: dict[Any, list[int]] = {}
        for index, request in self.waiting.items():
            if request is not None and request[0] == "allreduce":
                groups.setdefault((request[1], request[2][0]), []).append(index)
        if not groups or any(r is None for i, r in self.waiting.items()):
            # Threads at a barrier may still be about to join.
            return False
        answers: dict[int, Any] = {}
        for members in groups.values():
            members.sort()
            _, combine, _ = self.waiting[members[0]][2]
            total = self.waiting[members[0]][2][2]
            for other in members[1:]:
                total = combine(total, self.waiting[other][2][2])
            answers.update(dict.fromkeys(members, total))
        return self._answer(answers)

    def _barrier(self) -> bool:
        if any(self.waiting[i] is not None for i in self.alive):
            return False
        return self._answer(dict.fromkeys(self.alive))


def run_threads(threads: list[Thread]) -> None:
    """Run the threads of a block, given in the order of their linear index (x fastest)."""
    _Block(threads).run()
