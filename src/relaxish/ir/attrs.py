"""Attributes: named plain values attached to functions, modules and calls."""

from __future__ import annotations

from typing_extensions import Self
from collections.abc import Iterator, KeysView, Mapping
from typing import Any

from .expr import convert
from .errors import CheckTypeError, CheckValueError
from .node import Node, field, node_class
from .plain import plain_int, plain_ints

__all__ = ["Attrs", "DictAttrs", "make_node"]


class Attrs(Node):
    """Base of attribute objects: a mapping with attribute access, under a type name."""

    values: dict[str, Any]

    def __init__(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.values = {k: convert(v) if isinstance(v, (list, tuple, dict)) else v for k, v in (values or {}).items()}
        self.values.update(more)

    @classmethod
    def _make(cls, **fields: Any) -> Self:
        made = cls.__new__(cls)
        made.values = fields["values"]
        return made

    def __getitem__(self, key: str) -> Any:
        return self.__getattr__(key)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or key == "values":
            raise AttributeError(key)
        if key not in self.values:
            raise AttributeError(f"{type(self).__name__} has no attribute {key!r}; it has {sorted(self.values)}")
        return self.values[key]

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

    def keys(self) -> KeysView[str]:
        """Attribute names."""
        return self.values.keys()

    def items(self) -> list[tuple[str, Any]]:
        """Names and values."""
        return list(self.values.items())

    def get_int(self, key: str) -> int:
        """A value as a Python int."""
        value = self[key]
        return plain_int(value)

    def get_str(self, key: str) -> str:
        """A value as text."""
        return str(self[key])

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        """A sequence of ints."""
        return plain_ints(self[key])

    def list_field_info(self) -> list[str]:
        """The attribute names there are."""
        return list(self.values)


class DictAttrs(Attrs):
    """Free-form attributes of functions and modules, and of calls whose operator declares none."""

    type_name: str = field(role="attr", default="DictAttrs")

    def __init__(self, values: Mapping[str, Any] | None = None, type_name: str = "DictAttrs") -> None:
        super().__init__(values)
        self.type_name = type_name

    def __getitem__(self, key: str) -> Any:
        """One value. Raises KeyError, or AttributeError where the attributes are an operator's."""
        return self.values[key] if self.type_name == "DictAttrs" else super().__getitem__(key)

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        """False for a function or module without attributes; attributes of an operator are there even if it has none."""
        return self.type_name != "DictAttrs" or bool(self.values)

    @classmethod
    def _make(cls, **fields: Any) -> DictAttrs:
        made = cls.__new__(cls)
        made.values = fields["values"]
        made.type_name = fields.get("type_name", "DictAttrs")
        return made


def _class_of(type_key: str) -> type[Node] | None:
    """The node class of a type key of the public API, where scalar expressions count as tensor-level nodes."""
    name = type_key.rpartition(".")[2]
    for key in (type_key, f"ir.{name}") if type_key in (name, f"tir.{name}") else (type_key,):
        try:
            return node_class(key)
        except KeyError:
            continue
    return None


#: Keys of attributes that are not an operator's: the description of a special memory (``tvm.info.mem.<scope>``).
_DESCRIPTIONS = frozenset({"MemoryInfo"})


def make_node(type_key: str, **values: Any) -> Any:
    """A node from its type key and fields; the keys of operators' attributes make attributes under that type name.

    Raises CheckValueError for a key that nothing has, CheckTypeError for fields that the node lacks or has not.

    >>> from relaxish.ir import make_node
    >>> make_node("IntImm", dtype="int32", value=10)
    10
    >>> make_node("relax.attrs.PermuteDimsAttrs", axes=[1, 0])["axes"]
    (1, 0)
    """
    cls = _class_of(type_key)
    if cls is None and "attrs" not in type_key.lower() and type_key not in _DESCRIPTIONS:
        raise CheckValueError(f"Cannot find type {type_key}: no node or attributes have this key")
    if cls is None or issubclass(cls, Attrs):
        return DictAttrs(values, type_key)
    fields = ", ".join(cls._fields)
    unknown = [name for name in values if name not in (*cls._fields, "dtype", "span")]
    if unknown:
        raise CheckTypeError(f"{type_key} is not made of {', '.join(unknown)}; it has {fields}")
    try:
        return cls._make(**values)
    except (KeyError, TypeError) as why:
        raise CheckTypeError(f"{type_key} is not made of {', '.join(values) or 'nothing'}; it has {fields}") from why
