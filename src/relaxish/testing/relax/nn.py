"""A small layer library on the BlockBuilder in scope, and recomputation of layers in the backward pass.

::

    with bb.function("main"):
        model = nn.Sequential(nn.Linear(784, 128), nn.ReLU())
        data = nn.Placeholder((1, 784), name="data")
        output = model(data)
        bb.emit_func_output(output, [data, *model.parameters()])
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ... import topi
from ...frontend.nn.subroutine import own_symbols, snake_case
from ...ir.module import IRModule
from ...op.grad import end_checkpoint, start_checkpoint
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr, Var
from ...relax.scalars import const_int
from ...relax.struct_info import TensorStructInfo
from ...runtime.arrays.ndarray import array

__all__ = [
    "Linear",
    "LogSoftmax",
    "Module",
    "Parameter",
    "Placeholder",
    "ReLU",
    "Sequential",
    "checkpoint",
    "emit",
    "emit_checkpoint",
    "emit_checkpoint_sequential",
    "emit_te",
    "init_params",
]


def _builder() -> BlockBuilder:
    builder = BlockBuilder.current()
    if builder is None:
        raise RuntimeError("this needs an open function: use it inside 'with bb.function(...)'")
    return builder


def _unique(name: str) -> str:
    """The name, with a number where the function under construction has it already."""
    builder = BlockBuilder.current()
    return name if builder is None else builder.get_unique_name(name)


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Bind an expression in the function under construction."""
    return _builder().emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Call a TE function in the function under construction."""
    return _builder().emit_te(func, *args, **kwargs)


def _mark(value: Expr, mark: Callable[[Any], Any]) -> Expr:
    match value:
        case Expr():
            return mark(value)
        case list() | tuple():
            return [_mark(v, mark) for v in value]
    return value


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Expr:
    """``func(*args, **kwargs)`` whose inner values the backward pass computes again instead of keeping."""
    started = [start_checkpoint(v) if isinstance(v, Expr) else v for v in args]
    named = {k: start_checkpoint(v) if isinstance(v, Expr) else v for k, v in kwargs.items()}
    return _mark(func(*started, **named), end_checkpoint)


def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Expr:
    """:func:`checkpoint`, with the marks and the results bound."""
    builder = _builder()
    started = [builder.emit(start_checkpoint(v)) if isinstance(v, Expr) else v for v in args]
    named = {k: builder.emit(start_checkpoint(v)) if isinstance(v, Expr) else v for k, v in kwargs.items()}
    return _mark(func(*started, **named), lambda v: builder.emit(end_checkpoint(builder.emit(v))))


def emit_checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int | Sequence[int],
    input: Expr,
    checkpoint_last: bool = False,
) -> Expr:
    """Call functions one after another in segments, each recomputed in the backward pass.

    ``segments`` is where each ends, or their number: then all have the same number of functions, and what is left over
    is one more. The last one is kept unless ``checkpoint_last``. Raises ValueError for a bad number of segments.
    """

    def run(start: int, end: int) -> Callable[[Any], Any]:
        def forward(value: Expr) -> Expr:
            for func in functions[start:end]:
                value = func(value)
            return value

        return forward

    count = len(functions)
    if isinstance(segments, int):
        if not 1 <= segments <= count:
            raise ValueError(f"segments must be between 1 and the number of functions, {count}, not {segments}")
        bounds = [*range(0, count, count // segments), count]
    else:
        bounds = list(dict.fromkeys([0, *segments, count]))
    value = input
    for start, end in itertools.pairwise(bounds):
        is_kept = end == count and not checkpoint_last
        value = run(start, end)(value) if is_kept else emit_checkpoint(run(start, end), value)
    return value


class Placeholder(Var):
    """An input tensor of a function; its name is made unique in the one under construction."""

    _type_key: ClassVar[str] = Var._type_key  # one of the function's variables, like any other

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> None:
        if not isinstance(shape, (list, tuple)):
            raise TypeError("the shape of Placeholder is expected to be a list or a tuple")
        super().__init__(_unique(name), TensorStructInfo(shape, dtype))


class Parameter(Var):
    """A weight of a function; its name is made unique in the one under construction."""

    _type_key: ClassVar[str] = Var._type_key

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> None:
        if not isinstance(shape, (list, tuple)):
            raise TypeError("the shape of Parameter is expected to be a list or a tuple")
        super().__init__(_unique(name), TensorStructInfo(shape, dtype))


class Module:
    """Base of layers: parameters are found in attributes, lists and dicts of them.

    With ``define_subroutine`` set on a subclass, every call of such a layer becomes the call of a private function;
    layers alike in arguments and weights share one.
    """

    define_subroutine: ClassVar[bool] = False

    def parameters(self) -> list[Parameter]:
        """All parameters, of inner layers too."""
        return _parameters_of(self.__dict__)

    def forward(self, input: Any) -> Expr:  # public parameter name
        """Computation of the layer."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.define_subroutine:
            return _call_subroutine(self, inspect.signature(self.forward).bind(*args, **kwargs))
        return self.forward(*args, **kwargs)


