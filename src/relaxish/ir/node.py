"""IR nodes: small slotted classes whose *field roles* derive everything else.

A node class is a subclass of :class:`Node` with annotated fields.  From the annotations come ``__slots__``,
``__init__`` (with conversions), visiting, rebuilding, structural equality and hash, and JSON.  Nothing is
written twice::

    class For(Stmt):
        loop_var: Var = field(role="bind")
        min: PrimExpr = field(conv=as_expr)
        ...

Roles: ``child`` is compared and visited; ``bind`` is a child that *defines* variables (so equality may map
them); ``attr`` is compared but holds no nodes; ``ignore`` is neither compared nor visited (names, spans);
``cache`` (declared by :func:`cached`) is not even a constructor argument: derived or mutable facts such as an
inferred dtype.

Type checkers know constructors and fields from the same declarations (``dataclass_transform``): a field whose
conversion takes more than the field holds says so, ``min: Converted[PrimExpr, ExprLike] = field(conv=as_expr)``.

A class declared with ``class Stmt(Node, checked=True)``, and those derived from it, accept in each field that has no
conversion only what its annotation says, where that is a node class known at the definition.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

from typing_extensions import Self, dataclass_transform

from ..support import entry_points
from .errors import CheckTypeError

__all__ = ["Converted", "FieldSpec", "MISSING", "Node", "NodeMeta", "cached", "field", "node_class"]

MISSING: Any = object()
#: Whether to look out for mistakes at the cost of time.
CHECK = os.environ.get("RELAXISH_CHECK", "") not in ("", "0")
_REGISTRY: dict[str, type[Node]] = {}
_Held = TypeVar("_Held")
_Taken = TypeVar("_Taken")


class FieldSpec:
    """Declaration of one field of a node class: its role, default and argument conversion."""

    __slots__ = ("conv", "default", "expects", "name", "role")

    def __init__(self, role: str, default: Any, conv: Callable[[Any], Any] | None) -> None:
        if role not in ("child", "bind", "attr", "ignore", "cache"):
            raise ValueError(f"unknown field role {role!r}")
        self.name = ""
        self.role = role
        self.default = default
        self.conv = conv
        self.expects: type[Node] | None = None


class Converted(Generic[_Held, _Taken]):
    """The type of a field that holds one type and whose conversion takes another: for annotations only."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, node: None, owner: type) -> Self: ...
        @overload
        def __get__(self, node: object, owner: type) -> _Held: ...
        def __get__(self, node: object, owner: type) -> Any: ...
        def __set__(self, node: object, value: _Taken) -> None: ...


def field(
    *,
    role: str = "child",
    default: Any = MISSING,
    conv: Callable[[Any], Any] | None = None,
    kw_only: bool = False,
    init: Literal[True] = True,
) -> Any:
    """Declare a node field; see the module docstring for the roles.

    ``kw_only`` is read by type checkers alone: a field with a default that a base class declares (``span``) can then
    be followed by fields of derived classes without one. Constructors take it as their last argument all the same.
    """
    return FieldSpec(role, default, conv)


def cached(*, default: Any = MISSING, init: Literal[False] = False) -> Any:
    """Declare a derived or mutable fact: no constructor argument, neither compared nor visited."""
    return FieldSpec("cache", default, None)


def _expected(annotation: str, namespace: dict[str, Any]) -> type[Node] | None:
    """The node class that an annotation names, if it is a plain name that is known already."""
    found: Any = vars(sys.modules[namespace["__module__"]]).get(annotation)
    return found if isinstance(found, NodeMeta) else None  # type: ignore[return-value]


def _stood_for(owner: object, name: str, value: object, expected: type[Node]) -> Node:
    """The node that an object of a user stands for (``asobject``). Raises CheckTypeError for everything else."""
    convert: Callable[[], object] | None = getattr(value, "asobject", None)
    found = value if convert is None else convert()
    if isinstance(found, expected):
        return found
    raise CheckTypeError(
        f"{type(owner).__name__} expects a {expected.__name__} as its {name}, but got {type(value).__name__}"
    )


