"""Modules as functions of their own: ``define_subroutine = True`` on a class makes calls of it calls of a function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ... import relax
from ...relax.copying import copy_with_new_vars
from ...relax.expr import Expr, Var

if TYPE_CHECKING:
    from .core import Module, Object, Tensor, Wrapped

__all__ = ["SubroutineMixin"]


def snake_case(name: str) -> str:
    """``LlamaMLP`` as ``llama_mlp``.

    >>> snake_case("LlamaMLP"), snake_case("Layer")
    ('llama_mlp', 'layer')
    """
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


class SubroutineMixin:
    """Base of :class:`Module`. With ``define_subroutine`` set on a subclass, every call of such a module while a
    model is exported becomes a call of a private function; modules alike in arguments and weights share one.
    """

    define_subroutine: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        forward = cls.__dict__.get("forward")
        if forward is not None and not getattr(forward, "_is_subroutine_dispatch", False):
            cls.forward = _dispatching(forward)  # type: ignore[attr-defined]


def _dispatching(forward: Callable[..., Any]) -> Callable[..., Any]:
    """``forward``, which calls a subroutine where the class asks for one."""

    @functools.wraps(forward)
    def dispatch(self: Module, *args: Any, **kwargs: Any) -> Any:
        if not self.define_subroutine:
            return forward(self, *args, **kwargs)
        builder = relax.BlockBuilder.current()
        if builder is None:
            raise RuntimeError(
                f"{type(self).__name__} has define_subroutine set: it can only be called while a module is exported, "
                "since the active BlockBuilder receives the function"
            )
        return _call(builder, self, forward, args, kwargs)

    dispatch._is_subroutine_dispatch = True  # type: ignore[attr-defined]
    return dispatch


def _call(
    builder: relax.BlockBuilder,
    module: Module,
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Wrapped:
    from .core import wrap_nested

    bound = inspect.signature(forward).bind(module, *args, **kwargs)
    given = {k: v for k, v in list(bound.arguments.items())[1:] if v is not None}
    weights = dict(module.named_parameters())
    name = snake_case(type(module).__name__)
    operands = [_expr(name, k, v) for k, v in given.items()] + [p._expr for p in weights.values()]
    params = [relax.Var(k.replace(".", "_"), e.struct_info) for k, e in zip([*given, *weights], operands)]
    function = _subroutine(
        builder, module, forward, name, dict(zip(given, params)), dict(zip(weights, params[len(given) :]))
    )
    return wrap_nested(relax.Call(function, operands), name)


def _expr(owner: str, key: str, value: object) -> Expr:
    expr = value if isinstance(value, relax.Expr) else getattr(value, "_expr", None)
    if expr is None:
        raise TypeError(f"argument {key!r} of the subroutine {owner} is a {type(value).__name__}, not a tensor")
    return expr


def _subroutine(
    builder: relax.BlockBuilder,
    module: Module,
    forward: Callable[..., Any],
    name: str,
    given: dict[str, Any],
    weights: dict[str, Any],
) -> relax.GlobalVar:
    """Trace ``forward`` into a private function; an equal one that is there already is taken instead."""
    from .core import expr_of

    owners = dict(module.named_parameters())
    saved = {key: param._expr for key, param in owners.items()}
    dataflow = builder.current_block_is_dataflow()
    try:
        for key, var in weights.items():
            owners[key]._expr = var
        result: Expr
        with builder.aside() as inner, inner.function(name, [*given.values(), *weights.values()], private=True):
            arguments = {k: _argument(v) for k, v in given.items()}
            if dataflow:
                with inner.dataflow():
                    result = inner.emit_output(expr_of(forward(module, **arguments)))
            else:
                result = expr_of(forward(module, **arguments))
            made = inner.emit_func_output(result)
            own_symbols(inner, made)
    finally:
        for key, expr in saved.items():
            owners[key]._expr = expr
    return made


def own_symbols(builder: relax.BlockBuilder, name: relax.GlobalVar) -> None:
    """Give the function variables of its own: it was traced with the symbolic dimensions of its caller."""
    function = builder.get()[name]
    assert isinstance(function, relax.Function)
    builder.update_func(name, copy_with_new_vars(function))


def _argument(var: Var) -> Tensor | Object:
    """A parameter of the function as ``forward`` takes it."""
    from .core import Object, Tensor

    return Tensor(_expr=var) if isinstance(var.struct_info, relax.TensorStructInfo) else Object(_expr=var)
