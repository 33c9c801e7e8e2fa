"""Structural equality and hash, derived from field roles.

Two programs are equal if one becomes the other by renaming bound variables.  Variables are mapped *both ways*
(a left variable to one right variable and back), pairs already compared are remembered, and a mismatch is
reported as a path with both sides.

Variables and buffers that neither side declares are free: each is equal to itself only, unless ``map_free_vars`` lets
them pair up.  Whether two expressions of *one* program have the same value is another question; compilers ask it by
:func:`same_expression`, which pairs up nothing and tells apart constants that structural equality calls close enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..support.object_path import ObjectPath
from .expr import GlobalVar, PrimExpr
from .node import Node
from .types import PointerType

__all__ = [
    "Mismatch",
    "assert_structural_equal",
    "get_first_structural_mismatch",
    "same_expression",
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


class Mismatch(NamedTuple):
    """The first place at which two structures differ, seen from either side."""

    lhs_path: ObjectPath
    rhs_path: ObjectPath


# One step of a path on both sides: (method of ObjectPath, its argument) twice.
_Step = tuple[str, Any, str, Any]


def _to_numpy(value: object) -> np.ndarray[Any, Any] | None:
    if isinstance(value, np.ndarray):
        return value
    convert = getattr(value, "numpy", None)
    return convert() if callable(convert) and not isinstance(value, Node) else None


# Floats that differ by less are equal: constants that took other ways to the same value.
_FLOAT_TOLERANCE = 1e-9


def _close_float(lhs: float, rhs: float) -> bool:
    return lhs == rhs or (lhs != lhs and rhs != rhs) or abs(lhs - rhs) < _FLOAT_TOLERANCE


def _exact_float(lhs: float, rhs: float) -> bool:
    return (lhs == rhs and math.copysign(1.0, lhs) == math.copysign(1.0, rhs)) or (lhs != lhs and rhs != rhs)


def _build_path(steps: list[tuple[str, Any]]) -> ObjectPath:
    path: ObjectPath = ObjectPath.root()
    for method, key in steps:
        path = path.missing_map_entry() if method == "missing_map_entry" else getattr(path, method)(key)
    return path


def _other_dtype(lhs: Node, rhs: Node) -> bool:
    return isinstance(lhs, PrimExpr) and isinstance(rhs, PrimExpr) and lhs.dtype != rhs.dtype


class Comparer:
    """One comparison run: variable maps, memo and the current path."""

    def __init__(self, map_free_vars: bool, exact: bool = False) -> None:
        self.map_free_vars = map_free_vars
        self.same_float = _exact_float if exact else _close_float
        self.left: dict[int, Any] = {}
        self.right: dict[int, Any] = {}
        self.memo: set[tuple[int, int, bool]] = set()
        self.keep: list[Any] = []
        self.path: list[_Step] = []
        self.mismatch: Mismatch | None = None

    def fail(self, *extra: _Step) -> bool:
        """Record the first difference, at the current place or ``extra`` steps deeper."""
        if self.mismatch is None:
            steps = [*self.path, *extra]
            self.mismatch = Mismatch(
                _build_path([(step[0], step[1]) for step in steps]), _build_path([(step[2], step[3]) for step in steps])
            )
        return False

    def at(self, name: str, lhs: object, rhs: object, map_free: bool) -> bool:
        """Compare one attribute, remembering how we got there."""
        self.path.append(("attr", name, "attr", name))
        if not self.equal(lhs, rhs, map_free):
            return False
        self.path.pop()
        return True

    def entry(self, left_key: object, right_key: object, lhs: object, rhs: object, map_free: bool) -> bool:
        """Compare one value of two maps."""
        self.path.append(("map_value", left_key, "map_value", right_key))
        if not self.equal(lhs, rhs, map_free):
            return False
        self.path.pop()
        return True

    def equal(self, lhs: object, rhs: object, map_free: bool) -> bool:
        """Compare any two values; ``map_free`` lets unbound variables pair up."""
        if isinstance(lhs, Node) and isinstance(rhs, Node):
            return self._nodes(lhs, rhs, map_free)
        if isinstance(lhs, (tuple, list)) and isinstance(rhs, (tuple, list)):
            return self._sequences(lhs, rhs, map_free)
        if isinstance(lhs, dict) and isinstance(rhs, dict):
            return self._mappings(lhs, rhs, map_free)
        return self._plain(lhs, rhs)

    def _sequences(self, lhs: Sequence[object], rhs: Sequence[object], map_free: bool) -> bool:
        for index, (a, b) in enumerate(zip(lhs, rhs)):
            self.path.append(("array_index", index, "array_index", index))
            if not self.equal(a, b, map_free):
                return False
            self.path.pop()
        if len(lhs) == len(rhs):
            return True
        first = min(len(lhs), len(rhs))
        kinds = ("array_index", "missing_array_element")
        longer, shorter = kinds if len(lhs) > len(rhs) else kinds[::-1]
        return self.fail((longer, first, shorter, first))

    def _plain(self, lhs: object, rhs: object) -> bool:
        if lhs is rhs:
            return True
        if isinstance(lhs, float) and isinstance(rhs, float):
            return True if self.same_float(lhs, rhs) else self._differing_number()
        a, b = _to_numpy(lhs), _to_numpy(rhs)
        if a is not None and b is not None:
            same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            return True if same else self.fail()
        # Attribute values may be a plain number on one side and its constant node on the other.
        for value, node in ((lhs, rhs), (rhs, lhs)):
            if isinstance(node, PrimExpr) and not isinstance(value, Node) and hasattr(node, "value"):
                if type(value) not in (int, float, bool, str):
                    return self.fail()
                same = self.same_float(node.value, value) if isinstance(value, float) else node.value == value
                return True if same else self._differing_number()
        if isinstance(lhs, Node) or isinstance(rhs, Node):
            return self.fail()
        if lhs == rhs:
            return True
        return self._differing_number() if isinstance(lhs, int) and isinstance(rhs, int) else self.fail()

    def _differing_number(self) -> bool:
        """Numbers inside containers are boxed: they differ in their ``value``."""
        boxed = not self.path or self.path[-1][0] != "attr"
        return self.fail(("attr", "value", "attr", "value")) if boxed else self.fail()

    def _mappings(self, lhs: dict[Any, Any], rhs: dict[Any, Any], map_free: bool) -> bool:
        matched = set()
        for key, value in lhs.items():
            other = self.left.get(id(key), key) if isinstance(key, Node) else key
            if other not in rhs:
                return self.fail(("map_value", key, "missing_map_entry", None))
            matched.add(other)
            if not self.entry(key, other, value, rhs[other], map_free):
                return False
        for key in rhs:
            if key not in matched:
                return self.fail(("missing_map_entry", None, "map_value", key))
        return True

    def _variables(self, lhs: Node, rhs: Node, map_free: bool) -> bool:
        known = self.left.get(id(lhs))
        if known is not None or id(rhs) in self.right:
            return True if known is rhs else self.fail()
        if lhs is rhs and not map_free:
            return True
        if _other_dtype(lhs, rhs):
            return self.fail(("attr", "dtype", "attr", "dtype"))
        if not map_free:
            return self.fail()
        self.left[id(lhs)] = rhs
        self.right[id(rhs)] = lhs
        self.keep.append((lhs, rhs))
        return self._fields(lhs, rhs, map_free)

    def _fields(self, lhs: Node, rhs: Node, map_free: bool) -> bool:
        plan = lhs.equality_plan()
        # What a node says of itself is compared before what stands below it.
        for name, role in plan:
            if role == "attr":
                a, b = getattr(lhs, name), getattr(rhs, name)
                if a is not b and isinstance(a, bool | int | float | str) and not self.at(name, a, b, map_free):
                    return False
        for name, role in plan:
            child_map = True if role == "bind" else map_free
            if not self.at(name, getattr(lhs, name), getattr(rhs, name), child_map):
                return False
        return True

    def _nodes(self, lhs: Node, rhs: Node, map_free: bool) -> bool:
        kind = type(lhs)
        if kind is not type(rhs) and not (kind._is_var and kind._type_key == type(rhs)._type_key):
            return self.fail()
        if kind._is_var:
            return self._variables(lhs, rhs, map_free)
        key = (id(lhs), id(rhs), map_free)
        if key in self.memo:
            return True
        if _other_dtype(lhs, rhs):
            return self.fail(("attr", "dtype", "attr", "dtype"))
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

    def hash(self, value: object, map_free: bool) -> int:
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

    def _node(self, node: Node, map_free: bool) -> int:
        kind = type(node)
        if kind._is_var:
            number = self.numbers.get(id(node))
            if number is not None:
                return _mix(29, number)
            if not map_free:
                return _mix(31, id(node) & _MASK)
            self.numbers[id(node)] = number = len(self.numbers)
            self.keep.append(node)
            # What is known of a graph variable defines the symbolic dimensions that occur in it.
            info = getattr(node, "struct_info_", None)
            return _mix(29, number) if info is None else _mix(_mix(29, number), self.hash(info, True))
        key = (id(node), map_free)
        known = self.memo.get(key)
        if known is not None:
            return known
        hook = _hook_of(kind)
        out = hook[1](self, node, map_free) if hook else self._fields(node, map_free)
        self.memo[key] = out
        self.keep.append(node)
        return out

    def _fields(self, node: Node, map_free: bool) -> int:
        out = self.text(type(node)._type_key)
        if isinstance(node, PrimExpr):
            out = _mix(out, self.text(node.dtype))
        for name, role in node.equality_plan():
            out = _mix(out, self.hash(getattr(node, name), True if role == "bind" else map_free))
        return out


def _bytes_hash(array: np.ndarray[Any, Any]) -> int:
    import hashlib

    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return int.from_bytes(hashlib.blake2b(data.data, digest_size=8).digest(), "little")


def structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> bool:
    """Whether two values are equal up to renaming of bound variables.

    With ``map_free_vars`` unbound variables and buffers may pair up as well.

    >>> from relaxish import tir
    >>> from relaxish.ir import structural_equal
    >>> x, y = tir.Var("x"), tir.Var("y")
    >>> structural_equal(x + 1, y + 1), structural_equal(x + 1, y + 1, map_free_vars=True)
    (False, True)
    >>> a, b = tir.decl_buffer((4,)), tir.decl_buffer((4,))
    >>> structural_equal(a[x], b[x]), structural_equal(a[x], b[x], map_free_vars=True)
    (False, True)
    """
    return Comparer(map_free_vars).equal(_object(lhs), _object(rhs), map_free_vars)


def same_expression(lhs: object, rhs: object) -> bool:
    """Whether two expressions (or sequences of them) of one program are the same, down to the last bit of constants.

    Variables and buffers are the same if they are the very same, or views of the same memory declared alike.  Where
    both stand at one point of a program they have one value, unless they have effects.

    >>> from relaxish import tir
    >>> from relaxish.ir.structural import same_expression
    >>> x = tir.Var("x", "float32")
    >>> same_expression(x + 1.0, x + 1.0), same_expression(x * 0.0, x * -0.0)
    (True, False)
    """
    return lhs is rhs or Comparer(False, exact=True).equal(lhs, rhs, False)


def _object(value: object) -> object:
    """What a stand-in (an annotation of the script, a comparison) stands for; any other value as it is."""
    convert = None if isinstance(value, Node) else getattr(value, "asobject", None)
    return value if convert is None else convert()


def get_first_structural_mismatch(lhs: object, rhs: object, map_free_vars: bool = False) -> Mismatch | None:
    """First difference of two values, as the path on either side, or None if they are equal.

    >>> from relaxish.ir import get_first_structural_mismatch
    >>> lhs_path, rhs_path = get_first_structural_mismatch({"tile": [1, 2]}, {"tile": [1]})
    >>> print(lhs_path, rhs_path)
    <root>["tile"][1] <root>["tile"][<missing element #1>]
    """
    run = Comparer(map_free_vars)
    return None if run.equal(_object(lhs), _object(rhs), map_free_vars) else run.mismatch


def assert_structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> None:
    """Raise ValueError unless the two are structurally equal; the message shows both with the difference underlined."""
    lhs, rhs = _object(lhs), _object(rhs)
    found = get_first_structural_mismatch(lhs, rhs, map_free_vars)
    if found is not None:
        # The error's class stands in the text as well, as in messages that come from a native core.
        raise ValueError(
            f"ValueError: StructuralEqual check failed, caused by lhs at {found.lhs_path}:\n"
            f"{_underlined(lhs, found.lhs_path)}\nand rhs at {found.rhs_path}:\n{_underlined(rhs, found.rhs_path)}"
        )


def _underlined(root: object, path: ObjectPath) -> str:
    """The text of a value with one place underlined; containers have no script form and are shown plainly."""
    return root.script(path_to_underline=[path], syntax_sugar=False) if isinstance(root, Node) else str(root)


def structural_hash(node: object, map_free_vars: bool = False) -> int:
    """A 64-bit hash that equal structures share; the same from run to run for closed programs."""
    return Hasher(map_free_vars).hash(_object(node), map_free_vars)


def _equal_global(run: Comparer, lhs: GlobalVar, rhs: GlobalVar, map_free: bool) -> bool:
    return True if lhs.name_hint == rhs.name_hint else run.fail()


def _hash_global(run: Hasher, node: GlobalVar, map_free: bool) -> int:
    return run.text("@" + node.name_hint)


register_structural_hooks(GlobalVar, _equal_global, _hash_global)


def _equal_pointer(run: Comparer, lhs: PointerType, rhs: PointerType, map_free: bool) -> bool:
    """Memory named "global" and memory of no name are the same."""
    return run.at("element_type", lhs.element_type, rhs.element_type, map_free) and run.at(
        "storage_scope", lhs.storage_scope or "global", rhs.storage_scope or "global", map_free
    )


def _hash_pointer(run: Hasher, node: PointerType, map_free: bool) -> int:
    return _mix(run.hash(node.element_type, map_free), run.text(node.storage_scope or "global"))


register_structural_hooks(PointerType, _equal_pointer, _hash_pointer)
