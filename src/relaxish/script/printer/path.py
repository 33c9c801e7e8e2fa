"""Object paths: where inside a node something stands, such as ``root.body.seq[1].value``."""

from __future__ import annotations

from typing import Any

__all__ = ["ObjectPath"]


class ObjectPath:
    """An immutable path from a root object through attributes, sequence elements and map values.

    ``ObjectPath.root().attr("body").array_index(0)``
    """

    __slots__ = ("key", "kind", "length", "parent")

    def __init__(self, parent: ObjectPath | None, kind: str, key: Any) -> None:
        self.parent = parent
        self.kind = kind
        self.key = key
        self.length: int = 1 if parent is None else parent.length + 1

    @staticmethod
    def root(root_name: str | None = None) -> ObjectPath:
        """The path of the object itself."""
        return ObjectPath(None, "root", root_name)

    def attr(self, attr_key: str) -> ObjectPath:
        """One attribute deeper."""
        return ObjectPath(self, "attr", attr_key)

    def array_index(self, index: int) -> ObjectPath:
        """One element of a sequence deeper."""
        return ObjectPath(self, "index", int(index))

    def missing_array_element(self, index: int) -> ObjectPath:
        """An element that only the other side has."""
        return ObjectPath(self, "missing_index", int(index))

    def map_value(self, key: Any) -> ObjectPath:
        """One value of a map deeper."""
        return ObjectPath(self, "map", key)

    def missing_map_entry(self) -> ObjectPath:
        """An entry that only the other side has."""
        return ObjectPath(self, "missing_map", None)

    def get_prefix(self, length: int) -> ObjectPath:
        """The first ``length`` steps. Raises IndexError when out of range."""
        if not 1 <= length <= self.length:
            raise IndexError("Prefix length must be at least 1 and at most the length of the path")
        node: ObjectPath = self
        while node.length > length:
            assert node.parent is not None
            node = node.parent
        return node

    def is_prefix_of(self, other: ObjectPath) -> bool:
        """Whether ``other`` starts with this path."""
        return self.length <= other.length and self == other.get_prefix(self.length)

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
            if a.kind != b.kind or not (a.key is b.key or (isinstance(a.key, (str, int)) and a.key == b.key)):
                return False
            a, b = a.parent, b.parent
        return True

    def __hash__(self) -> int:
        key = self.key if isinstance(self.key, (str, int)) else id(self.key)
        return hash((self.kind, key, self.length))

    def __repr__(self) -> str:
        steps: list[str] = []
        node: ObjectPath | None = self
        while node is not None:
            if node.kind == "root":
                steps.append(f"<{node.key or 'root'}>")
            elif node.kind == "attr":
                steps.append(f".{node.key}")
            elif node.kind in ("index", "missing_index"):
                steps.append(f"[{node.key}{'' if node.kind == 'index' else ': <missing>'}]")
            elif node.kind == "map":
                steps.append(f"[{getattr(node.key, 'name', None) or node.key!r}]")
            else:
                steps.append("[<missing>]")
            node = node.parent
        return "".join(reversed(steps))
