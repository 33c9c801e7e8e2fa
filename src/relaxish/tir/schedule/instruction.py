"""Primitives as data: what each takes and does, and how it is written as text and JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from typing_extensions import dataclass_transform

from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from ..expr import FloatImm, IntImm, StringImm, Var
from ..index_map import IndexMap
from .identity import Identity
from .rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from .protocol import Schedule
    from .sref import StmtSRef

__all__ = [
    "Argument",
    "Decision",
    "Instruction",
    "InstructionKind",
    "Output",
    "Step",
    "decided",
    "kind_table",
    "operand",
]

#: What an instruction takes as an input or attribute.
Argument: TypeAlias = "BlockRV | LoopRV | StmtSRef | PrimExpr | IndexMap | str | float | None | Sequence[Argument] | Mapping[str, Argument]"
#: What a sampling instruction has decided: one number, or one for each output.
Decision: TypeAlias = int | Sequence[int] | None

#: What an instruction gives: the reference of a block or loop, a sampled integer; nothing for a factor left open.
Output: TypeAlias = "StmtSRef | int | None"

_KINDS: dict[str, InstructionKind] = {}
_S = TypeVar("_S", bound="Step")


def operand(*, rest: bool = False) -> Any:
    """Declare a field that is an input: a random variable, an expression or a list of them; ``rest`` takes all further ones."""
    return field(metadata={"input": True, "rest": rest})


def decided() -> Any:
    """Declare the field that holds what a sampling instruction has decided; None: to be sampled."""
    return field(default=None, metadata={"decision": True})


@dataclass_transform(frozen_default=True, field_specifiers=(operand, decided))
class Step:
    """One primitive applied to its arguments; each primitive is a subclass, a frozen dataclass.

    Fields are declared in the order of the text form: inputs by :func:`operand`, plain attributes by their type alone, a
    decision by :func:`decided`. From them follow the :class:`InstructionKind`, and with it the recording of the
    schedule's method, JSON, text and replay. A class whose name begins with ``_`` is what several primitives share.
    """

    kind: ClassVar[InstructionKind]
    #: Goes up whenever the meaning of a recorded instruction changes.
    version: ClassVar[int] = 1
    #: Whether it only looks or samples, so that nobody misses it where its results are unused.
    is_pure: ClassVar[bool] = False
    #: Whether text shows the inputs without their names, as ``sch.reorder(l1, l2)``.
    positional: ClassVar[bool] = False
    #: Whether a single result is still written as a list, as ``l1, = ...``.
    many_outputs: ClassVar[bool] = False
    #: Whether it does not care what the blocks around pieces of a partitioned loop access.
    takes_pieces: ClassVar[bool] = False
    #: Arguments left out of the text when they are empty lists.
    optional: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:

        def __init__(self) -> None: ...  # where there are fields, checkers make another of them

    def __init_subclass__(cls, method: str = "") -> None:
        """``method`` is the schedule's method where it is not the class's name in small letters and dashes."""
        super().__init_subclass__()
        made = dataclass(frozen=True, eq=False)(cls)
        if not cls.__name__.startswith("_"):
            if cls.__name__ in _KINDS:
                raise ValueError(f"instruction kind {cls.__name__!r} is registered twice")
            cls.kind = _KINDS[cls.__name__] = InstructionKind.of(made, method)

    def run(self, sch: Schedule) -> Sequence[Output]:
        """Do it; gives the outputs."""
        raise NotImplementedError(f"{type(self).__name__} defines no run")

    def sample(self, sch: Schedule) -> tuple[Sequence[Output], Decision]:
        """Do it; gives the outputs and the decision taken, if any: sampling steps define this in place of ``run``."""
        return self.run(sch), None

    def parts(self) -> tuple[list[Argument], list[Argument], Decision]:
        """Inputs, attributes and decision, as instructions hold them."""
        kind = self.kind
        inputs: list[Argument] = []
        for name in kind.inputs:
            inputs += getattr(self, name[:-1]) if name.endswith("*") else [getattr(self, name)]
        return inputs, [getattr(self, name) for name in kind.attrs], getattr(self, "decision", None)

    @classmethod
    def of(cls: type[_S], inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision) -> _S:
        """The step that an instruction stands for; boxed integers and truth values become plain ones."""
        kind = cls.kind
        named = dict(zip(kind.attrs, attrs, strict=False))
        for index, name in enumerate(kind.inputs):
            if name.endswith("*"):
                named[name[:-1]] = list(inputs[index:])
            else:
                named[name] = inputs[index]
        for name, convert in kind.conversions.items():
            if name in named:
                named[name] = convert(plain(named[name]))
        if kind.samples:
            named["decision"] = decision
        return cls(**named)

    @classmethod
    def attrs_to_json(cls, attrs: Sequence[Any]) -> list[Any]:
        """Attributes as plain JSON values."""
        return [plain(x) for x in attrs]

    @classmethod
    def attrs_from_json(cls, data: Sequence[Any]) -> list[Any]:
        """Attributes from JSON values; the inverse of :meth:`attrs_to_json`."""
        return list(data)

    @classmethod
    def as_python(
        cls, inputs: Sequence[str], attrs: Sequence[Any], decision: Sequence[int] | None, outputs: Sequence[str]
    ) -> str:
        """One line of Python that repeats the instruction on a schedule called ``sch``."""
        rendered = []
        for name, value in cls.kind.arguments([Raw(x) for x in inputs], attrs).items():
            text = python_text(value)
            if name in cls.optional and text == "[]":
                continue
            if cls.positional and isinstance(value, list):
                rendered += [python_text(x) for x in value]
            else:
                rendered.append(f"{name}={text}")
        if decision is not None:
            rendered.append(f"decision={python_text(decision)}")
        left = ", ".join(outputs) + ("," if cls.many_outputs and len(outputs) == 1 else "")
        return f"{left + ' = ' if outputs else ''}sch.{cls.kind.method}({', '.join(rendered)})"


_CONVERSIONS: dict[object, Callable[[Any], int | bool]] = {"int": int, "bool": bool}


class InstructionKind(Identity):
    """Schema of a :class:`Step` for traces: its name, the schedule's method, and which fields are inputs, attributes
    and the decision.

    ``inputs`` are random variables and expressions (a trailing ``*`` takes all the rest), ``attrs`` plain values.
    """

    step: type[Step]
    name: str
    method: str
    inputs: tuple[str, ...]
    attrs: tuple[str, ...]
    samples: bool
    conversions: dict[str, Callable[[Any], int | bool]]
    _order: list[str]

    @classmethod
    def of(cls, step: type[Step], method: str = "") -> InstructionKind:
        """The kind of the instructions that a step makes."""
        self = cls()
        declared = fields(step)  # type: ignore[arg-type]
        self.step, self.name = step, step.__name__
        self.method = method or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()
        self.inputs = tuple(f.name + "*" * f.metadata["rest"] for f in declared if "input" in f.metadata)
        self.attrs = tuple(f.name for f in declared if not f.metadata)
        self.samples = any("decision" in f.metadata for f in declared)
        self.conversions = {f.name: _CONVERSIONS[f.type] for f in declared if f.type in _CONVERSIONS}
        self._order = [f.name for f in declared if "decision" not in f.metadata]
        return self

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

    @property
    def is_pure(self) -> bool:
        """Whether it only looks or samples."""
        return self.step.is_pure

    @property
    def version(self) -> int:
        """Goes up whenever the meaning of a recorded instruction changes."""
        return self.step.version

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[Sequence[Output], Decision]:
        """Do it.  Returns the outputs (references or integers) and the decision taken, if any."""
        return self.step.of(inputs, attrs, decision).sample(sch)

    def attrs_to_json(self, attrs: Sequence[Any]) -> list[Any]:
        """Attributes as plain JSON values."""
        return self.step.attrs_to_json(attrs)

    def attrs_from_json(self, data: Sequence[Any]) -> list[Any]:
        """Attributes from JSON values; the inverse of :meth:`attrs_to_json`."""
        return self.step.attrs_from_json(data)

    def arguments(self, inputs: Sequence[Any], attrs: Sequence[Any]) -> dict[str, Any]:
        """Argument names with values, in the order of the text form."""
        named: dict[str, Any] = {}
        for index, name in enumerate(self.inputs):
            if name.endswith("*"):
                named[name[:-1]] = list(inputs[index:])
            else:
                named[name] = inputs[index]
        named.update(zip(self.attrs, attrs, strict=True))
        return {name: named[name] for name in self._order}

    def as_python(
        self, inputs: Sequence[str], attrs: Sequence[Any], decision: Sequence[int] | None, outputs: Sequence[str]
    ) -> str:
        """One line of Python that repeats the instruction on a schedule called ``sch``."""
        return self.step.as_python(inputs, attrs, decision, outputs)

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
