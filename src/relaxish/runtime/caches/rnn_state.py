"""States of recurrent models: for each sequence, layer and state a ring of the last ``max_history`` values.

Sequences are added, forked, rolled back and removed by the ``vm.builtin.kv_state_*`` functions, as those of a paged
key-value cache are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.kernel import ArgumentError
from .kv_state import KVState, builtin
from ..arrays.ndarray import NDArray, array, empty, from_numpy

__all__ = ["RNNState"]


@dataclass
class _Sequence:
    slot: int
    length: int = 0
    history: int = 0  # rollbacks that are possible
    history_slot: int = 0


class RNNState(KVState):
    """The states of up to ``reserved_num_seqs`` sequences.

    ``f_gets[i](storage, sequence_slots, history_slots, out)`` reads state ``i`` of the sequences in the batch,
    ``f_sets[i](storage, sequence_slots, history_slots, value, max_history)`` writes their next values.
    """

    def __init__(
        self,
        num_layers: int,
        reserved_num_seqs: int,
        max_history: int,
        f_gets: Sequence[Callable[..., Any]],
        f_sets: Sequence[Callable[..., Any]],
        init_layer_value: Sequence[NDArray],
    ) -> None:
        if max_history <= 0:
            raise ArgumentError(f"The max_history should be greater than 0, got {max_history}")
        if not len(f_gets) == len(f_sets) == len(init_layer_value):
            raise ArgumentError("the number of getters, setters and initial values of a RNN state must be the same")
        self.max_history = max_history
        self.f_gets, self.f_sets = list(f_gets), list(f_sets)
        self.init_values = [v.numpy() for v in init_layer_value]
        self.storages = [
            [empty((reserved_num_seqs, max_history, *v.shape), v.dtype, v.device) for v in init_layer_value]
            for _ in range(num_layers)
        ]
        self.reserved = reserved_num_seqs
        self.sequences: dict[int, _Sequence] = {}
        self.batch: list[int] = []
        self.lengths: list[int] = []
        self.clear()

    def clear(self) -> None:
        self.sequences.clear()
        self.free = list(range(self.reserved))

    def _sequence(self, seq_id: int) -> _Sequence:
        found = self.sequences.get(seq_id)
        if found is None:
            raise ArgumentError(f'The sequence "{seq_id}" cannot be found in the space state storage.')
        return found

    def _new(self, seq_id: int) -> _Sequence:
        if seq_id in self.sequences:
            raise ArgumentError(f'The sequence "{seq_id}" is already in the space state storage.')
        if not self.free:
            raise ArgumentError(f"The state is full: it has room for {self.reserved} sequences.")
        made = self.sequences[seq_id] = _Sequence(self.free.pop())
        return made

    def add_sequence(self, seq_id: int) -> None:
        sequence = self._new(seq_id)
        for layer in self.storages:
            for storage, value in zip(layer, self.init_values, strict=True):
                storage[sequence.slot, 0] = value

    def remove_sequence(self, seq_id: int) -> None:
        self.free.append(self._sequence(seq_id).slot)
        del self.sequences[seq_id]

    def fork_sequence(self, parent_seq_id: int, child_seq_id: int, fork_pos: int = -1) -> None:
        parent = self._sequence(parent_seq_id)
        if fork_pos not in (-1, parent.length):
            raise ArgumentError(f"a RNN state can only be forked at its end {parent.length}, not at {fork_pos}")
        child = self._new(child_seq_id)
        child.length, child.history, child.history_slot = parent.length, parent.history, parent.history_slot
        for layer in self.storages:
            for storage in layer:
                storage[child.slot] = storage[parent.slot]

    def popn(self, seq_id: int, n: int) -> None:
        sequence = self._sequence(seq_id)
        if n < 0:
            raise ArgumentError(f"a RNN state cannot go {n} steps back")
        if n > sequence.history:
            raise ArgumentError(
                f'The sequence "{seq_id}" has {sequence.history} states to go back to, but {n} steps back are asked for.'
            )
        sequence.length -= n
        sequence.history -= n
        sequence.history_slot = (sequence.history_slot - n) % self.max_history

    def begin_forward(self, seq_ids: Sequence[int], append_lengths: Sequence[int], token_tree: Any = None) -> None:
        if len(seq_ids) != len(append_lengths):
            raise ArgumentError(f"{len(seq_ids)} sequences, but {len(append_lengths)} lengths")
        if any(length < 0 for length in append_lengths):
            raise ArgumentError(f"a RNN state cannot append lengths {list(append_lengths)}")
        if token_tree is not None:
            raise ArgumentError("a RNN state does not support token trees")
        self.batch, self.lengths = list(seq_ids), list(append_lengths)
        chosen = [self._sequence(s) for s in self.batch]
        self._slots = from_numpy(np.array([c.slot for c in chosen], np.int32))
        self._history = from_numpy(np.array([c.history_slot for c in chosen], np.int32))

    def end_forward(self) -> None:
        for seq_id, length in zip(self.batch, self.lengths, strict=True):
            sequence = self._sequence(seq_id)
            sequence.length += length
            # What came as one piece cannot be taken back in part.
            sequence.history = 0 if length > 1 else min(sequence.history + 1, self.max_history - 1)
            sequence.history_slot = (sequence.history_slot + 1) % self.max_history

    def _storage(self, layer: int, state: int) -> NDArray:
        if not 0 <= layer < len(self.storages) or not 0 <= state < len(self.init_values):
            raise ArgumentError(f"the RNN state has no state {state} in a layer {layer}")
        return self.storages[layer][state]

    def get(self, layer: int, state: int, out: NDArray) -> None:
        """Write the current state of the batch into ``out``."""
        storage = self._storage(layer, state)
        self.f_gets[state](storage, self._slots, self._history, out)

    def set(self, layer: int, state: int, value: NDArray) -> None:
        """Store the next state of the batch."""
        storage = self._storage(layer, state)
        self.f_sets[state](storage, self._slots, self._history, value, self.max_history)

    def debug_get(self, layer: int, state: int, seq_id: int) -> NDArray:
        """A copy of the current state of one sequence."""
        sequence = self._sequence(seq_id)
        return array(np.ascontiguousarray(self._storage(layer, state)[sequence.slot, sequence.history_slot]))


@builtin("rnn_state_create")
def rnn_state_create(
    num_layers: int,
    reserved_num_seqs: int,
    max_history: int,
    f_gets: Sequence[Callable[..., Any]],
    f_sets: Sequence[Callable[..., Any]],
    init_layer_value: Sequence[NDArray],
) -> RNNState:
    """A new :class:`RNNState`."""
    return RNNState(num_layers, reserved_num_seqs, max_history, f_gets, f_sets, init_layer_value)


@builtin("rnn_state_get")
def rnn_state_get(state: RNNState, layer_id: int, state_id: int, o_data: NDArray) -> NDArray:
    """Read the state of the batch into ``o_data``."""
    state.get(layer_id, state_id, o_data)
    return o_data


@builtin("rnn_state_set")
def rnn_state_set(state: RNNState, layer_id: int, state_id: int, data: NDArray) -> RNNState:
    """Store the next state of the batch."""
    state.set(layer_id, state_id, data)
    return state


@builtin("rnn_state_debug_get")
def rnn_state_debug_get(state: RNNState, layer_id: int, state_id: int, seq_id: int) -> NDArray:
    """The current state of a sequence."""
    return state.debug_get(layer_id, state_id, seq_id)