def _call_subroutine(module: Module, bound: inspect.BoundArguments) -> Var:
    """Trace ``forward`` into a private function, or take an equal one that is there already, and call it."""
    builder, weights = _builder(), module.parameters()
    given = {k: v for k, v in bound.arguments.items() if isinstance(v, Expr)}
    params = {k: Var(k, v.struct_info) for k, v in given.items()}
    inner_weights = [Parameter(w.struct_info.dims(), w.struct_info.dtype, w.name_hint) for w in weights]
    inside = _with_weights(module, {id(w): made for w, made in zip(weights, inner_weights, strict=True)})
    name, dataflow = snake_case(type(module).__name__), builder.current_block_is_dataflow()
    with builder.aside() as inner, inner.function(name, [*params.values(), *inner_weights], private=True):
        with inner.dataflow() if dataflow else contextlib.nullcontext():
            result = inside.forward(**{**bound.arguments, **params})
            result = inner.emit_output(result) if dataflow else result
        function = inner.emit_func_output(result)
        own_symbols(inner, function)
    return builder.emit(Call(function, [*given.values(), *weights]))


def _with_weights(value: Any, made: Mapping[int, Parameter]) -> Any:
    """The layer, and what is in it, with other parameters."""
    match value:
        case Parameter():
            return made[id(value)]
        case Module():
            copied = copy.copy(value)
            copied.__dict__.update(_with_weights(value.__dict__, made))
            return copied
        case dict():
            return {k: _with_weights(v, made) for k, v in value.items()}
        case list() | tuple():
            return type(value)(_with_weights(v, made) for v in value)
    return value


def _parameters_of(value: Any) -> list[Parameter]:
    match value:
        case Parameter():
            return [value]
        case Module():
            return value.parameters()
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [p for item in items for p in _parameters_of(item)]


def init_params(mod: IRModule) -> list[Any]:
    """Random values for the parameters of ``main`` (all after the first): uniform in [0, 1)."""
    out = []
    for param in mod["main"].params:
        shape = [const_int(d) or 0 for d in param.struct_info.dims()]
        out.append(array(np.random.rand(*shape).astype(param.struct_info.dtype)))
    return out


class Sequential(Module):
    """Layers one after another."""

    def __init__(self, *args: Module) -> None:
        self.modules = list(args)

    def forward(self, input: Expr) -> Expr:  # public parameter name
        """The last layer's result."""
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, input: Expr) -> Var:  # public parameter name
        """The activation."""
        return emit_te(topi.nn.relu, input)


class LogSoftmax(Module):
    """Logarithm of softmax over the last axis."""

    def forward(self, input: Expr) -> Var:  # public parameter name
        """The activation."""
        return emit_te(topi.nn.log_softmax, input)


class Linear(Module):
    """``x @ weight + bias``."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Var:  # public parameter name
        """The product."""
        out = emit_te(topi.matmul, input, self.weight)
        return out if self.bias is None else emit_te(topi.add, out, self.bias)
