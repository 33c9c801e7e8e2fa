"""IRModule: named functions of both levels, with attributes and global information."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from .attrs import DictAttrs
from .expr import BaseFunc, GlobalVar
from .node import Node, field
from .structural import Comparer, Hasher, _mix, register_structural_hooks

__all__ = ["IRModule", "functions_of"]

_F = TypeVar("_F", bound=BaseFunc)


class IRModule(Node):
    """Functions by :class:`GlobalVar`; lookups take the variable or its name.

    Functions are immutable, the table is not: ``mod["f"] = func`` replaces an entry in place, while passes
    work on ``clone()``s.
    """

    functions: dict[GlobalVar, BaseFunc]
    attrs: Any = field(default=None)
    global_infos: dict[str, tuple[Any, ...]] = field(default=None)
    # `__name__` is the Python name of the class that was decorated; only script sets it.
    __extra_slots__ = ("_by_name", "__name__")

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | DictAttrs | None = None,
        global_infos: Mapping[str, Iterable[Any]] | None = None,
        type_definitions: Any = None,
    ) -> None:
        table: dict[GlobalVar, BaseFunc] = {}
        for key, func in (functions or {}).items():
            if isinstance(key, str):
                key = GlobalVar(key)
            if not isinstance(key, GlobalVar):
                raise TypeError(f"functions of an IRModule are keyed by str or GlobalVar, not {type(key).__name__}")
            _link(key, func)
            table[key] = func
        self._by_name = {v.name_hint: v for v in table}
        self.functions = table
        self.attrs = attrs if isinstance(attrs, DictAttrs) else DictAttrs(attrs)
        self.global_infos = {k: tuple(v) for k, v in (global_infos or {}).items()}

    @classmethod
    def _make(cls, **fields: Any) -> IRModule:
        return cls(fields["functions"], fields.get("attrs"), fields.get("global_infos"))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def clone(self) -> IRModule:
        """A module with the same functions whose table can be changed independently."""
        return IRModule(self.functions, self.attrs, self.global_infos)

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """Pairs, sorted by name."""
        return sorted(self.functions.items(), key=lambda item: item[0].name_hint)

    def get_global_var(self, name: str) -> GlobalVar:
        """The variable of that name. Raises ValueError if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise ValueError(f"Cannot find global var {name!r} in the module; it has {sorted(self._by_name)}") from None

    def get_global_vars(self) -> list[GlobalVar]:
        """All variables, sorted by name."""
        return [v for v, _ in self.functions_items()]

    def _key(self, key: GlobalVar | str) -> GlobalVar:
        if isinstance(key, GlobalVar):
            if key in self.functions:
                return key
            return self.get_global_var(key.name_hint)
        return self.get_global_var(key)

    def __getitem__(self, key: GlobalVar | str) -> Any:
        return self.functions[self._key(key)]

    def __contains__(self, key: object) -> bool:
        return getattr(key, "name_hint", key) in self._by_name

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __setitem__(self, key: GlobalVar | str, func: BaseFunc) -> None:
        self._set_func(key, func)

    def _set_func(self, key: GlobalVar | str, func: BaseFunc) -> None:
        name = key if isinstance(key, str) else key.name_hint
        var = self._by_name.get(name)
        if var is None or (isinstance(key, GlobalVar) and key is not var):
            if var is not None:
                del self.functions[var]
            var = key if isinstance(key, GlobalVar) else GlobalVar(name)
            self._by_name[name] = var
        _link(var, func)
        self.functions[var] = func

    def __delitem__(self, key: GlobalVar | str) -> None:
        var = self._key(key)
        del self.functions[var]
        del self._by_name[var.name_hint]

    def items(self) -> ItemsView[GlobalVar, BaseFunc]:
        """Pairs of variable and function, in insertion order."""
        return self.functions.items()

    def update(self, other: IRModule | Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc]) -> None:
        """Add or replace the functions of another module or mapping."""
        for key, func in (other.functions if isinstance(other, IRModule) else other).items():
            self._set_func(key, func)

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        """Add or replace one function."""
        self._set_func(var, func)

    def update_global_info(self, name: str, global_info: Iterable[Any]) -> None:
        """Set one group of global information."""
        self.global_infos[name] = tuple(global_info)

    def replace_global_vars(self, replacements: Mapping[Any, Any]) -> IRModule:
        """A module in which global variables are renamed, in keys and in bodies; this one if there are none."""
        from .functor import Mutator

        if not replacements:
            return self

        mapping: dict[str, GlobalVar] = {}
        for old, new in replacements.items():
            old_name = old if isinstance(old, str) else old.name_hint
            mapping[old_name] = GlobalVar(new) if isinstance(new, str) else new

        class Rename(Mutator):
            def visit_GlobalVar(self, var: GlobalVar) -> GlobalVar:
                return mapping.get(var.name_hint, var)

        rename = Rename()
        out: dict[GlobalVar, BaseFunc] = {}
        for var, func in self.functions.items():
            new_func: Any = rename.visit(func)
            target = mapping.get(var.name_hint, var)
            if target is not var and new_func.attrs is not None and "global_symbol" in new_func.attrs:
                new_func = new_func.with_attr("global_symbol", target.name_hint)
            out[target] = new_func
        return IRModule(out, self.attrs, self.global_infos)

    @staticmethod
    def from_expr(expr: BaseFunc, functions: Mapping[Any, BaseFunc] | None = None, type_defs: Any = None) -> IRModule:
        """A module around one function, named by its global symbol or ``main``."""
        name = expr.attrs["global_symbol"] if expr.attrs is not None and "global_symbol" in expr.attrs else "main"
        table: dict[Any, BaseFunc] = dict(functions or {})
        table[str(name)] = expr
        return IRModule(table)

    def get_attr(self, attr_key: str) -> Any:
        """A module attribute, or None."""
        return self.attrs.get(attr_key) if self.attrs is not None else None

    def with_attr(self, attr_key: str, attr_value: Any) -> IRModule:
        """A copy with one attribute set."""
        attrs = dict(self.attrs) if self.attrs is not None else {}
        attrs[attr_key] = attr_value
        return IRModule(self.functions, DictAttrs(attrs), self.global_infos)

    def with_attrs(self, attr_map: Mapping[str, Any]) -> IRModule:
        """A copy with several attributes set."""
        attrs = dict(self.attrs) if self.attrs is not None else {}
        attrs.update(attr_map)
        return IRModule(self.functions, DictAttrs(attrs), self.global_infos)

    def without_attr(self, attr_key: str) -> IRModule:
        """A copy without one attribute."""
        attrs = {k: v for k, v in (self.attrs.items() if self.attrs is not None else ()) if k != attr_key}
        return IRModule(self.functions, DictAttrs(attrs), self.global_infos)

    def astext(self, show_meta_data: bool = True, annotate: Callable[[Node], str] | None = None) -> str:
        """Text form."""
        return self.script(show_meta=show_meta_data)


