"""Tracing the methods of a module into an IRModule."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ... import relax, tir
from ...ir import IRModule
from ...relax.expr import Var
from ...relax.struct_info import StructInfo
from . import spec as specs
from .core import Effect, Object, Parameter, Tensor, expr_of

if TYPE_CHECKING:
    from .extern import ExternModule

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
        return made

    def add_external_module(self, mod: ExternModule) -> None:
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
        with self.builder.function("_initialize_effect"):
            with self.builder.dataflow():
                for prefix, effect in effects:
                    outputs.extend(effect.emit_init(prefix, self.builder))
                result = self.builder.emit_output(self.builder.emit(relax.Tuple(outputs)))
            self.builder.emit_func_output(result, [])

    def _emit_method(
        self, name: str, spec: specs.MethodSpec, params: list[tuple[str, Parameter]], effects: list[tuple[str, Effect]]
    ) -> None:
        explicit = self._inputs(spec)
        created = [(effect, effect.create(prefix)) for prefix, effect in effects]
        for effect, states in created:
            effect.set_state(states)
        effect_vars = self._effect_inputs(spec, created)
        param_vars = self._param_inputs(spec, params)
        inputs = [*(var for var, _ in explicit), *effect_vars]
        with self.builder.function(name, [*inputs, *param_vars], attrs={"num_input": len(inputs)}):
            with self.builder.dataflow():
                self._unpack(spec, params, created, effect_vars, param_vars)
                args = [self._argument(var, arg) for var, arg in explicit]
                result = self._outputs(spec, spec.method(*args), effects)
            self.builder.emit_func_output(result)

    def _inputs(self, spec: specs.MethodSpec) -> list[tuple[Any, Any]]:
        """Each explicit argument: its variable, and what it is to be made into for the method."""
        symbols: dict[str, tir.Var] = {}
        return [_input(name, arg, symbols) for name, arg in zip(spec.arg_names, spec.arg_specs)]

    def _argument(self, var: Var, arg: Any) -> object:
        """The value a method receives for an input; tuples are taken apart."""
        match arg:
            case specs.Tuple():
                items = [
                    self._argument(self.builder.emit(relax.TupleGetItem(var, i), f"{arg.name}_{i}"), item)
                    for i, item in enumerate(arg.elements)
                ]
                return type(arg.elements)(items)
            case specs.Tensor():
                return Tensor(_expr=var)
            case specs.Object():
                kind = arg.object_type
                is_object = isinstance(kind, type) and issubclass(kind, Object)
                return (kind if is_object else Object)(_expr=var, _name=var.name_hint)
        return arg

    def _effect_inputs(self, spec: specs.MethodSpec, created: list[tuple[Effect, list[Any]]]) -> list[Any]:
        states = [var for _, group in created for var in group]
        if spec.effect_mode == "none" or not states:
            return []
        if spec.effect_mode == "plain":
            return states
        return [relax.Var("packed_effects", relax.TupleStructInfo([v.struct_info for v in states]))]

    def _param_inputs(self, spec: specs.MethodSpec, params: list[tuple[str, Parameter]]) -> list[Any]:
        symbols: dict[str, tir.Var] = {}
        made = [relax.Var(name, _renamed(param, symbols)) for name, param in params]
        for var, (_, param) in zip(made, params):
            param._expr = var
        if spec.param_mode == "none":
            return []
        if spec.param_mode == "plain":
            return made
        return [relax.Var("packed_params", relax.TupleStructInfo([v.struct_info for v in made]))]

    def _unpack(
        self,
        spec: specs.MethodSpec,
        params: list[tuple[str, Parameter]],
        created: list[tuple[Effect, list[Any]]],
        effect_vars: list[Any],
        param_vars: list[Any],
    ) -> None:
        """Take packed effects and weights apart."""
        if spec.effect_mode == "packed" and effect_vars:
            at = 0
            for effect, group in created:
                names = [var.name_hint for var in group]
                effect.set_state([
                    self.builder.emit(relax.TupleGetItem(effect_vars[0], at + k), n) for k, n in enumerate(names)
                ])  # fmt: skip
                at += len(group)
        if spec.param_mode == "packed":
            for index, (name, param) in enumerate(params):
                param._expr = self.builder.emit(relax.TupleGetItem(param_vars[0], index), name)

    def _outputs(self, spec: specs.MethodSpec, outputs: Any, effects: list[tuple[str, Effect]]) -> Var:
        states = [var for _, effect in effects for var in effect.finalize()]
        result = expr_of(outputs)
        if spec.effect_mode == "none" or not states:
            return self.builder.emit_output(result)
        return self.builder.emit_output(relax.Tuple([result, relax.Tuple(states)]))


def _input(name: str, arg: Any, symbols: dict[str, tir.Var]) -> tuple[Var, Any]:
    """The variable of one argument, with the spec (or the symbolic integer) it stands for."""
    match arg:
        case specs.Int():
            symbol = symbols.setdefault(name, tir.Var(name, "int64"))
            return relax.Var(name, relax.ShapeStructInfo([symbol])), symbol
        case specs.Tensor():
            dims = [symbols.setdefault(d, tir.Var(d, "int64")) if isinstance(d, str) else d for d in arg.shape]
            return relax.Var(name, relax.TensorStructInfo(dims, arg.dtype)), arg
        case specs.Object():
            return relax.Var(name, relax.ObjectStructInfo()), arg
        case specs.Tuple():
            parts = [_input(f"{name}_{i}", a, symbols)[0] for i, a in enumerate(arg.elements)]
            return relax.Var(name, relax.TupleStructInfo([p.struct_info for p in parts])), arg
    raise TypeError(f"argument {name} has no usable spec: {arg!r}")


def _renamed(param: Parameter, symbols: dict[str, tir.Var]) -> StructInfo:
    """The parameter's struct info with symbolic dimensions shared by name within a method."""
    info = param._expr.struct_info
    dims = [
        symbols.setdefault(d.name, tir.Var(d.name, "int64")) if isinstance(d, tir.Var) else d for d in info.shape.values
    ]
    return relax.TensorStructInfo(dims, info.dtype)
