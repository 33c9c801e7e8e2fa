"""Results remembered by a part of the analyzer, valid until something else is learnt."""

from __future__ import annotations

from typing import Any

__all__ = ["Remembers"]


class Remembers:
    """A part with results in ``_memo``, by the identity of what was asked."""

    _memo: dict[int, Any]

    def clear_memo(self) -> None:
        """Forget results; bindings changed."""
        self._memo.clear()

    def swap_memos(self, memos: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Work with these results, or none, from now on; returns those known so far."""
        old = (self._memo,)
        (self._memo,) = ({},) if memos is None else memos
        return old
