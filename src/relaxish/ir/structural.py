"""Structural equality and hash, derived from field roles.

Two programs are equal if one becomes the other by renaming bound variables.  Variables are mapped *both ways*
(a left variable to one right variable and back), pairs already compared are remembered, and a mismatch is
reported as a path with both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .expr import GlobalVar, PrimExpr
from .node import Node
from .types import PointerType

__all__ = [
    "Mismatch",
    "assert_structural_equal",
    "get_first_structural_mismatch",
    "structural_equal",
    "structural_hash",
    "register_structural_hooks",
]

# Classes whose comparison is not field by field: type -> (equal(cmp, a, b, map_free), hash(hasher, node, map_free)).
_HOOKS: dict[type, tuple[Callable[..., bool], Callable[..., int]]] = {}


def register_structural_hooks(
    cls: type, equal: Callable[[Comparer, Any, Any, bool], bool], hash_: Callable[[Hasher, Any, bool], int]
) -> None:
    """Give a class its own comparison and hash (modules, arrays)."""
    _HOOKS[cls] = (equal, hash_)


def _hook_of(kind: type) -> tuple[Callable[..., bool], Callable[..., int]] | None:
    if kind in _HOOKS:
        return _HOOKS[kind]
    for base in kind.__mro__:
        if base in _HOOKS:
            _HOOKS[kind] = _HOOKS[base]
            return _HOOKS[base]
    return None


class Mismatch:
    """The first place at which two structures differ: a path and what stands on either side."""

    def __init__(self, path: list[str], lhs: Any, rhs: Any) -> None:
        self.path = "<root>" + "".join(path)
        self.lhs = lhs
        self.rhs = rhs

    def __iter__(self) -> Any:
        return iter((self.path, self.path))


def _to_numpy(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, np.ndarray):
        return value
    convert = getattr(value, "numpy", None)
    return convert() if callable(convert) and not isinstance(value, Node) else None


class Comparer:
    """One comparison run: variable maps, memo and the current path."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.left: dict[int, Any] = {}
        self.right: dict[int, Any] = {}
        self.memo: set[tuple[int, int, bool]] = set()
        self.keep: list[Any] = []
        self.path: list[str] = []
        self.mismatch: Mismatch | None = None

    def fail(self, lhs: Any, rhs: Any) -> bool:
        """Record the first difference."""
        if self.mismatch is None:
            self.mismatch = Mismatch(self.path, lhs, rhs)
        return False

    def at(self, step: str, lhs: Any, rhs: Any, map_free: bool) -> bool:
        """Compare one child, remembering how we got there."""
        self.path.append(step)
        if not self.equal(lhs, rhs, map_free):
            return False
        self.path.pop()
        return True

    def equal(self, lhs: Any, rhs: Any, map_free: bool) -> bool:
        """Compare any two values; ``map_free`` lets unbound variables pair up."""
        if isinstance(lhs, Node) and isinstance(rhs, Node):
            return self._nodes(lhs, rhs, map_free)
        if isinstance(lhs, (tuple, list)) and isinstance(rhs, (tuple, list)):
            if len(lhs) != len(rhs):
                return self.fail(lhs, rhs)
            for index, (a, b) in enumerate(zip(lhs, rhs)):
                if not self.at(f"[{index}]", a, b, map_free):
                    return False
            return True
        if isinstance(lhs, dict) and isinstance(rhs, dict):
            return self._mappings(lhs, rhs, map_free)
        return self._plain(lhs, rhs)

    def _plain(self, lhs: Any, rhs: Any) -> bool:
        if lhs is rhs:
            return True
        if isinstance(lhs, float) and isinstance(rhs, float):
            return True if lhs == rhs or (lhs != lhs and rhs != rhs) else self.fail(lhs, rhs)
        a, b = _to_numpy(lhs), _to_numpy(rhs)
        if a is not None and b is not None:
            same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            return True if same else self.fail(lhs, rhs)
        # Attribute values may be a plain number on one side and its constant node on the other.
        for value, node in ((lhs, rhs), (rhs, lhs)):
            if isinstance(node, PrimExpr) and not isinstance(value, Node) and hasattr(node, "value"):
                return True if type(value) in (int, float, bool, str) and node.value == value else self.fail(lhs, rhs)
        if isinstance(lhs, Node) or isinstance(rhs, Node):
            return self.fail(lhs, rhs)
        return True if lhs == rhs else self.fail(lhs, rhs)

    def _mappings(self, lhs: dict[Any, Any], rhs: dict[Any, Any], map_free: bool) -> bool:
        if len(lhs) != len(rhs):
            return self.fail(lhs, rhs)
        for key, value in lhs.items():
            other = self.left.get(id(key), key) if isinstance(key, Node) else key
            if other not in rhs:
                return self.fail(lhs, rhs)
            if not self.at(f"[{key if not isinstance(key, Node) else getattr(key, 'name', '')!r}]", value, rhs[other], map_free):
                return False
        return True

    def _variables(self, lhs: Any, rhs: Any, map_free: bool) -> bool:
        known = self.left.get(id(lhs))
        if known is not None or id(rhs) in self.right:
            return True if known is rhs else self.fail(lhs, rhs)
        if lhs is rhs and not map_free:
            return True
        if not map_free:
            return self.fail(lhs, rhs)
        if isinstance(lhs, PrimExpr) and lhs.dtype != rhs.dtype:
            return self.fail(lhs, rhs)
        self.left[id(lhs)] = rhs
        self.right[id(rhs)] = lhs
        self.keep.append((lhs, rhs))
        return self._fields(lhs, rhs, map_free)

    def _fields(self, lhs: Any, rhs: Any, map_free: bool) -> bool:
        for name, role in type(lhs)._equal_plan:
            child_map = True if role == "bind" else map_free
            if not self.at(f".{name}", getattr(lhs, name), getattr(rhs, name), child_map):
                return False
        return True

    def _nodes(self, lhs: Any, rhs: Any, map_free: bool) -> bool:
        kind = type(lhs)
        if kind is not type(rhs):
            return self.fail(lhs, rhs)
        if kind._is_var:
            return self._variables(lhs, rhs, map_free)
        key = (id(lhs), id(rhs), map_free)
        if key in self.memo:
            return True
        if isinstance(lhs, PrimExpr) and lhs.dtype != rhs.dtype:
            return self.fail(lhs, rhs)
        hook = _hook_of(kind)
        if not (hook[0](self, lhs, rhs, map_free) if hook else self._fields(lhs, rhs, map_free)):
            return False
        self.memo.add(key)
        self.keep.append((lhs, rhs))
        return True


