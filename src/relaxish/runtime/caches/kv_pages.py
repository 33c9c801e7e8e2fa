"""Page table of a paged key-value cache: the pages of each sequence and the tokens in each page, without any data.

Sequences that were forked share full pages, which count their owners. A page that is only partly filled is never
shared: :meth:`PageTable.fork` and :meth:`PageTable.pop` say which page has to be copied.

Source: Kwon et al., "Efficient memory management for large language model serving with PagedAttention" (SOSP 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels.kernel import ArgumentError

__all__ = ["PageCopy", "PageTable", "SequencePages"]


@dataclass(frozen=True)
class PageCopy:
    """The first ``length`` slots of page ``source`` are to be copied to page ``target``."""

    source: int
    target: int
    length: int


@dataclass
class SequencePages:
    """One sequence: its pages in order, and how many tokens they hold.

    With a sliding window the first ``sink`` tokens stay, and the pages' slots from ``sink`` to ``window_offset`` are
    left out. ``parents`` is the token tree of the last forward pass until its accepted nodes are committed.
    """

    pages: list[int] = field(default_factory=list)
    length: int = 0
    window_size: int = -1
    sink_size: int = 0
    sink: int = 0
    window_offset: int = 0
    parents: list[int] = field(default_factory=list)
    is_chain: bool = True
    committed: bool = True

    @property
    def slots(self) -> int:
        """Slots from the first page's beginning to the last token."""
        return self.length - self.sink + self.window_offset

    def slot(self, position: int) -> int:
        """Slot number of a token among the slots of all pages."""
        return position if position < self.sink else position - self.sink + self.window_offset


class PageTable:
    """The pages of all sequences. Raises ArgumentError for unknown sequences and when no page is free."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.clear()

    def clear(self) -> None:
        """Forget all sequences."""
        self.free = list(range(self.num_pages - 1, -1, -1))
        self.owners = [0] * self.num_pages
        self.sequences: dict[int, SequencePages] = {}

    def __getitem__(self, seq_id: int) -> SequencePages:
        found = self.sequences.get(seq_id)
        if found is None:
            raise ArgumentError(f'The sequence "{seq_id}" cannot be found in KV cache.')
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is no sequence, and so all pages are free."""
        return not self.sequences and len(self.free) == self.num_pages

    def _take(self) -> int:
        if not self.free:
            raise ArgumentError("The KV cache is full. No page can be allocated.")
        page = self.free.pop()
        self.owners[page] = 1
        return page

    def _drop(self, page: int) -> None:
        self.owners[page] -= 1
        if not self.owners[page]:
            self.free.append(page)

    def add(self, seq_id: int) -> None:
        """Begin an empty sequence."""
        if seq_id in self.sequences:
            raise ArgumentError(f'The sequence "{seq_id}" is already in the KV cache.')
        self.sequences[seq_id] = SequencePages()

    def remove(self, seq_id: int) -> None:
        """Forget a sequence."""
        for page in self[seq_id].pages:
            self._drop(page)
        del self.sequences[seq_id]

    def fork(self, parent_id: int, child_id: int, position: int = -1) -> PageCopy | None:
        """Begin a sequence with the first tokens of another."""
        parent = self.sequences.get(parent_id)
        if parent is None:
            raise ArgumentError(f'The parent sequence "{parent_id}" cannot be found in KV cache.')
        if child_id in self.sequences:
            raise ArgumentError(f'The child sequence "{child_id}" is already in the KV cache.')
        if position < -1:
            raise ArgumentError("The forked position should be non-negative, or -1 for last position as default.")
        if position > parent.length:
            raise ArgumentError("The forked position should not exceed the total length of parent sequence.")
        if not parent.committed:
            raise ArgumentError(
                "The parent sequence's token tree computed in the last round of forward has not been committed with "
                "accepted nodes."
            )
        length = parent.length if position < 0 else position
        if parent.window_offset and length < parent.length:
            raise ArgumentError("A sequence whose window has moved can only be forked at its end.")
        child = SequencePages(length=length)
        child.window_size, child.sink_size = parent.window_size, parent.sink_size
        child.sink, child.window_offset = parent.sink, parent.window_offset
        full, rest = divmod(child.slots, self.page_size)
        copy = None
        if rest:
            copy = PageCopy(parent.pages[full], self._take(), rest)
        child.pages = parent.pages[:full] + ([copy.target] if copy else [])
        for page in parent.pages[:full]:
            self.owners[page] += 1
        self.sequences[child_id] = child
        return copy

    def extend(self, sequence: SequencePages, count: int) -> None:
        """Make room for new tokens at the end."""
        sequence.length += count
        while len(sequence.pages) * self.page_size < sequence.slots:
            sequence.pages.append(self._take())

    def pop(self, seq_id: int, count: int) -> PageCopy | None:
        """Forget the last tokens of a sequence."""
        sequence = self[seq_id]
        if not 0 <= count <= sequence.length:
            raise ArgumentError(
                f"The sequence only has length {sequence.length}, while the length of pop is {count} which exceeds it."
            )
        if not sequence.committed:
            raise ArgumentError(
                f"The token tree of sequence {seq_id} computed in the last round of forward has not been committed."
            )
        return self.shorten(sequence, count)

    def shorten(self, sequence: SequencePages, count: int) -> PageCopy | None:
        """Forget the last tokens; a partly filled page becomes the sequence's own."""
        sequence.length -= count
        needed = -(-sequence.slots // self.page_size)
        while len(sequence.pages) > needed:
            self._drop(sequence.pages.pop())
        rest = sequence.slots % self.page_size
        if not rest or self.owners[sequence.pages[-1]] == 1:
            return None
        copy = PageCopy(sequence.pages[-1], self._take(), rest)
        self._drop(copy.source)
        sequence.pages[-1] = copy.target
        return copy

    def slide(self, sequence: SequencePages) -> None:
        """Forget the oldest tokens of a sequence that is longer than its window, except its sink."""
        extra = sequence.length - sequence.window_size
        if sequence.window_size < 0 or extra <= 0:
            return
        if not sequence.window_offset:
            sequence.sink = sequence.window_offset = sequence.sink_size
        sequence.window_offset += extra
        sequence.length = sequence.window_size
        sink_pages = -(-sequence.sink // self.page_size)
        while sequence.window_offset >= (sink_pages + 1) * self.page_size:
            self._drop(sequence.pages.pop(sink_pages))
            sequence.window_offset -= self.page_size

    def positions(self, sequence: SequencePages, first: int, last: int) -> np.ndarray[Any, Any]:
        """The places (page number times page size plus slot) of the tokens ``first`` to ``last``."""
        tokens = np.arange(first, last)
        slots = np.where(tokens < sequence.sink, tokens, tokens - sequence.sink + sequence.window_offset)
        pages = np.asarray(sequence.pages, np.int64)
        return (pages[slots // self.page_size] * self.page_size + slots % self.page_size).astype(np.int32)

    def describe(self, sequences: Sequence[SequencePages], lengths: Sequence[int]) -> tuple[list[int], list[int], Any]:
        """For attention over the first ``lengths`` tokens: where each one's pages begin, the pages, and the filling.

        The filling has three rows: slots filled in the last page, window offset, sink.
        """
        starts, pages = [0], []
        filling = np.zeros((3, len(sequences)), np.int32)
        for index, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
            slots = length - sequence.sink + sequence.window_offset if length else 0
            used = -(-slots // self.page_size)
            pages += sequence.pages[:used]
            starts.append(len(pages))
            if slots:
                filling[:, index] = (slots - 1) % self.page_size + 1, sequence.window_offset, sequence.sink
        return starts, pages, filling