def _collect(
    bases: tuple[type, ...], namespace: dict[str, Any], checked: bool
) -> tuple[dict[str, FieldSpec], list[str]]:
    specs: dict[str, FieldSpec] = {}
    for base in reversed(bases):
        specs.update(getattr(base, "_specs", {}))
    own: list[str] = []
    for name, annotation in namespace.get("__annotations__", {}).items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        value = namespace.pop(name, MISSING)
        spec = value if isinstance(value, FieldSpec) else FieldSpec("child", value, None)
        spec.name = name
        if checked and spec.conv is None:
            spec.expects = _expected(str(annotation), namespace)
        if name not in specs:
            own.append(name)
        specs.pop(name, None)
        specs[name] = spec
    # Source positions are always the last constructor argument.
    if "span" in specs:
        specs["span"] = specs.pop("span")
    return specs, own


def _make_init(specs: dict[str, FieldSpec], has_post_init: bool, set_once: bool) -> Callable[..., None]:
    """The constructor; where fields are ``set_once`` it sets them without asking whether they are set."""
    params: list[str] = []
    lines: list[str] = []
    scope: dict[str, Any] = {"_stood_for": _stood_for, "_set": object.__setattr__}
    store = "    _set(self, '{0}', {1})" if set_once else "    self.{0} = {1}"
    for name, spec in specs.items():
        if spec.role == "cache":
            scope[f"_d_{name}"] = None if spec.default is MISSING else spec.default
            lines.append(store.format(name, f"_d_{name}"))
            continue
        if spec.default is MISSING:
            params.append(name)
        else:
            scope[f"_d_{name}"] = spec.default
            params.append(f"{name}=_d_{name}")
        if spec.conv is not None:
            scope[f"_c_{name}"] = spec.conv
            lines.append(store.format(name, f"_c_{name}({name})"))
        else:
            if spec.expects is not None:
                scope[f"_t_{name}"] = spec.expects
                lines.append(
                    f"    if not isinstance({name}, _t_{name}): {name} = _stood_for(self, '{name}', {name}, _t_{name})"
                )
            lines.append(store.format(name, name))
    if has_post_init:
        lines.append("    self.__post_init__()")
    source = f"def __init__(self, {', '.join(params)}):\n" + ("\n".join(lines) or "    pass")
    exec(source, scope)
    made: Callable[..., None] = scope["__init__"]
    return made


def _set_once(fixed: frozenset[str]) -> Callable[[Node, str, Any], None]:
    """A ``__setattr__`` that refuses to set a field of ``fixed`` twice. Every field of every node passes through it in
    tests, so that it asks as little as it can."""
    store = object.__setattr__

    def set_once(self: Node, name: str, value: Any) -> None:
        if name in fixed and hasattr(self, name):
            raise AttributeError(
                f"{type(self).__name__}.{name} is immutable; make a changed copy with .with_fields({name}=...)"
            )
        store(self, name, value)

    return set_once


