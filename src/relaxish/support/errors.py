"""Error classes shared by every layer.

The names follow the public API users know (``TVMError``, ``DiagnosticError``, ``ScheduleError``, ``OpNotImplemented``
and so on). Where Python has a fitting class the error derives from it as well, so ``except ImportError`` works.
"""

from __future__ import annotations

from collections.abc import Sequence, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .diagnostics import Diagnostic


class RelaxishError(RuntimeError):
    """Base class of every error this package raises on purpose (a ``RuntimeError``, as users of the API expect)."""


TVMError = RelaxishError


class InternalError(RelaxishError):
    """A broken invariant inside the compiler: always a bug, never the user's fault."""


class AlreadyRegisteredError(InternalError, ValueError):
    """A global name is taken and may not be overridden."""


class MissingFileError(RelaxishError, ValueError):
    """A file that was to be loaded is not there (the field raises a plain ``ValueError``)."""


class MalformedDataError(RelaxishError, ValueError):
    """Contents of a file or a text violate its format: damaged, truncated, or of another format."""


class DiagnosticError(RelaxishError):
    """One or more located messages about source text; ``str()`` is the rendered report."""

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)


class ScheduleError(RelaxishError):
    """A schedule primitive was asked to do something illegal; schedule code derives detailed kinds from it."""


class MissingExtraError(RelaxishError, ImportError):
    """An optional package is needed and absent.

    ``MissingExtraError("onnx", "onnx")`` tells the user to run ``pip install relaxish[onnx]``.
    """

    def __init__(self, extra: str, package: str = "", feature: str = "") -> None:
        what = feature or "this feature"
        missing = f"package '{package}'" if package else "an optional package"
        super().__init__(f"{what} needs {missing}, which is not installed: pip install 'relaxish[{extra}]'")
        self.extra = extra
        self.package = package


class OpError(RelaxishError):
    """Base class of errors about operators in a frontend or in legalisation."""


class OpNotImplemented(OpError, NotImplementedError):
    """An operator has no conversion or implementation."""


class OpAttributeRequired(OpError, AttributeError):
    """An operator lacks an attribute it must have."""


class OpAttributeInvalid(OpError, AttributeError):
    """An operator's attribute has an illegal value."""


class OpAttributeUnImplemented(OpError, NotImplementedError):
    """An operator's attribute is legal but not supported."""


class KernelError(RelaxishError):
    """A kernel returned an error code."""


class IndexBoundsError(KernelError, IndexError):
    """An index that came from data lies outside the array it is used on; the message names both."""


class DivisionByZeroError(KernelError, ZeroDivisionError):
    """An integer was divided by zero, or the remainder of such a division was asked for."""


class DivisionOverflowError(KernelError, OverflowError):
    """The smallest integer of a type was divided by -1: the quotient is no value of the type."""


class MemoryCheckError(KernelError):
    """An access outside of its memory that ``RELAXISH_CHECK=2`` caught: a bug of a program or of the compiler."""


class RPCError(RelaxishError):
    """A remote call failed on the other side."""


class RPCSessionTimeoutError(RPCError, TimeoutError):
    """A remote session ran into its time limit."""


class WorkerError(RelaxishError):
    """The worker machinery itself (not a task) failed, for example workers that never start."""


class JournalError(RelaxishError):
    """A journal file cannot be opened, locked or written."""


class DatabaseError(JournalError):
    """A database on a server or in a file cannot be opened, read or written."""


# Error classes that outside code asked for by name; see :func:`register_error`.
ERROR_TYPES: dict[str, type[Exception]] = {}


def first_line(err: BaseException) -> str:
    """The first line of an error's message, or the name of its class where it has none."""
    return (str(err).strip().splitlines() or [type(err).__name__])[0]


def register_error(
    func_name: str | type[Exception] | None = None, cls: type[Exception] | None = None
) -> type[Exception] | Callable[[type[Exception]], type[Exception]]:
    """Make an error class known by name, so that results of worker processes come back as it.

    >>> from relaxish.error import register_error
    >>> @register_error
    ... class MyError(RuntimeError):
    ...     pass
    """
    if isinstance(func_name, type):
        ERROR_TYPES[func_name.__name__] = func_name
        return func_name

    def register(made: type[Exception]) -> type[Exception]:
        ERROR_TYPES[func_name if isinstance(func_name, str) else made.__name__] = made
        return made

    return register if cls is None else register(cls)
