"""Calls of a function of symbolic sizes with sizes that it was called with before.

What the instructions of such a function do besides calling kernels (checking and making shapes, finding memory) depends on
nothing but the sizes of the arguments. Once a function was run with some sizes, its kernels are called from a list: their
arguments lie in slots, of which only the addresses of the function's arguments and results change from call to call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..arrays.container import ShapeTuple
from ..device import _CPU0
from ..kernels.kernel import NativeKernel, scalar_bits
from ..arrays.memory import ALIGNMENT, Allocator, Storage
from ..arrays.ndarray import NDArray

__all__ = ["KnownSizes", "Step"]

#: One instruction: where its result goes, the function, what takes its arguments out of the registers, its name.
Step = tuple[int, Callable[..., Any], Callable[[list[Any]], Sequence[Any]], str]
# Instructions whose results depend on the sizes, types and numbers that they are given alone.
_OF_SIZES = frozenset(
    "vm.builtin." + name
    for name in (
        "alloc_shape_heap", "alloc_storage", "alloc_tensor", "check_tensor_info", "check_shape_info", "check_tuple_info",
        "check_prim_value_info", "match_shape", "match_prim_value", "make_shape", "make_prim_value", "shape_of",
        "reshape", "view", "copy", "ensure_zero_offset", "null_value", "make_tuple", "tuple_getitem",
    )
)  # fmt: skip
# An array of sizes is the same for the same sizes: kernels read the one that was made.
_TENSOR_OF_SIZES = "relax.run.shape_to_tensor"
_VIEWS = frozenset({"vm.builtin.reshape", "vm.builtin.view"})
DYNAMIC_CALL = "vm.builtin.call_tir_dyn"
# Not floats: 0.0 and -0.0 are equal.
_NUMBERS = (int, bool)
# Sets of sizes that are remembered: with lists of calls, and as met once.
_LISTS, _MET = 16, 256


class _NotOfSizes(Exception):
    """A call does something that does not follow from sizes."""


@dataclass
class _Origin:
    """Where the value of a slot comes from: memory of ``kind`` "argument", "storage", "constant" (``index`` is its
    address) or "heap", or a "number", which ``index`` is."""

    kind: str
    index: int
    offset: int


@dataclass
class _Calls:
    """The kernels of one set of sizes, in order, and the slots that change from call to call."""

    kernels: list[tuple[Callable[[int], int], int, NativeKernel]]
    slots: Any
    arguments: list[tuple[int, list[tuple[int, int]]]]
    results: list[tuple[int, list[tuple[int, int]]]]
    made: Callable[[Sequence[Any], Sequence[Storage]], object]
    kept: list[NDArray]


@dataclass
class _Recording:
    """What one run of a function shows. Arrays and blocks of memory are known by their identities: one that takes the
    place of another that is gone was made by an instruction that is noted, too."""

    sizes: list[int] = field(default_factory=list)  # of the blocks of memory, in bytes
    blocks: dict[int, int] = field(default_factory=dict)  # their positions by identity
    origins: dict[int, _Origin] = field(default_factory=dict)
    calls: list[tuple[NativeKernel, list[_Origin]]] = field(default_factory=list)
    kept: list[NDArray] = field(default_factory=list)  # arrays that the kernels read and no argument holds

    def origin(self, array: NDArray) -> _Origin:
        """Origin of an array's memory."""
        found = self.origins.get(id(array))
        if found is None:
            raise _NotOfSizes
        return found

    def places(self, escaping: Collection[int]) -> tuple[dict[int, int], int]:
        """Offsets of the blocks that are used between kernels alone, and how many bytes they take together.

        Blocks that are never in use at one time share memory; the large ones are placed first.
        """
        spans: dict[int, tuple[int, int]] = {}
        for at, (_, values) in enumerate(self.calls):
            for value in values:
                if value.kind == "storage" and value.index not in escaping:
                    spans[value.index] = spans.get(value.index, (at, at))[0], at
        placed: list[tuple[int, int, int, int]] = []  # begin, end, first use, last use
        found: dict[int, int] = {}
        for index in sorted(spans, key=lambda k: -self.sizes[k]):
            first, last = spans[index]
            nbytes, begin = -(-self.sizes[index] // ALIGNMENT) * ALIGNMENT, 0
            for low, high, since, until in sorted(placed):
                if since <= last and first <= until and low < begin + nbytes and begin < high:
                    begin = high
            found[index] = begin
            placed.append((begin, begin + nbytes, first, last))
        return found, max([end for _, end, _, _ in placed], default=0)


class KnownSizes:
    """Runs a function without branches and calls of other functions, whose kernels are machine code of the host.

    ``template`` are its registers before a call. Calls that are not like one before, or that meet another one in this
    function at the same time, are left to ``otherwise``.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        returned: int,
        template: Sequence[Any],
        kernels: Callable[[str], NativeKernel | None],
        allocator: Allocator,
        otherwise: Callable[[Sequence[Any]], object],
    ) -> None:
        self._steps, self._returned, self._template = steps, returned, template
        self._kernels, self._allocator, self._otherwise = kernels, allocator, otherwise
        self._native: dict[str, NativeKernel] = {}
        self._met: dict[Any, None] = {}
        self._lists: dict[Any, _Calls] = {}
        self._lock = threading.Lock()
        # Memory between the kernels, of all sets of sizes together.
        self._arena: Storage | None = None
        self._off = False

    @staticmethod
    def key(args: Sequence[Any]) -> tuple[Any, ...] | None:
        """Hashable values that determine the work of a call; None where they cannot be told."""
        found: list[Any] = []
        for arg in args:
            kind = arg.__class__
            if kind is NDArray:
                if arg.device is not _CPU0:
                    return None
                found += (arg.shape, arg.dtype)
            elif kind in _NUMBERS or kind is ShapeTuple:
                found += (kind, arg)
            else:
                return None
        return tuple(found)

    def __call__(self, args: Sequence[Any]) -> object:
        key = None if self._off else self.key(args)
        if key is None or not self._lock.acquire(blocking=False):
            return self._otherwise(args)
        try:
            calls = self._lists.get(key)
            if calls is not None:
                return self._replayed(calls, args)
            arrays = [id(arg) for arg in args if arg.__class__ is NDArray]
            if key in self._met and len(set(arrays)) == len(arrays):
                return self._recorded(key, args)
        finally:
            self._lock.release()
        result = self._otherwise(args)
        # Only now: a call that fails, for the number of its arguments say, is not one to be done again.
        if len(self._met) >= _MET:
            self._met.clear()
        self._met[key] = None
        return result

    def _replayed(self, calls: _Calls, args: Sequence[Any]) -> object:
        slots = calls.slots
        for index, places in calls.arguments:
            base = args[index].ptr
            for slot, offset in places:
                slots[slot] = base + offset
        fresh = []
        for nbytes, places in calls.results:
            storage = self._allocator.allocate(nbytes)
            fresh.append(storage)
            for slot, offset in places:
                slots[slot] = storage.ptr + offset
        for entry, address, kernel in calls.kernels:
            code = entry(address)
            if code:
                raise kernel.failed(code)
        return calls.made(args, fresh)

    # ---- finding out

    def _recorded(self, key: Any, args: Sequence[Any]) -> object:
        """Run the instructions and keep the list of kernels."""
        seen, regs = _Recording(), list(self._template)
        regs[: len(args)] = args
        seen.origins = {id(arg): _Origin("argument", k, 0) for k, arg in enumerate(args)}
        for value in self._template:
            if value.__class__ is NDArray:
                seen.origins[id(value)] = _Origin("constant", value.ptr, 0)
        for dst, function, getter, name in self._steps:
            given = getter(regs)
            made = function(*given)
            self._try(lambda: self._look(seen, name, given, made))
            regs[dst] = made
        result = regs[self._returned]
        self._try(lambda: self._keep(key, seen, args, result))
        return result

    def _try(self, look: Callable[[], None]) -> None:
        """Note something, or that this function is not one whose work follows from sizes."""
        if self._off:
            return
        try:
            look()
        except _NotOfSizes:
            self._off = True
            self._lists.clear()

    def _look(self, seen: _Recording, name: str, given: Sequence[Any], made: Any) -> None:
        """Note what an instruction did."""
        if name == DYNAMIC_CALL:
            name, given = given[0].spec.name, [*given[1:-1], *given[-1]]
        if name == _TENSOR_OF_SIZES and made.__class__ is NDArray:
            seen.origins[id(made)] = _Origin("constant", made.ptr, 0)
            seen.kept.append(made)
        elif name not in _OF_SIZES:
            self._call(seen, name, given)
        elif name == "vm.builtin.alloc_storage":
            seen.blocks[id(made)] = len(seen.sizes)
            seen.sizes.append(made.nbytes)
        elif name == "vm.builtin.alloc_shape_heap":
            seen.origins[id(made)] = _Origin("heap", 0, 0)
        elif name == "vm.builtin.alloc_tensor":
            seen.origins[id(made)] = _Origin("storage", seen.blocks[id(given[0])], made.ptr - given[0].ptr)
        elif name in _VIEWS and made is not given[0]:
            source = seen.origin(given[0])
            seen.origins[id(made)] = _Origin(source.kind, source.index, source.offset + made.ptr - given[0].ptr)

    def _call(self, seen: _Recording, name: str, given: Sequence[Any]) -> None:
        kernel = self._native.get(name) or self._kernels(name)
        if kernel is None or kernel.spec.result or kernel.spec.written is None:
            raise _NotOfSizes
        self._native[name] = kernel
        arrays = [arg for arg in given if arg.__class__ is NDArray]
        origins = [seen.origin(array) for array in arrays]
        if any(origin.kind == "heap" for origin in origins):
            if len(arrays) > 1:
                raise _NotOfSizes
            return  # it computes sizes of sizes
        rest = iter(origins)
        values = [
            next(rest) if arg.__class__ is NDArray else _Origin("number", scalar_bits(arg, param.dtype), 0)
            for arg, param in zip(given, kernel.spec.params, strict=True)
        ]
        if any(values[index].kind != "storage" for index in kernel.spec.written):
            raise _NotOfSizes
        values += [_Origin("number", given[s.param_index].shape[s.dim_index], 0) for s in kernel.spec.shape_vars]
        seen.calls.append((kernel, values))

    def _keep(self, key: Any, seen: _Recording, args: Sequence[Any], result: Any) -> None:
        escaping: dict[int, int] = {}
        made = _maker(seen, args, result, escaping)
        places, total = seen.places(escaping)
        arena = self._room(total)
        values = [value for _, all_values in seen.calls for value in all_values]
        slots = (ctypes.c_int64 * max(1, len(values)))()
        arguments: dict[int, list[tuple[int, int]]] = {}
        results: list[list[tuple[int, int]]] = [[] for _ in escaping]
        for slot, value in enumerate(values):
            if value.kind == "argument":
                arguments.setdefault(value.index, []).append((slot, value.offset))
            elif value.kind != "storage":
                slots[slot] = value.index + value.offset
            elif value.index in escaping:
                results[escaping[value.index]].append((slot, value.offset))
            else:
                slots[slot] = arena + places[value.index] + value.offset
        kernels, address = [], ctypes.addressof(slots)
        for kernel, own in seen.calls:
            kernels.append((kernel.entry, address, kernel))
            address += 8 * len(own)
        fresh = [(seen.sizes[index], results[k]) for index, k in escaping.items()]
        if len(self._lists) >= _LISTS:
            del self._lists[next(iter(self._lists))]
        self._lists[key] = _Calls(kernels, slots, list(arguments.items()), fresh, made, seen.kept)

    def _room(self, nbytes: int) -> int:
        """The address of so much memory; a larger block makes all lists that know of the old one void."""
        if self._arena is None or nbytes > self._arena.nbytes:
            self._lists.clear()
            self._arena = None
            self._arena = self._allocator.allocate(nbytes)
        return self._arena.ptr


def _maker(
    seen: _Recording, given: Sequence[Any], value: Any, escaping: dict[int, int]
) -> Callable[[Sequence[Any], Sequence[Storage]], object]:
    """What makes a result like ``value`` from the arguments and new memory; ``escaping`` is told of blocks in it."""
    kind = value.__class__
    if kind is tuple:
        parts = [_maker(seen, given, part, escaping) for part in value]
        return lambda args, fresh: tuple([part(args, fresh) for part in parts])
    if kind in _NUMBERS or kind is ShapeTuple or value is None:
        return lambda args, fresh: value
    if kind is not NDArray:
        raise _NotOfSizes
    origin, shape, dtype = seen.origin(value), value.shape, value.dtype
    index, offset = origin.index, origin.offset
    if origin.kind == "storage":
        place = escaping.setdefault(index, len(escaping))

        def new(args: Sequence[Any], fresh: Sequence[Storage]) -> NDArray:
            storage = fresh[place]
            return NDArray(storage.ptr + offset, shape, dtype, _CPU0, storage)

        return new
    if origin.kind == "argument" and value is given[index]:
        return lambda args, fresh: args[index]
    raise _NotOfSizes
