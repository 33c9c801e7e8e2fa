"""Specifications of the arguments of a module's methods, for its export."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .core import Module

__all__ = ["Int", "MethodSpec", "ModuleSpec", "Object", "Tensor", "Tuple"]

_MODES = ("plain", "packed", "none")


class Int:
    """An integer argument, symbolic in the exported function."""

    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor argument; string dimensions are symbolic, one variable a name within a method."""

    def __init__(self, shape: Sequence[Any], dtype: str) -> None:
        self.shape = list(shape)
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(str(s) for s in self.shape)}], '{self.dtype}')"


class Object:
    """An opaque argument of a given class of :class:`~relaxish.frontend.nn.Object`."""

    def __init__(self, object_type: type) -> None:
        self.object_type = object_type

    def __repr__(self) -> str:
        return "object"


class Tuple:
    """Several arguments as one."""

    def __init__(self, name: str, elements: list[Any] | tuple[Any, ...]) -> None:
        self.name = name
        self.elements = elements

    def __repr__(self) -> str:
        return repr(self.elements)


class MethodSpec:
    """The arguments of one method, and how parameters and effects are passed.

    ``param_mode`` and ``effect_mode``: ``plain`` (one argument each), ``packed`` (one tuple) or ``none``.
    """

    def __init__(
        self, method: Callable[..., Any], arg_names: list[str], arg_specs: list[Any], param_mode: str, effect_mode: str
    ) -> None:
        for label, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in _MODES:
                raise ValueError(f"Invalid {label}: {mode}; it is one of {', '.join(_MODES)}")
        self.method = method
        self.arg_names = arg_names
        self.arg_specs = arg_specs
        self.param_mode = param_mode
        self.effect_mode = effect_mode

    @staticmethod
    def from_raw(spec: MethodSpec | Mapping[str, Any], method: Callable[..., Any]) -> MethodSpec:
        """From a dictionary of argument specs; the key ``"$"`` holds the modes. Every argument must be given."""
        if isinstance(spec, MethodSpec):
            return spec
        options = dict(spec.get("$", {}))
        given = {k: v for k, v in spec.items() if k != "$"}
        signature = inspect.signature(method)
        names = [n for n in signature.parameters if n != "self"]
        unknown = [n for n in given if n not in names]
        if unknown:
            raise ValueError(f"{method.__qualname__} has no argument {unknown[0]!r}; it takes {names}")
        absent = [
            n for n in names if n not in given and signature.parameters[n].default is inspect.Parameter.empty
            and signature.parameters[n].kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        ]  # fmt: skip
        if absent:
            raise ValueError(f"the spec of {method.__qualname__} lacks argument {absent[0]!r}")
        chosen = [n for n in names if n in given]
        return MethodSpec(
            method, chosen, [_argument(n, given[n]) for n in chosen], options.get("param_mode", "plain"),
            options.get("effect_mode", "plain"),
        )  # fmt: skip

    @staticmethod
    def from_torch(args: list[Any], method: Callable[..., Any]) -> MethodSpec:
        """From example torch tensors and ints."""
        names = [n for n in inspect.signature(method).parameters if n != "self"][: len(args)]
        specs: list[Any] = []
        for value in args:
            if isinstance(value, int):
                specs.append(Int())
            else:
                specs.append(Tensor(list(value.shape), str(value.dtype).removeprefix("torch.")))
        return MethodSpec(method, names, specs, "plain", "plain")


def _argument(name: str, value: Any) -> Int | Tensor | Object | Tuple | Any:
    if value is int or isinstance(value, Int):
        return Int()
    match value:
        case str() if value == "int":
            return Int()
        case list() | tuple():
            items = [_argument(f"{name}_{i}", v) for i, v in enumerate(value)]
            return Tuple(name, type(value)(items))
        case type():
            return Object(value)
    return value


class ModuleSpec:
    """The methods of a module to export."""

    def __init__(self, module: Module, method_names: list[str], method_specs: list[MethodSpec]) -> None:
        self.module = module
        self.method_names = method_names
        self.method_specs = method_specs

    @staticmethod
    def from_raw(spec: ModuleSpec | Mapping[str, Any], module: Module) -> ModuleSpec:
        """From ``{"method": {"argument": spec}}``."""
        if isinstance(spec, ModuleSpec):
            return spec
        names = list(spec)
        return ModuleSpec(module, names, [MethodSpec.from_raw(spec[n], getattr(module, n)) for n in names])

    def __repr__(self) -> str:
        return f"ModuleSpec({', '.join(self.method_names)})"
