"""Streams, events and captures of a simulated device: which work comes before which.

Work of one stream runs in order. The default stream (0) waits for all others and all others for it, as CUDA's legacy
default stream does. Deferred work runs when something waits for it, dependencies first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import CODES, failure

__all__ = ["Event", "Graph", "Timeline"]

Run = Callable[[], None]


@dataclass(eq=False)
class Event:
    """An event: unrecorded, recorded (its work waits), or reached (``time``, in milliseconds, is set)."""

    device: int
    timing: bool = True
    alive: bool = True
    recorded: bool = False
    time: float | None = None
    place: tuple[int, int] | None = None  # stream, number of its last work before the mark


@dataclass(eq=False)
class Graph:
    """The work of a captured stream, in order."""

    device: int
    steps: list[Run]
    alive: bool = True

    def run(self) -> None:
        """Run all of it once."""
        for step in self.steps:
            step()


@dataclass(eq=False)
class _Capture:
    steps: list[Run] = field(default_factory=list)
    broken: bool = False


@dataclass(eq=False)
class _Stream:
    waiting: deque[tuple[int, list[tuple[int, int]], Run]] = field(default_factory=deque)
    issued: int = 0
    done: int = 0
    # Marks of other streams that the next work waits for.
    after: list[tuple[int, int]] = field(default_factory=list)
    capture: _Capture | None = None


class Timeline:
    """All streams of one device."""

    def __init__(self, deferred: bool, clock_ms: Callable[[], float]) -> None:
        self.deferred = deferred
        self.clock_ms = clock_ms
        self._streams: dict[int, _Stream] = {0: _Stream()}
        self._next = 0x1000

    # ---- streams

    def create_stream(self) -> int:
        """A new stream."""
        self._next += 0x10
        self._streams[self._next] = _Stream()
        return self._next

    def destroy_stream(self, stream: int) -> None:
        """Finish and forget a stream."""
        self._stream(stream, "destroying a stream")
        if stream == 0:
            raise failure(CODES["INVALID_HANDLE"], "destroying a stream", "the default stream stays")
        self.finish(stream)
        del self._streams[stream]

    def _stream(self, stream: int, what: str) -> _Stream:
        found = self._streams.get(stream)
        if found is None:
            raise failure(CODES["INVALID_HANDLE"], what, f"there is no stream {stream:#x}")
        return found

    def drop(self) -> None:
        """Forget what waits: the context is lost."""
        for stream in self._streams.values():
            stream.waiting.clear()
            stream.done = stream.issued
            stream.capture = None

    # ---- work

    def issue(self, stream: int, what: str, run: Run) -> None:
        """Add work to a stream; undeferred work runs now."""
        found = self._stream(stream, what)
        if found.capture is not None:
            if found.capture.broken:
                raise failure(CODES["STREAM_CAPTURE_INVALIDATED"], what)
            found.capture.steps.append(run)
            return
        if stream == 0:
            self._break_captures("STREAM_CAPTURE_IMPLICIT", what)
        found.issued += 1
        if not self.deferred:
            found.done = found.issued
            run()
            return
        before = [*found.after, *self._implicit(stream)]
        found.after = []
        found.waiting.append((found.issued, before, run))

    def _implicit(self, stream: int) -> list[tuple[int, int]]:
        if stream:
            return [(0, self._streams[0].issued)]
        return [(other, s.issued) for other, s in self._streams.items() if other]

    def finish(self, stream: int | None = None, number: int | None = None) -> None:
        """Do the waiting work of a stream (up to a number), or of all."""
        if stream is None:
            for each in list(self._streams):
                self.finish(each)
            return
        found = self._stream(stream, "waiting for a stream")
        if stream == 0 and number is None:
            # Waiting for the default stream waits for what comes implicitly before its end.
            for other, at in self._implicit(0):
                self.finish(other, at)
        while found.waiting and (number is None or found.waiting[0][0] <= number):
            at, before, run = found.waiting.popleft()
            for other, last in before:
                if other in self._streams:
                    self.finish(other, last)
            found.done = at
            run()

    # ---- events

    def record(self, event: Event, stream: int) -> None:
        """Mark the end of a stream."""
        found = self._stream(stream, "recording an event")
        if found.capture is not None:
            event.recorded, event.time, event.place = False, None, None
            return
        event.recorded, event.time = True, None

        def mark() -> None:
            event.time = self.clock_ms()

        self.issue(stream, "recording an event", mark)
        event.place = (stream, found.issued)

    def wait(self, event: Event, stream: int) -> None:
        """Order further work on a stream after an event; one that was never recorded does not count."""
        found = self._stream(stream, "waiting for an event")
        if event.place is not None and found.capture is None:
            found.after.append(event.place)

    def reach(self, event: Event) -> None:
        """Do the work before an event."""
        if event.place is not None and event.place[0] in self._streams:
            self.finish(*event.place)

    # ---- captures

    def captures(self, stream: int | None) -> bool:
        """Whether work on this stream is written down."""
        return stream is not None and stream in self._streams and self._streams[stream].capture is not None

    def begin_capture(self, stream: int) -> None:
        """Write down further work of a stream."""
        found = self._stream(stream, "capturing a stream")
        if stream == 0:
            raise failure(
                CODES["STREAM_CAPTURE_UNSUPPORTED"], "capturing a stream", "the default stream cannot be captured"
            )
        if found.capture is not None:
            raise failure(CODES["STREAM_CAPTURE_UNSUPPORTED"], "capturing a stream", "it is being captured already")
        found.capture = _Capture()

    def end_capture(self, stream: int) -> list[Run]:
        """The work written down."""
        found = self._stream(stream, "capturing a stream")
        capture, found.capture = found.capture, None
        if capture is None:
            raise failure(CODES["INVALID_VALUE"], "ending a capture", "the stream is not captured")
        if capture.broken:
            raise failure(CODES["STREAM_CAPTURE_INVALIDATED"], "ending a capture")
        return capture.steps

    def _break_captures(self, code: str, what: str) -> None:
        captures = [s.capture for s in self._streams.values() if s.capture is not None]
        for capture in captures:
            capture.broken = True
        if captures:
            raise failure(CODES[code], what)

    def forbid_while_capturing(self, what: str, stream: int | None = None) -> None:
        """Raise, and break captures, when ``stream`` (any, if None) is captured."""
        if stream is None or self.captures(stream):
            self._break_captures("STREAM_CAPTURE_UNSUPPORTED", what)
