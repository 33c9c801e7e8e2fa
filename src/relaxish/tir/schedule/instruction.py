"""Instruction kinds: what a primitive takes, does, and how it is written as text and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from ..expr import FloatImm, IntImm, StringImm, Var
from ..index_map import IndexMap
from .identity import Identity
from .rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from .protocol import Schedule
    from .sref import StmtSRef

__all__ = ["Argument", "Decision", "Instruction", "InstructionKind", "kind_table", "register_kind"]

#: What an instruction takes as an input or attribute.
Argument: TypeAlias = "BlockRV | LoopRV | StmtSRef | PrimExpr | IndexMap | str | float | None | Sequence[Argument] | Mapping[str, Argument]"
#: What a sampling instruction has decided: one number, or one for each output.
Decision: TypeAlias = int | Sequence[int] | None

_KINDS: dict[str, InstructionKind] = {}


class InstructionKind(Identity):
    """One primitive as data.

    A subclass names its ``inputs`` (random variables and expressions; a trailing ``*`` takes all the rest) and
    ``attrs`` (plain values), and implements :meth:`apply`.  Text and JSON follow from these.  ``version`` goes
    up whenever the meaning of a recorded instruction changes.
    """

    name: ClassVar[str] = ""
    method: ClassVar[str] = ""
    version: ClassVar[int] = 1
    is_pure: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ()
    attrs: ClassVar[tuple[str, ...]] = ()
    # Whether text shows the inputs without their names, as ``sch.reorder(l1, l2)``.
    positional: ClassVar[bool] = False
    # Whether a single result is still written as a list, as ``l1, = ...``.
    many_outputs: ClassVar[bool] = False
    # Order of arguments in text, where it is not inputs followed by attributes.
    text_order: ClassVar[tuple[str, ...]] = ()
    # Whether it does not care what the blocks around pieces of a partitioned loop access.
    takes_pieces: ClassVar[bool] = False
    # Arguments left out of the text when they are empty lists.
    optional: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def get(name: str) -> InstructionKind:
        """The kind registered under ``name``. Raises CheckValueError."""
        try:
            return _KINDS[name]
        except KeyError:
            raise CheckValueError(f"no schedule instruction is named {name!r}") from None

    @property
    def is_postproc(self) -> bool:
        """Whether this kind marks where post-processing begins."""
        return self.name == "EnterPostproc"

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Decision]:
        """Do it.  Returns the outputs (references or integers) and the decision taken, if any."""
        raise NotImplementedError

    def attrs_to_json(self, attrs: Sequence[Any]) -> list[Any]:
        """Attributes as plain JSON values."""
        return [plain(x) for x in attrs]

    def attrs_from_json(self, data: Sequence[Any]) -> list[Any]:
        """Attributes from JSON values; the inverse of :meth:`attrs_to_json`."""
        return list(data)

    def arguments(self, inputs: Sequence[Any], attrs: Sequence[Any]) -> dict[str, Any]:
        """Argument names with values, in the order of the text form."""
        named: dict[str, Any] = {}
        for index, name in enumerate(self.inputs):
            if name.endswith("*"):
                named[name[:-1]] = list(inputs[index:])
            else:
                named[name] = inputs[index]
        named.update(zip(self.attrs, attrs, strict=True))
        if self.text_order:
            return {name: named[name] for name in self.text_order}
        return named

    def as_python(
        self, inputs: Sequence[str], attrs: Sequence[Any], decision: Sequence[int] | None, outputs: Sequence[str]
    ) -> str:
        """One line of Python that repeats the instruction on a schedule called ``sch``."""
        rendered = []
        for name, value in self.arguments([Raw(x) for x in inputs], attrs).items():
            text = python_text(value)
            if name in self.optional and text == "[]":
                continue
            if self.positional and isinstance(value, list):
                rendered += [python_text(x) for x in value]
            else:
                rendered.append(f"{name}={text}")
        if decision is not None:
            rendered.append(f"decision={python_text(decision)}")
        left = ", ".join(outputs) + ("," if self.many_outputs and len(outputs) == 1 else "")
        return f"{left + ' = ' if outputs else ''}sch.{self.method}({', '.join(rendered)})"

    def __repr__(self) -> str:
        return f"InstructionKind({self.name})"


class Raw(str):
    """Text that is to be written without quotes."""

    __slots__ = ()


def plain(value: object) -> Any:
    """IR literals as Python values, recursively."""
    match value:
        case IntImm() | FloatImm() | StringImm():
            return value.value
        case tuple() | list():
            return [plain(x) for x in value]
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
    return value


def python_text(value: object) -> str:
    """A value as it is written in the text form."""
    value = plain(value)
    match value:
        case Raw():
            return str(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        case list():
            return f"[{', '.join(python_text(x) for x in value)}]"
        case dict():
            return "{" + ", ".join(f"{python_text(k)}: {python_text(v)}" for k, v in value.items()) + "}"
        case float():
            return f"{value:.17g}"
    return repr(value) if isinstance(value, (int, type(None))) else str(value)


def register_kind(cls: type[InstructionKind]) -> type[InstructionKind]:
    """Class decorator that enters a kind into the table."""
    if cls.name in _KINDS:
        raise ValueError(f"instruction kind {cls.name!r} is registered twice")
    _KINDS[cls.name] = cls()
    return cls


def kind_table() -> dict[str, InstructionKind]:
    """All kinds by name."""
    return dict(_KINDS)


class Instruction(Identity):
    """One step of a trace: a kind applied to inputs and attributes, giving outputs."""

    __slots__ = ("__weakref__", "attrs", "inputs", "kind", "outputs")

    def __init__(
        self, kind: InstructionKind | str, inputs: Sequence[Any], attrs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self.kind = InstructionKind.get(kind) if isinstance(kind, str) else kind
        self.inputs = list(inputs)
        self.attrs = list(attrs)
        self.outputs = list(outputs)

    def __repr__(self) -> str:
        attrs = [Raw(x) if isinstance(x, str) else x for x in self.attrs]
        return self.kind.as_python([_short(x) for x in self.inputs], attrs, None, ["_" for _ in self.outputs])


def _short(value: object) -> str:
    """An input without context: random variables have no names here."""
    match value:
        case BlockRV() | LoopRV() | Var():
            return "_"
        case list() | tuple():
            return f"[{', '.join(_short(x) for x in value)}]"
        case PrimExpr() if not isinstance(value, (IntImm, FloatImm, StringImm)):
            from ..functor import substitute
            from .walk import vars_in

            return str(substitute(value, {v: Var("_", v.dtype) for v in vars_in(value)}))
    return python_text(value)


def map_rvs(value: Argument, lookup: Callable[[Any], Any]) -> Argument:
    """``value`` with random variables replaced, through lists, dicts and expressions."""
    match value:
        case BlockRV() | LoopRV():
            return lookup(value)
        case Var():
            return lookup(value)
        case list() | tuple():
            return [map_rvs(x, lookup) for x in value]
        case dict():
            return {k: map_rvs(v, lookup) for k, v in value.items()}
        case PrimExpr() if not isinstance(value, (IntImm, FloatImm, StringImm)):
            from ..functor import substitute
            from .walk import vars_in

            return substitute(value, {v: lookup(v) for v in vars_in(value)})
        case IndexMap():
            return value.substitute_free({v: lookup(v) for v in value.free_vars()})
    return value