_MASK = (1 << 64) - 1


def _mix(seed: int, value: int) -> int:
    seed ^= (value + 0x9E3779B97F4A7C15 + (seed << 6) + (seed >> 2)) & _MASK
    return (seed * 0xFF51AFD7ED558CCD) & _MASK


def _text_hash(text: str) -> int:
    out = 0xCBF29CE484222325
    for byte in text.encode():
        out = ((out ^ byte) * 0x100000001B3) & _MASK
    return out


class Hasher:
    """One hash run: bound variables are numbered in the order in which they appear."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.numbers: dict[int, int] = {}
        self.memo: dict[tuple[int, bool], int] = {}
        self.keep: list[Any] = []
        self.texts: dict[str, int] = {}

    def text(self, value: str) -> int:
        """A stable hash of text."""
        known = self.texts.get(value)
        if known is None:
            known = self.texts[value] = _text_hash(value)
        return known

    def hash(self, value: Any, map_free: bool) -> int:
        """Hash any value."""
        if isinstance(value, Node):
            return self._node(value, map_free)
        if isinstance(value, (tuple, list)):
            out = _mix(17, len(value))
            for item in value:
                out = _mix(out, self.hash(item, map_free))
            return out
        if isinstance(value, dict):
            parts = []
            for key, item in value.items():
                key_hash = self.hash(key, map_free)
                parts.append(_mix(key_hash, self.hash(item, map_free)))
            return _mix(23, sum(parts) & _MASK)
        if isinstance(value, int):  # True and 1 are the same attribute value
            return _mix(5, value & _MASK)
        if isinstance(value, float):
            return _mix(7, self.text(repr(value)))
        if value is None:
            return 11
        array = _to_numpy(value)
        if array is not None:
            return _mix(self.text(f"{array.dtype}{array.shape}"), _bytes_hash(array))
        return self.text(str(value))

    def _node(self, node: Any, map_free: bool) -> int:
        kind = type(node)
        if kind._is_var:
            number = self.numbers.get(id(node))
            if number is not None:
                return _mix(29, number)
            if not map_free:
                return _mix(31, id(node) & _MASK)
            self.numbers[id(node)] = number = len(self.numbers)
            self.keep.append(node)
            return _mix(29, number)
        key = (id(node), map_free)
        known = self.memo.get(key)
        if known is not None:
            return known
        hook = _hook_of(kind)
        out = hook[1](self, node, map_free) if hook else self._fields(node, map_free)
        self.memo[key] = out
        self.keep.append(node)
        return out

    def _fields(self, node: Any, map_free: bool) -> int:
        out = self.text(type(node)._type_key)
        if isinstance(node, PrimExpr):
            out = _mix(out, self.text(node.dtype))
        for name, role in type(node)._equal_plan:
            out = _mix(out, self.hash(getattr(node, name), True if role == "bind" else map_free))
        return out


def _bytes_hash(array: np.ndarray[Any, Any]) -> int:
    import hashlib

    return int.from_bytes(hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).digest(), "little")


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two values are equal up to renaming of bound variables.

    With ``map_free_vars`` unbound variables may pair up as well.

    >>> from relaxish import tir
    >>> from relaxish.ir import structural_equal
    >>> x, y = tir.Var("x"), tir.Var("y")
    >>> structural_equal(x + 1, y + 1), structural_equal(x + 1, y + 1, map_free_vars=True)
    (False, True)
    """
    return Comparer(map_free_vars).equal(lhs, rhs, map_free_vars)


