"""The imperative builder: frames collect what is written inside ``with`` blocks and make nodes when left.

>>> from relaxish.script.ir_builder import IRBuilder, tir as T
>>> with IRBuilder() as ib:
...     with T.prim_func():
...         T.func_name("f")
...         with T.serial(4) as i:
...             _ = T.evaluate(i)
>>> ib.get().get_attr("global_symbol")
'f'
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from types import TracebackType

__all__ = ["IRBuilder", "IRBuilderFrame", "Namer"]

_F = TypeVar("_F")
_V = TypeVar("_V")
_LOCAL = threading.local()


def _stack() -> list[IRBuilder]:
    stack: list[IRBuilder] | None = getattr(_LOCAL, "stack", None)
    if stack is None:
        stack = _LOCAL.stack = []
    return stack


class IRBuilderFrame:
    """One open scope; leaving it runs the callbacks registered inside and hands its node to the parent."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], Any]] = []
        self.entry_span: Any = None

    def __enter__(self) -> Any:
        builder = IRBuilder.current()
        self.entry_span = builder.span
        builder.frames.append(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        builder = IRBuilder.current()
        frames = builder.frames
        if exc_type is None and exc_value is None:
            for callback in reversed(self.callbacks):
                callback()
            self.callbacks.clear()
            frames.pop()
            outer, builder.span = builder.span, self.entry_span
            self.finish()
            builder.span = outer
        else:
            while frames and frames.pop() is not self:
                pass

    def finish(self) -> None:
        """Make the node; the frame is no longer on the stack."""

    def add_callback(self, callback: Callable[[], Any]) -> None:
        """Run ``callback`` when the innermost open scope is left."""
        frames = IRBuilder.current().frames
        if not frames:
            raise ValueError("No frames in Builder to add callback")
        frames[-1].callbacks.append(callback)


class Namer:
    """Names for objects from the variables they are assigned to; dialects add their classes."""

    table: dict[type, Callable[[Any, str], None]] = {}

    @classmethod
    def name(cls, obj: object, name: str) -> None:
        """Name one object. Raises ValueError if its class has no name."""
        for base in type(obj).__mro__:
            setter = cls.table.get(base)
            if setter is not None:
                setter(obj, name)
                return
        raise ValueError(f'Do not know how to name type "{type(obj).__name__}"')


class IRBuilder:
    """The construction of one function or module."""

    def __init__(self) -> None:
        self.frames: list[IRBuilderFrame] = []
        self.result: Any = None
        # Where the statement being built stands in source text, when it is parsed from some.
        self.span: Any = None

    def __enter__(self) -> IRBuilder:
        if self.frames:
            raise ValueError(
                f"There are frame(s) left in the builder: {len(self.frames)}. Please use a fresh new builder every "
                "time building IRs"
            )
        self.result = None
        _stack().append(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        _stack().pop()

    @staticmethod
    def current() -> IRBuilder:
        """The innermost builder. Raises ValueError outside of any."""
        stack = _stack()
        if not stack:
            raise ValueError("No builder in current scope")
        return stack[-1]

    @staticmethod
    def is_in_scope() -> bool:
        """Whether there is a current builder."""
        return bool(_stack())

    def get(self) -> Any:
        """Object built so far. Raises IndexError if nothing was."""
        if self.result is None:
            raise IndexError("No result exists in IRBuilder yet")
        return self.result

    def find(self, *classes: type[_F]) -> _F | None:
        """The innermost open frame of the given classes."""
        for frame in reversed(self.frames):
            if isinstance(frame, classes):
                return frame
        return None

    def last(self, cls: type[_F]) -> _F | None:
        """The innermost frame, if it is of the given class."""
        return self.frames[-1] if self.frames and isinstance(self.frames[-1], cls) else None

    @staticmethod
    def name(s: str, v: _V) -> _V:
        """Name an object and return it."""
        Namer.name(v, s)
        return v

    @staticmethod
    def name_many(s: list[str], vs: list[Any]) -> list[Any]:
        """Name several objects."""
        if len(s) != len(vs):
            raise ValueError(f"{len(s)} names for {len(vs)} objects")
        return [IRBuilder.name(a, b) for a, b in zip(s, vs)]