def functions_of(mod: IRModule, kind: type[_F]) -> list[tuple[GlobalVar, _F]]:
    """The functions of one class with their variables, in the module's order, as they are now: a loop over them may
    replace them.
    """
    return [(var, func) for var, func in mod.functions.items() if isinstance(func, kind)]


def _link(var: GlobalVar, func: BaseFunc) -> None:
    if var.struct_info_ is None and getattr(func, "struct_info_", None) is not None:
        var.struct_info_ = func.struct_info_


def _equal(run: Comparer, lhs: IRModule, rhs: IRModule, map_free: bool) -> bool:
    if len(lhs.functions) != len(rhs.functions):
        return run.fail()
    run.path.append(("attr", "functions", "attr", "functions"))
    for var, func in lhs.functions.items():
        if var.name_hint not in rhs:
            return run.fail(("map_value", var, "missing_map_entry", None))
        other = rhs.get_global_var(var.name_hint)
        if not run.entry(var, other, func, rhs.functions[other], map_free):
            return False
    run.path.pop()
    run.path.append(("attr", "attrs", "attr", "attrs"))
    if not run.at("__dict__", _attrs(lhs), _attrs(rhs), map_free):
        return False
    run.path.pop()
    return run.at("global_infos", lhs.global_infos, rhs.global_infos, map_free)


def _attrs(mod: IRModule) -> dict[str, Any]:
    return dict(mod.attrs) if mod.attrs is not None else {}


def _hash(run: Hasher, mod: IRModule, map_free: bool) -> int:
    out = _mix(37, run.hash(_attrs(mod), map_free))
    for var, func in mod.functions_items():
        out = _mix(_mix(out, run.text(var.name_hint)), run.hash(func, map_free))
    return out


def _attrs_dict(attrs: DictAttrs) -> dict[str, Any]:
    return dict(attrs.values)


def _equal_attrs(run: Comparer, lhs: DictAttrs, rhs: DictAttrs, map_free: bool) -> bool:
    return run.at("__dict__", _attrs_dict(lhs), _attrs_dict(rhs), map_free)


def _hash_attrs(run: Hasher, attrs: DictAttrs, map_free: bool) -> int:
    return run.hash({k: _plain(v) for k, v in attrs.values.items()}, map_free)


def _plain(value: Any) -> object:
    """Constants as plain numbers, because equality takes the two for the same."""
    from .prim import FloatImm, IntImm, StringImm

    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return value.value
    match value:
        case tuple() | list():
            return tuple(_plain(v) for v in value)
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case bool():
            return int(value)
    return value


register_structural_hooks(IRModule, _equal, _hash)
register_structural_hooks(DictAttrs, _equal_attrs, _hash_attrs)
