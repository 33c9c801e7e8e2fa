"""Layouts of graph values: what ConvertLayout decides and what an operator's layout rule says.

An operator's record carries ``layout``: a function ``rule(call, desired_layouts, layouts) -> InferLayoutOutput | None``.

* ``desired_layouts`` is what the user asked for: ``{"relax.nn.conv2d": ["NHWC", "OHWI"]}``;
* ``layouts`` says how each variable is laid out now (:meth:`LayoutMap.of`);
* the result says in which layouts the operator wants its arguments and gives its outputs, which attributes change,
  and which arguments are replaced.  None: the operator stays in its first layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..tir import Layout
from .expr import Expr, Var
from .struct_info import StructInfo, TensorStructInfo, TupleStructInfo

__all__ = [
    "InferLayoutOutput",
    "LayoutDecision",
    "LayoutMap",
    "NLayout",
    "initial_layout",
    "initial_layout_decision",
    "initial_nlayout",
    "is_nested_tensor",
    "transpose_like",
    "transpose_str_like",
]


@dataclass(frozen=True)
class LayoutDecision:
    """A tensor's layout by axis letters: ``ABCD`` is how the tensor was first made, ``ACDB`` the second axis moved last.

    An empty name is a scalar's, or that of a tensor of unknown rank.
    """

    name: str = ""
    is_unknown_dim: bool = False

    @staticmethod
    def unknown() -> LayoutDecision:
        """The layout of a tensor of unknown rank: never changed."""
        return LayoutDecision("", True)

    @property
    def layout(self) -> Layout:
        """The layout object."""
        return Layout(self.name)

    @property
    def ndim(self) -> int:
        """Number of axes, split axes (``ABCD4b``) counted once."""
        return sum(c.isupper() for c in self.name)

    @property
    def is_initial(self) -> bool:
        """Whether the axes stand where the program first put them."""
        return self.name == initial_layout(self.ndim)

    def __str__(self) -> str:
        return self.name


#: The layout of a value: one decision for a tensor, a tuple of them for a tuple, None for what is no tensor.
NLayout = Any


def initial_layout(ndim: int) -> str:
    """``ABCD`` for four axes."""
    if not 0 <= ndim <= 26:
        raise ValueError(f"layouts name at most 26 axes, not {ndim}")
    return "".join(chr(ord("A") + i) for i in range(ndim))


def initial_layout_decision(ndim: int) -> LayoutDecision:
    """The decision that leaves a tensor of that rank as it is."""
    return LayoutDecision.unknown() if ndim == -1 else LayoutDecision(initial_layout(ndim))


def initial_nlayout(value: Expr | StructInfo) -> NLayout:
    """The first layout of a value or struct info."""
    info = value if isinstance(value, StructInfo) else value.struct_info_
    match info:
        case TensorStructInfo():
            return initial_layout_decision(info.ndim)
        case TupleStructInfo():
            return tuple(initial_nlayout(f) for f in info.fields)
    return None


def is_nested_tensor(value: Expr | StructInfo) -> bool:
    """Whether a value is a tensor or a (nested) tuple of tensors only."""
    info = value if isinstance(value, StructInfo) else value.struct_info_
    if isinstance(info, TupleStructInfo):
        return all(is_nested_tensor(f) for f in info.fields)
    return isinstance(info, TensorStructInfo)


def transpose_like(layout: str, source: str, target: str) -> str:
    """Move the axes of ``layout`` as going from ``source`` to ``target`` moves them.

    >>> transpose_like("ABCD", "NCHW", "NHWC")
    'ACDB'
    """
    return transpose_str_like(layout, source, target)


def transpose_str_like(text: str, source: str, target: str) -> str:
    """The letters of ``text`` reordered as ``source`` becomes ``target``, axis by axis; a split axis of the target
    (``NCHW4c``) splits the letter that stands where it came from.
    """
    origin = {axis: index for index, axis in enumerate(source)}
    out = ""
    for char in target:
        if char.isdigit():
            out += char
        elif char.isupper():
            out += text[origin[char]]
        else:
            out += text[origin[char.upper()]].lower()
    return out


class LayoutMap:
    """Layouts of all variables met so far."""

    def __init__(self) -> None:
        self._known: dict[Var, NLayout] = {}

    def __setitem__(self, var: Var, layout: NLayout) -> None:
        self._known[var] = layout

    def __contains__(self, var: object) -> bool:
        return var in self._known

    def of(self, value: Expr) -> NLayout:
        """The layout of an argument: a variable's own, a tuple's field by field, otherwise the first one."""
        if isinstance(value, Var) and value in self._known:
            return self._known[value]
        fields = getattr(value, "fields", None)
        if fields is not None:
            return tuple(self.of(f) for f in fields)
        return initial_nlayout(value)


@dataclass
class InferLayoutOutput:
    """Answer of a layout rule: layouts in argument order, layouts of the result(s), changed attributes and arguments."""

    input_layouts: Sequence[NLayout]
    output_layouts: Sequence[NLayout]
    new_attrs: Mapping[str, Any] = field(default_factory=dict)
    new_args: Mapping[int, Any] = field(default_factory=dict)
