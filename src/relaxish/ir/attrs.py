"""Attributes: named plain values attached to functions, modules and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .expr import convert
from .node import Node, field

__all__ = ["Attrs", "DictAttrs", "make_node"]


class Attrs(Node):
    """Base of attribute objects: a mapping with attribute access, under a type name."""

    values: dict[str, Any]

    def __init__(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.values = {k: convert(v) if isinstance(v, (list, tuple, dict)) else v for k, v in (values or {}).items()}
        self.values.update(more)

    @classmethod
    def _make(cls, **fields: Any) -> Any:
        made = cls.__new__(cls)
        made.values = fields["values"]
        return made

    def __getitem__(self, key: str) -> Any:
        if key not in self.values:
            raise AttributeError(f"{type(self).__name__} has no attribute {key!r}; it has {sorted(self.values)}")
        return self.values[key]

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or key == "values":
            raise AttributeError(key)
        return self[key]

    def __contains__(self, key: object) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        """One value, or ``default``."""
        return self.values.get(key, default)

    def keys(self) -> Any:
        """Attribute names."""
        return self.values.keys()

    def items(self) -> Any:
        """Names and values."""
        return self.values.items()

    def get_int(self, key: str) -> int:
        """A value as a Python int."""
        value = self[key]
        return int(getattr(value, "value", value))

    def get_str(self, key: str) -> str:
        """A value as text."""
        return str(self[key])

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        """A sequence of ints."""
        return tuple(int(getattr(v, "value", v)) for v in self[key])

    def list_field_info(self) -> list[str]:
        """The attribute names there are."""
        return list(self.values)


class DictAttrs(Attrs):
    """Free-form attributes of functions and modules, and of calls whose operator declares none."""

    type_name: str = field(role="attr", default="DictAttrs")

    def __init__(self, values: Mapping[str, Any] | None = None, type_name: str = "DictAttrs") -> None:
        super().__init__(values)
        self.type_name = type_name

    @classmethod
    def _make(cls, **fields: Any) -> DictAttrs:
        made = cls.__new__(cls)
        made.values = fields["values"]
        made.type_name = fields.get("type_name", "DictAttrs")
        return made


def make_node(type_key: str, **values: Any) -> DictAttrs:
    """Attributes under an operator's type name, e.g. ``make_node("relax.attrs.PermuteDimsAttrs", axes=...)``."""
    return DictAttrs(values, type_key)
