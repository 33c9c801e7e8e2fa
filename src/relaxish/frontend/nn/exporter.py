"""Tracing the methods of a module into an IRModule."""

from __future__ import annotations

import threading
from typing import Any

from ... import relax, tir
from ...ir import IRModule
from . import spec as specs
from .core import Effect, Object, Parameter, Tensor

__all__ = ["Exporter"]

_LOCAL = threading.local()


class Exporter:
    """Builds one IRModule from a module's methods; what is traced meanwhile can reach it by :meth:`current`."""

    def __init__(self, debug: bool = False) -> None:
        from .modules import IOEffect

        self.builder = relax.BlockBuilder()
        self.io_effect: Any = IOEffect() if debug else None
        self.extern_mods: list[Any] = []

    @staticmethod
    def current() -> Exporter:
        """The exporter at work. Raises RuntimeError outside an export."""
        made = getattr(_LOCAL, "exporter", None)
        if made is None:
            raise RuntimeError("this can only be used while a module is exported")
        return made  # type: ignore[no-any-return]

    def add_external_module(self, mod: Any) -> None:
        """Remember an external module to link; each once."""
        if not any(mod is known for known in self.extern_mods):
            self.extern_mods.append(mod)

    def build(self, spec: specs.ModuleSpec) -> tuple[IRModule, list[tuple[str, Parameter]], list[Any]]:
        """The IRModule, the named parameters, and the external modules."""
        params = list(spec.module.named_parameters())
        effects: list[tuple[str, Effect]] = []
        if self.io_effect is not None:
            effects.append(("", self.io_effect))
        effects += list(spec.module.named_effects())
        before = getattr(_LOCAL, "exporter", None)
        saved = [(p, p._expr) for _, p in params]
        _LOCAL.exporter = self
        try:
            if effects:
                self._emit_effect_init(effects)
            for name, method in zip(spec.method_names, spec.method_specs):
                self._emit_method(name, method, params, effects)
        finally:
            _LOCAL.exporter = before
            # Tracing points parameters at function arguments; they must not outlive the export.
            for param, expr in saved:
                param._expr = expr
        return self.builder.finalize(), params, self.extern_mods

    def _emit_effect_init(self, effects: list[tuple[str, Effect]]) -> None:
        outputs: list[Any] = []
        with self.builder.function("_initialize_effect", []):
            with self.builder.dataflow():
                for prefix, effect in effects:
                    outputs.extend(effect.emit_init(prefix, self.builder))
                result = self.builder.emit_output(self.builder.emit(relax.Tuple(outputs)))
            self.builder.emit_func_output(result, [])

    def _emit_method(
        self, name: str, spec: specs.MethodSpec, params: list[tuple[str, Parameter]], effects: list[tuple[str, Effect]]
    ) -> None:
        symbols: dict[str, tir.Var] = {}
        inputs, args = self._inputs(spec, symbols)
        effect_vars = self._effect_inputs(spec, effects)
        param_vars = self._param_inputs(spec, params, symbols)
        num_input = len(inputs) + len(effect_vars)
        with self.builder.function(name, [*inputs, *effect_vars, *param_vars], attrs={"num_input": num_input}):
            with self.builder.dataflow():
                self._unpack(spec, params, effects, effect_vars, param_vars)
                outputs = spec.method(*args)
                result = self._outputs(spec, outputs, effects)
            self.builder.emit_func_output(result)

    def _inputs(self, spec: specs.MethodSpec, symbols: dict[str, tir.Var]) -> tuple[list[Any], list[Any]]:
        inputs: list[Any] = []
        args: list[Any] = []
        for name, arg in zip(spec.arg_names, spec.arg_specs):
            var, value = self._input(name, arg, symbols)
            inputs.append(var)
            args.append(value)
        return inputs, args

    def _input(self, name: str, arg: Any, symbols: dict[str, tir.Var]) -> tuple[Any, Any]:
        if isinstance(arg, specs.Int):
            symbol = tir.Var(name, "int64")
            return relax.Var(name, relax.ShapeStructInfo([symbol])), symbol
        if isinstance(arg, specs.Tensor):
            dims = [symbols.setdefault(d, tir.Var(d, "int64")) if isinstance(d, str) else d for d in arg.shape]
            var = relax.Var(name, relax.TensorStructInfo(dims, arg.dtype))
            return var, Tensor(_expr=var)
        if isinstance(arg, specs.Object):
            var = relax.Var(name, relax.ObjectStructInfo())
            kind = arg.object_type
            return var, (kind if isinstance(kind, type) and issubclass(kind, Object) else Object)(_expr=var, _name=name)
        if isinstance(arg, specs.Tuple):
            parts = [self._input(f"{name}_{i}", a, symbols)[0] for i, a in enumerate(arg.elements)]
            var = relax.Var(name, relax.TupleStructInfo([p.struct_info for p in parts]))
            items = [Tensor(_expr=_project(var, i, p.struct_info)) for i, p in enumerate(parts)]
            return var, type(arg.elements)(items)
        raise TypeError(f"argument {name} has no usable spec: {arg!r}")

    def _effect_inputs(self, spec: specs.MethodSpec, effects: list[tuple[str, Effect]]) -> list[Any]:
        if spec.effect_mode == "none" or not effects:
            return []
        created = [var for name, effect in effects for var in effect.create(name)]
        if spec.effect_mode == "plain":
            return created
        return [relax.Var("effects", relax.TupleStructInfo([v.struct_info for v in created]))]

    def _param_inputs(
        self, spec: specs.MethodSpec, params: list[tuple[str, Parameter]], symbols: dict[str, tir.Var]
    ) -> list[Any]:
        if spec.param_mode == "none":
            return []
        created = [relax.Var(name, _renamed(param, symbols)) for name, param in params]
        if spec.param_mode == "plain":
            return created
        return [relax.Var("packed_params", relax.TupleStructInfo([v.struct_info for v in created]))]

    def _unpack(
        self, spec: specs.MethodSpec, params: list[tuple[str, Parameter]], effects: list[tuple[str, Effect]],
        effect_vars: list[Any], param_vars: list[Any],
    ) -> None:  # fmt: skip
        if spec.param_mode == "packed":
            packed = param_vars[0]
            for index, (name, param) in enumerate(params):
                param._expr = self.builder.emit(relax.TupleGetItem(packed, index), name)
        elif spec.param_mode == "plain":
            for var, (_, param) in zip(param_vars, params):
                param._expr = var
        if spec.effect_mode == "packed" and effects:
            count = len(effect_vars[0].struct_info.fields)
            effect_vars = [self.builder.emit(relax.TupleGetItem(effect_vars[0], i)) for i in range(count)]
        at = 0
        for name, effect in effects if effect_vars else ():
            count = len(effect.create(name))
            effect.set_state(effect_vars[at : at + count])
            at += count

    def _outputs(self, spec: specs.MethodSpec, outputs: Any, effects: list[tuple[str, Effect]]) -> Any:
        result = _expr_of(outputs)
        if spec.effect_mode == "none" or not effects:
            return self.builder.emit_output(result)
        states = [var for _, effect in effects for var in effect.finalize()]
        if spec.effect_mode == "packed":
            return self.builder.emit_output(relax.Tuple([result, relax.Tuple(states)]))
        return self.builder.emit_output(relax.Tuple([result, relax.Tuple(states)]))


def _project(var: Any, index: int, info: Any) -> Any:
    item = relax.TupleGetItem(var, index)
    item.struct_info_ = info
    return item


def _renamed(param: Parameter, symbols: dict[str, tir.Var]) -> Any:
    """The parameter's struct info with symbolic dimensions shared by name with the inputs."""
    info = param._expr.struct_info
    dims = [symbols.setdefault(d.name, d) if isinstance(d, tir.Var) else d for d in info.shape.values]
    return relax.TensorStructInfo(dims, info.dtype)


def _expr_of(value: Any) -> Any:
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, (list, tuple)):
        return relax.Tuple([_expr_of(v) for v in value])
    if isinstance(value, relax.Expr):
        return value
    if isinstance(value, (int, tir.PrimExpr)):
        return relax.PrimValue(value)
    raise TypeError(f"forward returned {value!r}, which is no Tensor, Object, or tuple of them")