def get_first_structural_mismatch(lhs: Any, rhs: Any, map_free_vars: bool = False) -> Mismatch | None:
    """Where two values first differ, or None if they are equal."""
    run = Comparer(map_free_vars)
    return None if run.equal(lhs, rhs, map_free_vars) else run.mismatch


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ValueError with the path and both sides unless the two are structurally equal."""
    found = get_first_structural_mismatch(lhs, rhs, map_free_vars)
    if found is not None:
        raise ValueError(
            f"StructuralEqual check failed, caused by lhs at {found.path}:\n{found.lhs}\nand rhs at {found.path}:\n"
            f"{found.rhs}\n--- lhs ---\n{lhs}\n--- rhs ---\n{rhs}"
        )


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A 64-bit hash that equal structures share; the same from run to run for closed programs."""
    return Hasher(map_free_vars).hash(node, map_free_vars)


def _equal_global(run: Comparer, lhs: GlobalVar, rhs: GlobalVar, map_free: bool) -> bool:
    return True if lhs.name_hint == rhs.name_hint else run.fail(lhs, rhs)


def _hash_global(run: Hasher, node: GlobalVar, map_free: bool) -> int:
    return run.text("@" + node.name_hint)


register_structural_hooks(GlobalVar, _equal_global, _hash_global)


def _equal_pointer(run: Comparer, lhs: PointerType, rhs: PointerType, map_free: bool) -> bool:
    """Memory named "global" and memory of no name are the same."""
    step = ".storage_scope"
    return run.at(".element_type", lhs.element_type, rhs.element_type, map_free) and run.at(
        step, lhs.storage_scope or "global", rhs.storage_scope or "global", map_free
    )


def _hash_pointer(run: Hasher, node: PointerType, map_free: bool) -> int:
    return _mix(run.hash(node.element_type, map_free), run.text(node.storage_scope or "global"))


register_structural_hooks(PointerType, _equal_pointer, _hash_pointer)
