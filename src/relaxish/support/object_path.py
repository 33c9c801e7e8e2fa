"""Object paths: where inside an object something stands, such as ``<root>.body.seq[1].value``.

The printer underlines by path, and structural comparison reports the first difference as a pair of paths.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArrayIndexPath", "AttributeAccessPath", "MapValuePath", "MissingArrayElementPath", "MissingMapEntryPath",
    "ObjectPath", "RootPath", "UnknownAttributeAccessPath",
]  # fmt: skip


class ObjectPath:
    """An immutable path from a root object through attributes, sequence elements and map values.

    >>> from relaxish.runtime import ObjectPath
    >>> path = ObjectPath.root().attr("body").array_index(0).map_value("tile")
    >>> print(path)
    <root>.body[0]["tile"]
    >>> path.get_prefix(2) == ObjectPath.root().attr("body"), len(path)
    (True, 4)
    """

    __slots__ = ("length", "parent")

    def __init__(self, parent: ObjectPath | None) -> None:
        self.parent = parent
        self.length: int = 1 if parent is None else parent.length + 1

    @staticmethod
    def root(root_name: str | None = None) -> RootPath:
        """The path of the object itself."""
        return RootPath(root_name)

    def attr(self, attr_key: str | None) -> AttributeAccessPath | UnknownAttributeAccessPath:
        """One attribute deeper; None stands for an attribute whose name is not known."""
        return UnknownAttributeAccessPath(self) if attr_key is None else AttributeAccessPath(self, attr_key)

    def array_index(self, index: int) -> ArrayIndexPath:
        """One element of a sequence deeper."""
        return ArrayIndexPath(self, int(index))

    def missing_array_element(self, index: int) -> MissingArrayElementPath:
        """An element that only the other side has."""
        return MissingArrayElementPath(self, int(index))

    def map_value(self, key: Any) -> MapValuePath:
        """One value of a map deeper."""
        return MapValuePath(self, key)

    def missing_map_entry(self) -> MissingMapEntryPath:
        """An entry that only the other side has."""
        return MissingMapEntryPath(self)

    def get_prefix(self, length: int) -> ObjectPath:
        """The first ``length`` steps. Raises IndexError when out of range."""
        if length < 1:
            raise IndexError("Prefix length must be at least 1")
        if length > self.length:
            raise IndexError("Attempted to get a prefix longer than the path itself")
        node: ObjectPath = self
        while node.length > length:
            assert node.parent is not None
            node = node.parent
        return node

    def is_prefix_of(self, other: ObjectPath) -> bool:
        """Whether ``other`` starts with this path."""
        return self.length <= other.length and self == other.get_prefix(self.length)

    def same_as(self, other: object) -> bool:
        """Whether both are the very same object."""
        return self is other

    def _key(self) -> object:
        """What tells the last step from others of its class."""
        return None

    def _text(self) -> str:
        """The last step as text."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectPath) or self.length != other.length:
            return False
        a: ObjectPath | None = self
        b: ObjectPath | None = other
        while a is not None and b is not None:
            if a is b:
                return True
            if type(a) is not type(b) or not _same_key(a._key(), b._key()):
                return False
            a, b = a.parent, b.parent
        return True

    def __hash__(self) -> int:
        key = self._key()
        return hash((type(self), key if isinstance(key, str | int | None) else id(key), self.length))

    def __repr__(self) -> str:
        steps: list[str] = []
        node: ObjectPath | None = self
        while node is not None:
            steps.append(node._text())
            node = node.parent
        return "".join(reversed(steps))


def _same_key(a: Any, b: Any) -> bool:
    """Names and numbers are compared by value, objects by identity (expressions overload ``==``)."""
    return a is b or (isinstance(a, str | int) and isinstance(b, str | int) and a == b)


class RootPath(ObjectPath):
    """The object that all paths start from."""

    __slots__ = ("name",)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(None)
        self.name = name

    def _key(self) -> object:
        return self.name

    def _text(self) -> str:
        return "<root>" if self.name is None else self.name


class AttributeAccessPath(ObjectPath):
    """``.attr_key``"""

    __slots__ = ("attr_key",)

    def __init__(self, parent: ObjectPath, attr_key: str) -> None:
        super().__init__(parent)
        self.attr_key = attr_key

    def _key(self) -> object:
        return self.attr_key

    def _text(self) -> str:
        return f".{self.attr_key}"


class UnknownAttributeAccessPath(ObjectPath):
    """An attribute whose name is not known; equal only to itself."""

    __slots__ = ()

    def _key(self) -> object:
        return self

    def _text(self) -> str:
        return ".<unknown attribute>"


class ArrayIndexPath(ObjectPath):
    """``[index]``"""

    __slots__ = ("index",)

    def __init__(self, parent: ObjectPath, index: int) -> None:
        super().__init__(parent)
        self.index = index

    def _key(self) -> object:
        return self.index

    def _text(self) -> str:
        return f"[{self.index}]"


class MissingArrayElementPath(ArrayIndexPath):
    """The place where a shorter sequence has no element."""

    __slots__ = ()

    def _text(self) -> str:
        return f"[<missing element #{self.index}>]"


class MapValuePath(ObjectPath):
    """``[key]``"""

    __slots__ = ("key",)

    def __init__(self, parent: ObjectPath, key: Any) -> None:
        super().__init__(parent)
        self.key = key

    def _key(self) -> object:
        return self.key

    def _text(self) -> str:
        if isinstance(self.key, str):
            quoted = self.key.replace("\\", "\\\\").replace('"', '\\"')
            return f'["{quoted}"]'
        return f"[{self.key}]"


class MissingMapEntryPath(ObjectPath):
    """The place where a map lacks an entry that the other side has."""

    __slots__ = ()

    def _text(self) -> str:
        return "[<missing entry>]"
