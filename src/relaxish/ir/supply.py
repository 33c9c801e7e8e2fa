"""Supplies of unused names: for variables and files in general, and for the functions of a module."""

from __future__ import annotations

from .expr import GlobalVar
from .module import IRModule

__all__ = ["GlobalVarSupply", "NameSupply"]


class NameSupply:
    """Hands out names that were not handed out before.

    >>> from relaxish.ir.supply import NameSupply
    >>> names = NameSupply("lib")
    >>> names.fresh_name("conv"), names.fresh_name("conv"), names.fresh_name("conv", add_prefix=False)
    ('lib_conv', 'lib_conv_1', 'conv')
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._next: dict[str, int] = {}

    def _full(self, name: str, add_prefix: bool) -> str:
        name = f"{self.prefix}_{name}" if add_prefix and self.prefix else name
        return "".join(c if c.isalnum() and c.isascii() else "_" for c in name)

    def fresh_name(self, name: str, add_prefix: bool = True) -> str:
        """An unused name that starts with ``name``."""
        return self.fresh_as_is(self._full(name, add_prefix))

    def fresh_as_is(self, name: str) -> str:
        """As :meth:`fresh_name`, but neither prefixed nor made an identifier."""
        if name not in self._next:
            self._next[name] = 1
            return name
        while True:
            candidate = f"{name}_{self._next[name]}"
            self._next[name] += 1
            if candidate not in self._next:
                self._next[candidate] = 1
                return candidate

    def reserve_name(self, name: str, add_prefix: bool = True) -> str:
        """Keep a name from being handed out; the name with the prefix is returned."""
        full = self._full(name, add_prefix)
        self._next.setdefault(full, 1)
        return full

    def contains_name(self, name: str, add_prefix: bool = True) -> bool:
        """Whether a name is in use."""
        return self._full(name, add_prefix) in self._next


class GlobalVarSupply:
    """Hands out global variables whose names no function of the given modules has."""

    def __init__(self, value: NameSupply | IRModule | list[IRModule] | None = None) -> None:
        self.names = value if isinstance(value, NameSupply) else NameSupply()
        self._known: dict[str, GlobalVar] = {}
        modules = [value] if isinstance(value, IRModule) else value if isinstance(value, list) else []
        for module in modules:
            for var in module.get_global_vars():
                self.reserve_global(var, allow_conflict=True)

    def fresh_global(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """A variable of an unused name."""
        var = GlobalVar(self.names.fresh_name(name, add_prefix))
        self._known[var.name_hint] = var
        return var

    def unique_global_for(self, name: str, add_prefix: bool = True) -> GlobalVar:
        """The one variable of that name, made at the first call."""
        full = self.names.reserve_name(name, add_prefix)
        return self._known.setdefault(full, GlobalVar(full))

    def reserve_global(self, global_var: GlobalVar, allow_conflict: bool = False) -> None:
        """Take a variable as the one of its name. Raises ValueError if there is another, unless conflicts are allowed."""
        known = self._known.get(global_var.name_hint)
        if known is not None and known is not global_var and not allow_conflict:
            raise ValueError(f"GlobalVar {global_var.name_hint} already exists in this supply.")
        self.names.reserve_name(global_var.name_hint, False)
        self._known[global_var.name_hint] = global_var
