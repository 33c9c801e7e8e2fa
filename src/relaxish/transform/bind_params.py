"""BindParams and BindSymbolicVars: fix parameters and symbolic dimensions at compile time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.prim import Var as TirVar
from ..relax.analysis.variables import defined_symbolic_vars
from ..relax.binding_tools import bind_params, bind_symbolic_vars
from ..relax.expr import Constant, Expr, Function
from ..runtime.arrays.ndarray import NDArray
from ..support.errors import InternalError
from .base import map_relax_functions, symbol_of
from ..ir.declared_pass import ModuleRewrite

__all__ = ["BindParams", "BindSymbolicVars"]


def _constant(value: NDArray | str | np.ndarray[Any, Any]) -> Expr | NDArray:
    if isinstance(value, np.ndarray):
        return Constant(value)
    if not isinstance(value, (NDArray, Constant)):
        raise AssertionError(
            f"param values are expected to be NDArray, numpy.ndarray or relax.Constant, but got {type(value)}"
        )
    return value


class BindParams(ModuleRewrite):
    """Replace parameters of one function (by name or variable) with constants; they leave its signature.

    ::

        def main(x, w):                       ->    def main(x):
            gv = R.matmul(x, w)                         gv = R.matmul(x, R.const(...))

    A public function is meant by its ``global_symbol``, a private one by its name in the module; a module without it
    stays as it is.  Raises AssertionError for values that are no arrays.
    """

    func_name: str
    params: Mapping[Any, Any]

    def __post_init__(self) -> None:
        self._settle(params={key: _constant(value) for key, value in self.params.items()})

    def rewrite(self, mod: IRModule) -> IRModule:
        def bind(var: GlobalVar, func: Function) -> Function:
            name = symbol_of(func) or var.name_hint
            return bind_params(func, self.params) if name == self.func_name else func

        return map_relax_functions(mod, bind)


def _of_module(mod: IRModule, binding_map: Mapping[Any, Any]) -> IRModule:
    """Every function with those bindings that name symbols of it."""
    for key in binding_map:
        if not isinstance(key, (str, TirVar)):
            raise InternalError(
                f"Expected symbolic variable to be a tir::Var or a string name, but {key} was of type "
                f"{type(key).__name__}"
            )
    used: set[Any] = set()

    def bind(_: GlobalVar, func: Function) -> Function:
        symbols = defined_symbolic_vars(func)
        names = {s.name for s in symbols}
        own = {
            k: v for k, v in binding_map.items() if (k in names if isinstance(k, str) else any(k is s for s in symbols))
        }
        used.update(own)
        return bind_symbolic_vars(func, own)

    made = map_relax_functions(mod, bind)
    unused = [key for key in binding_map if key not in used]
    if unused:
        raise InternalError(
            f"Binding map contains keys {unused}, which did not correspond to any symbolic variables in the module."
        )
    return made


class BindSymbolicVars(ModuleRewrite, name="relax.BindSymbolicVars"):
    """Replace symbolic dimensions (by name or variable), in one function or in all that have them.

    ``BindSymbolicVars({"n": 16})``::

        def main(x: R.Tensor(("n", 4), "float32"))    ->    def main(x: R.Tensor((16, 4), "float32"))

    Raises InternalError for a key that no function knows.
    """

    binding_map: Mapping[Any, Any]
    func_name: str | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        if self.func_name is None:
            return _of_module(mod, self.binding_map)
        var = mod.get_global_var(self.func_name)
        out = mod.clone()
        out.update_func(var, bind_symbolic_vars(mod[var], self.binding_map))
        return out