@dataclass_transform(field_specifiers=(field, cached))
class NodeMeta(type):
    """Turns annotations into slots, a constructor and the field tables."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], checked: bool = False, **kwargs: Any
    ) -> NodeMeta:
        checked = checked or any(getattr(base, "_checked", False) for base in bases)
        namespace["_checked"] = checked
        specs, own = _collect(bases, namespace, checked)
        extra = tuple(namespace.pop("__extra_slots__", ()))
        namespace["__slots__"] = tuple(own) + extra
        namespace["_specs"] = specs
        namespace["_fields"] = tuple(n for n, s in specs.items() if s.role != "cache")
        namespace["_child_fields"] = tuple(n for n, s in specs.items() if s.role in ("child", "bind"))
        order = namespace.get("_equal_order") or tuple(
            n for n, s in specs.items() if s.role in ("child", "bind", "attr")
        )
        namespace["_equal_plan"] = tuple((n, specs[n].role) for n in order)
        has_post_init = "__post_init__" in namespace or any(hasattr(b, "__post_init__") for b in bases)
        # A class that adds no fields keeps the constructor it inherits, hand-written ones included.
        adds = bool(namespace.get("__annotations__")) or "__post_init__" in namespace
        set_once = CHECK and "__setattr__" not in namespace
        if "__init__" not in namespace and specs and adds:
            namespace["__init__"] = _make_init(specs, has_post_init, set_once)
        if set_once:
            namespace["__setattr__"] = _set_once(
                frozenset(n for n, s in specs.items() if s.role not in ("cache", "ignore"))
            )
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        key = namespace.get("_type_key") or f"{cls.__module__.split('.')[1] if '.' in cls.__module__ else ''}.{name}"
        cls._type_key = key  # type: ignore[attr-defined]
        _REGISTRY.setdefault(key, cls)  # type: ignore[arg-type]
        return cls


class Node(metaclass=NodeMeta):
    """Base of everything in the IR: identity equality, field-driven everything else."""

    __extra_slots__: ClassVar[tuple[str, ...]] = ("__weakref__",)

    _specs: ClassVar[dict[str, FieldSpec]]
    _fields: ClassVar[tuple[str, ...]]
    _child_fields: ClassVar[tuple[str, ...]]
    _equal_plan: ClassVar[tuple[tuple[str, str], ...]]
    _equal_order: ClassVar[tuple[str, ...]] = ()
    _type_key: ClassVar[str]
    _is_var: ClassVar[bool] = False

    def equality_plan(self) -> tuple[tuple[str, str], ...]:
        """The fields that structural equality compares, in order, each with its role."""
        return self._equal_plan

    if TYPE_CHECKING:

        def _rewritten(self) -> Self:
            """What a rewrite of the node may be, for type checkers: by default a node of the same class.

            Roots whose nodes become others of their kind (an expression any expression) say so by overriding it.
            """

    def same_as(self, other: object) -> bool:
        """Whether both are the very same object."""
        return self is other

    @classmethod
    def _make(cls, **fields: Any) -> Self:
        """Build from field values; a class whose constructor takes other arguments overrides this."""
        return cls(**fields)

    def with_fields(self, **changes: Any) -> Self:
        """A copy with some fields replaced; derived facts are computed anew."""
        values = {name: getattr(self, name) for name in self._fields}
        values.update(changes)
        return self._make(**values)

    def iter_children(self) -> Iterator[Any]:
        """The values of all child fields, in order (tuples and dicts are not opened)."""
        for name in self._child_fields:
            yield getattr(self, name)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        serial = entry_points.load("serial")
        return serial.load_json, (serial.save_json(self),)

    def __getstate__(self) -> dict[str, str]:
        """All fields as JSON, under ``handle``."""
        return {"handle": entry_points.load("serial").save_json(self)}

    def __setstate__(self, state: Mapping[str, str]) -> None:
        """Take copies of all fields from a state; nothing below this node is shared with the node that it was made of."""
        made = entry_points.load("serial").load_json(state["handle"])
        if type(made) is not type(self):
            raise CheckTypeError(f"the state of a {type(made).__name__} is not one of a {type(self).__name__}")
        for name in self._specs:
            object.__setattr__(self, name, getattr(made, name, None))

    def __str__(self) -> str:
        return self.script()

    def __repr__(self) -> str:
        return self.script()

    def script(self, **config: Any) -> str:
        """The node as TVMScript text; ``config`` takes the fields of ``PrinterConfig``."""
        from .printing import render

        return render(self, config)

    def _relax_script(self, **config: Any) -> str:
        """As :meth:`script`, with types in the form that graph functions have them: ``R.Tuple(R.Object)``."""
        return self.script(dialect="relax", **config)

    def show(self, style: str | None = None, black_format: bool | None = None, **config: Any) -> None:
        """Print the node as highlighted TVMScript."""
        from .printing import show

        show(self, style, black_format, config)


def register_object(type_key: str | type | None = None) -> type | Callable[[type], type]:
    """Give a node class the key by which JSON names it; usable with or without the key.

    >>> from relaxish.ir.node import Node, field, register_object
    >>> @register_object("doc.Pair")
    ... class Pair(Node):
    ...     left: int = field(role="attr")
    ...     right: int = field(role="attr")
    >>> from relaxish import ir
    >>> ir.load_json(ir.save_json(Pair(1, 2))).right
    2
    """

    def register(cls: type, key: str | None = None) -> type:
        cls._type_key = key or cls.__name__  # type: ignore[attr-defined]
        _REGISTRY[cls._type_key] = cls  # type: ignore[attr-defined]
        return cls

    if isinstance(type_key, type):
        return register(type_key)
    return lambda cls: register(cls, type_key)


def node_class(type_key: str) -> type[Node]:
    """The node class registered under ``layer.ClassName``. Raises KeyError."""
    if type_key not in _REGISTRY and entry_points.available(layer := f"nodes.{type_key.partition('.')[0]}"):
        # A program read from a file may be the first thing in this process that needs its layer.
        entry_points.load(layer)
    return _REGISTRY[type_key]
