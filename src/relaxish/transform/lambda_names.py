"""Names in the module for local functions that are lifted to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.module import IRModule, functions_of
from ..relax.expr import Function, VarBinding
from ..relax.expr_functor import PyExprVisitor
from ..support.errors import RelaxishError
from .base import symbol_of

__all__ = ["names_of_local_functions"]

_Namer = Callable[[Function, Sequence[str]], "str | None"]


class _Finder(PyExprVisitor):
    """The local functions and where they are: the names of the functions around them, outermost first."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.path: list[str] = []
        self.places: dict[Function, tuple[str, ...]] = {}
        self.public: dict[str, str] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        func = binding.value
        if not isinstance(func, Function):
            super().visit_var_binding_(binding)
            return
        symbol = symbol_of(func)
        if symbol is not None:
            self._check_symbol(symbol)
            self.public[symbol] = self.path[0]
        self.path.append(binding.var.name_hint)
        self.places[func] = tuple(self.path)
        super().visit_var_binding_(binding)
        self.path.pop()

    def _check_symbol(self, symbol: str) -> None:
        where = f'Function {self.path[0]} contains a local function with the global_symbol "{symbol}"'
        if symbol in self.taken:
            raise RelaxishError(f"{where}, but the module already has a function of that name")
        if symbol in self.public:
            raise RelaxishError(f"{where}, but so does function {self.public[symbol]}")


def names_of_local_functions(mod: IRModule) -> dict[Function, str]:
    """A unique name for each local function of the module.

    The first that is free of: its ``global_symbol``; ``<outermost function>_<variable>``; all names on the way to it;
    the second with a number.  Raises RelaxishError if a ``global_symbol`` is taken.
    """
    finder = _Finder({var.name_hint for var in mod.functions})
    for var, func in functions_of(mod, Function):
        finder.path.append(var.name_hint)
        finder.visit_expr(func)
        finder.path.pop()
    left = dict(finder.places)
    names: dict[Function, str] = {}
    counts: dict[str, int] = {}

    def numbered(func: Function, place: Sequence[str]) -> str:
        base = f"{place[0]}_{place[-1]}"
        number = counts[base] = counts.get(base, -1) + 1
        return f"{base}_{number}"

    schemes: list[_Namer] = [
        lambda func, place: symbol_of(func),
        lambda func, place: f"{place[0]}_{place[-1]}",
        lambda func, place: None if len(place) == 2 else "_".join(place),
        numbered,
    ]
    for scheme in schemes:
        proposed: dict[str, list[Function]] = {}
        for func, place in left.items():
            name = scheme(func, place)
            if name is not None and name not in finder.taken:
                proposed.setdefault(name, []).append(func)
        for name, found in proposed.items():
            if len(found) == 1:
                names[found[0]] = name
                del left[found[0]]
    if left:
        raise RelaxishError(f"no free names for the local functions at {[list(p) for p in left.values()]}")
    return names
