"""Common state of paged key-value caches and recurrent states: sequences, and the steps of a forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..registry import register_func

__all__ = ["KVState", "builtin"]

F = TypeVar("F", bound=Callable[..., Any])


def builtin(name: str) -> Callable[[F], F]:
    """Decorator: register as ``vm.builtin.<name>``."""

    def register(func: F) -> F:
        register_func("vm.builtin." + name, func, override=True)
        return func

    return register


class KVState(ABC):
    """State of a batch of sequences that a model reads and extends token by token."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all sequences."""

    @abstractmethod
    def add_sequence(self, seq_id: int) -> None:
        """Begin an empty sequence."""

    @abstractmethod
    def remove_sequence(self, seq_id: int) -> None:
        """Forget a sequence."""

    @abstractmethod
    def fork_sequence(self, parent_seq_id: int, child_seq_id: int, fork_pos: int = -1) -> None:
        """Begin a sequence with the first ``fork_pos`` tokens of another (-1: all of them)."""

    @abstractmethod
    def popn(self, seq_id: int, n: int) -> None:
        """Forget the last ``n`` tokens of a sequence."""

    @abstractmethod
    def begin_forward(
        self, seq_ids: Sequence[int], append_lengths: Sequence[int], token_tree: Sequence[int] | None = None
    ) -> None:
        """Announce the sequences of a forward pass and how many tokens each gets.

        ``token_tree`` gives the parent (index among the new tokens of its sequence, -1: none) of each new token.
        """

    @abstractmethod
    def end_forward(self) -> None:
        """The forward pass is over."""


@builtin("kv_state_clear")
def kv_state_clear(state: KVState) -> None:
    """Forget all sequences."""
    state.clear()


@builtin("kv_state_add_sequence")
def kv_state_add_sequence(state: KVState, seq_id: int) -> None:
    """Begin an empty sequence."""
    state.add_sequence(int(seq_id))


@builtin("kv_state_remove_sequence")
def kv_state_remove_sequence(state: KVState, seq_id: int) -> None:
    """Forget a sequence."""
    state.remove_sequence(int(seq_id))


@builtin("kv_state_fork_sequence")
def kv_state_fork_sequence(state: KVState, parent_seq_id: int, child_seq_id: int, fork_pos: int = -1) -> None:
    """Begin a sequence as a copy of another, or of its first tokens."""
    state.fork_sequence(int(parent_seq_id), int(child_seq_id), int(fork_pos))


@builtin("kv_state_popn")
def kv_state_popn(state: KVState, seq_id: int, n: int) -> None:
    """Forget the last tokens of a sequence."""
    state.popn(int(seq_id), int(n))


@builtin("kv_state_begin_forward")
def kv_state_begin_forward(
    state: KVState, seq_ids: Sequence[int], append_lengths: Sequence[int], token_tree: Sequence[int] | None = None
) -> None:
    """Announce a forward pass."""
    state.begin_forward([int(s) for s in seq_ids], [int(n) for n in append_lengths], token_tree)


@builtin("kv_state_end_forward")
def kv_state_end_forward(state: KVState) -> None:
    """End a forward pass."""
    state.end_forward()
