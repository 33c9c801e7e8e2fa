"""Operator identities. What an operator *does* is registered beside them by the layers above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TYPE_CHECKING, TypeVar

from .expr import RelaxExpr
from .node import cached, field

if TYPE_CHECKING:
    from .source import Span

__all__ = ["Op", "op_name_of", "register_intrin_lowering", "register_op_attr"]

_T = TypeVar("_T")

_TABLE: dict[str, Op] = {}

#: What the layers above do when an attribute is set (or reset: to None).
ATTR_HOOKS: dict[str, Callable[[Op, Any], None]] = {}

#: Fillers of the table by the first part of an operator's name, called when such an operator is asked for and missing.
LOADERS: dict[str, Callable[[], None]] = {}


class Op(RelaxExpr):
    """A named operator, e.g. ``relax.add`` or ``tir.exp``; one object a name."""

    name: str = field(role="attr")
    attr_map: dict[str, Any] = cached(default=None)
    levels: dict[str, int] = cached(default=None)

    def __init__(self, name: str, span: Span | None = None) -> None:
        self.name = name
        self.span = span
        self.struct_info_ = None
        self.attr_map = {}
        self.levels = {}

    @classmethod
    def _make(cls, **fields: Any) -> Op:
        return _TABLE[fields["name"]]

    @staticmethod
    def get(op_name: str) -> Op:
        """The operator of that name. Raises AttributeError if none is registered."""
        if op_name not in _TABLE:
            load = LOADERS.get(op_name.partition(".")[0])
            if load is not None:
                load()
        try:
            return _TABLE[op_name]
        except KeyError:
            raise AttributeError(f"Operator {op_name} is not registered") from None

    @staticmethod
    def exists(op_name: str) -> bool:
        """Whether such an operator is registered."""
        return op_name in _TABLE

    @staticmethod
    def register(op_name: str) -> Op:
        """Get or make the operator of that name."""
        if op_name not in _TABLE:
            _TABLE[op_name] = Op(op_name)
        return _TABLE[op_name]

    @staticmethod
    def list_op_names() -> list[str]:
        """All names, sorted."""
        return sorted(_TABLE)

    def get_attr(self, attr_name: str) -> Any:
        """A registered attribute, or None."""
        return self.attr_map.get(attr_name)

    def has_attr(self, attr_name: str) -> bool:
        """Whether the attribute is set."""
        return attr_name in self.attr_map

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Set an attribute; a lower ``plevel`` never replaces a higher one."""
        if plevel < self.levels.get(attr_name, plevel):
            return
        self.levels[attr_name] = plevel
        self.attr_map[attr_name] = value
        if attr_name in ATTR_HOOKS:
            ATTR_HOOKS[attr_name](self, value)

    def reset_attr(self, attr_name: str) -> None:
        """Remove an attribute."""
        self.levels.pop(attr_name, None)
        if self.attr_map.pop(attr_name, None) is not None and attr_name in ATTR_HOOKS:
            ATTR_HOOKS[attr_name](self, None)

    def __call__(self, *args: Any) -> Any:
        from .expr import CALL_GLOBAL

        return CALL_GLOBAL(self, args)


def op_name_of(expr: object) -> str:
    """The full name of the operator that an expression calls; empty where it is no call, or one of a function."""
    op = getattr(expr, "op", None)
    return op.name if type(op) is Op else ""


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Attach an attribute to an operator; without ``value``, returns a decorator."""

    def attach(item: _T) -> _T:
        Op.register(op_name).set_attr(attr_key, item, level)
        return item

    return attach if value is None else attach(value)


def register_intrin_lowering(op_name: str, target: str, *, f: Callable[..., Any] | None = None, level: int = 10) -> Any:
    """Say how an intrinsic is lowered on one kind of target."""
    return register_op_attr(op_name, f"{target}.FLowerIntrinsic", f, level)
