"""RunCodegen: functions marked for an external code generator are handed to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..relax.analysis.variables import post_order_visit
from ..relax.expr import Call, Constant, Expr, ExternFunc, Function, Tuple
from ..relax.expr_functor import PyExprMutator
from ..runtime.registry import get_global_func
from ..support.errors import RelaxishError
from ..support.sequences import of_kind
from .base import symbol_of
from .dead_code_elimination import eliminate
from ..ir.plain import plain_str
from ..ir.declared_pass import ModuleRewrite

__all__ = ["RunCodegen"]


def _codegen_of(func: Expr) -> str | None:
    name = func.attrs.get("Codegen") if isinstance(func, Function) else None
    return None if name is None else plain_str(name)


class _Runner(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.externs: dict[str, str] = {}
        self.constants: dict[Constant, str] = {}

    def visit_call_(self, op: Call) -> Expr:
        from ..relax.call_forms import call_dps_packed

        call = super().visit_call_(op)
        if not isinstance(call.op, GlobalVar) or call.op not in self.mod:
            return call
        func = self.mod[call.op]
        codegen, symbol = _codegen_of(func), symbol_of(func)
        if codegen is None or symbol is None:
            return call
        if call.op.name_hint not in self.externs:
            self.externs[call.op.name_hint] = symbol
            self._name_constants(func, symbol, codegen)
            # Without these the function is private and goes once nothing calls it.
            bare = func.without_attr("global_symbol").without_attr("Codegen")
            self.builder_.update_func(call.op, bare)
        info = op.struct_info_ or func.ret_struct_info
        return call_dps_packed(ExternFunc(symbol), Tuple(call.args), info)

    def _name_constants(self, func: Function, symbol: str, codegen: str) -> None:
        count = 0

        def note(expr: Expr) -> None:
            nonlocal count
            if isinstance(expr, Constant):
                self.constants[expr] = f"{symbol}_{codegen}_const_{count}"
                count += 1

        post_order_visit(func.body, note)


def _invoke(mod: IRModule, options: Mapping[str, Any], constants: Mapping[Constant, str]) -> list[Any]:
    by_codegen: dict[str, list[Function]] = {}

    def note(expr: Any) -> None:
        name = _codegen_of(expr)
        if name is not None:
            by_codegen.setdefault(name, []).append(expr)

    for func in of_kind(mod.functions.values(), Function):
        post_order_visit(func, note)
    made: list[Any] = []
    for name, functions in by_codegen.items():
        codegen = get_global_func(f"relax.ext.{name}", True)
        if codegen is None:
            raise RelaxishError(f"Codegen is not found: relax.ext.{name}")
        made.extend(codegen(functions, dict(options.get(name) or {}), dict(constants)))
    return made


def _run(mod: IRModule, options: Mapping[str, Any], entries: Sequence[str]) -> IRModule:
    runner = _Runner(mod)
    chosen = set(entries)
    for var, func in functions_of(mod, Function):
        if _codegen_of(func) is not None:
            continue
        if var.name_hint in chosen or symbol_of(func) is not None:
            new = runner.visit_expr(func)
            if new is not func:
                runner.builder_.update_func(var, new)
    external = _invoke(mod, options, runner.constants)
    out = runner.builder_.get()
    if external:
        before = list((mod.attrs or {}).get("external_mods") or ())
        out = out.with_attr("external_mods", [*before, *external])
    if runner.constants:
        out = out.with_attr("const_name_to_constant", {name: c.data for c, name in runner.constants.items()})
    return eliminate(out, list(entries))


class RunCodegen(ModuleRewrite):
    """Compile functions with the attribute ``Codegen`` by the registered function ``relax.ext.<name>``.

    It gets the functions, ``target_options[name]`` and the names of constants, and returns runtime modules, which
    become the module attribute ``external_mods``.  Calls become ``R.call_dps_packed`` of the function's symbol.

    ::

        gv = cls.fused_conv2d_dnnl(x, w)   ->   gv = R.call_dps_packed("fused_conv2d_dnnl", (x, w), out_sinfo=...)

    Raises RelaxishError if a code generator is not registered.
    """

    target_options: Mapping[str, Any] | None = None
    entry_functions: Sequence[str] | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        return _run(mod, self.target_options or {}, list(self.entry_functions or ["main"]))
