"""Memory that tensors share one after the other: requests, and the pool of what is free again.

>>> pool = TokenPool(fresh_analyzer())
>>> first, second = Token(IntImm("int64", 64), "float32", "global"), Token(IntImm("int64", 48), "float32", "global")
>>> first.uses = second.uses = 1
>>> storage = pool.serve(first)
>>> pool.release(storage)
>>> pool.serve(second) is storage
True
"""

from __future__ import annotations

import bisect
from itertools import count
from typing import Any

from ..arith.analyzer import Analyzer
from ..ir.expr import PrimExpr
from ..ir.prim import IntImm
from ..relax.expr import BindingBlock
from ..relax.scalars import const_int, fresh_analyzer

__all__ = ["Token", "TokenPool", "fresh_analyzer"]

#: Memory may be up to this many times larger or smaller than what is asked for.
_MATCH_RANGE = 16
#: Where memory of symbolic size is kept among the sizes.
_SYMBOLIC = -1


class Token:
    """A request for memory; the first request that a piece of memory serves stands for the memory itself."""

    __slots__ = ("block", "dtype", "planned", "scope", "size", "storage", "uses", "uses_left", "var")

    def __init__(self, size: PrimExpr, dtype: str, scope: str, block: BindingBlock | None = None) -> None:
        self.size = size
        self.dtype = dtype
        self.scope = scope
        #: The block that allocates it: memory is shared within a block only.
        self.block = block
        self.planned = True
        self.uses = 0
        self.uses_left = 0
        #: The token whose memory this one got.
        self.storage: Token | None = None
        #: The variable that holds the memory, once it is written.
        self.var: Any = None

    @property
    def key(self) -> int:
        """The size in bytes, or -1 if it is symbolic."""
        known = const_int(self.size)
        return _SYMBOLIC if known is None else known


class TokenPool:
    """Free memory by scope and dtype, ordered by size and then by how long it is free."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._free: dict[tuple[str, str], list[tuple[int, int, Token]]] = {}
        self._clock = count()

    def serve(self, token: Token) -> Token:
        """The memory for a request: the smallest that suffices, else the largest that is not too small (it grows),
        else new memory. Memory of symbolic size serves requests of provably the same size.
        """
        found = self._take(token) if token.uses else None
        storage = token if found is None else found
        storage.uses_left = token.uses
        token.storage = storage
        return storage

    def _take(self, token: Token) -> Token | None:
        free = self._free.get((token.scope, token.dtype))
        if not free:
            return None
        size = token.key
        start = bisect.bisect_left(free, (size, -1))
        if size == _SYMBOLIC:
            for place in range(start, len(free)):
                key, _, candidate = free[place]
                if key != _SYMBOLIC:
                    return None
                if self._analyzer.can_prove_equal(token.size, candidate.size):
                    return free.pop(place)[2]
            return None
        if start < len(free) and free[start][0] <= size * _MATCH_RANGE:
            return free.pop(start)[2]
        if start > 0 and free[start - 1][0] >= size // _MATCH_RANGE:
            storage = free.pop(start - 1)[2]
            storage.size = IntImm("int64", size)
            return storage
        return None

    def release(self, storage: Token) -> None:
        """Give memory back."""
        free = self._free.setdefault((storage.scope, storage.dtype), [])
        bisect.insort(free, (storage.key, next(self._clock), storage))

    def forget(self, blocks: set[int]) -> None:
        """Drop free memory that one of ``blocks`` (by identity) allocated: it is out of reach from now on."""
        for key, free in self._free.items():
            self._free[key] = [entry for entry in free if id(entry[2].block) not in blocks]
