"""Optimizers: each makes a graph function from parameters, gradients and its own state to new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ..ir import dtype as dtypes
from ..op.binary import add, divide, multiply, subtract
from ..op.unary import sqrt
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var, const
from ..relax.struct_info import TensorStructInfo, TupleStructInfo
from ..relax.scalars import const_int
from ..runtime.arrays.ndarray import array
from ..support.sequences import as_list

__all__ = ["Adam", "MomentumSGD", "Optimizer", "SGD"]


def _complement(rate: float) -> float:
    """``1 - rate`` as it is written: 0.2 for 0.8, where floats give 0.19999999999999996."""
    return float(1 - Decimal(str(rate)))


class Optimizer:
    """Base of all optimizers. Call :meth:`init` with the parameters, then :meth:`get_function`.

    ``state`` is the initial state, a tuple of arrays; the number of steps comes first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.param_list: list[Var] | None = None
        self.state: tuple[Any, ...] | None = None
        self.dtype: str = ""

    def init(self, params: Var | Sequence[Var]) -> Optimizer:
        """Set the parameters, variables of float tensors of one dtype. Raises ValueError otherwise."""
        checked: list[Any] = as_list(params)
        self._check_params(checked)
        self.param_list = checked
        self.dtype = checked[0].struct_info.dtype if checked else ""
        self.state = self._initial_state()
        return self

    @staticmethod
    def _check_params(params: Sequence[Any]) -> None:
        seen: set[Var] = set()
        for param in params:
            if not isinstance(param, Var):
                raise ValueError(f"Parameter {param} is not a Var")
            info = param.struct_info
            if not isinstance(info, TensorStructInfo):
                raise ValueError(
                    f"Optimizers only support Tensor parameters, but parameter {param.name_hint} has struct info {info}"
                )
            if not dtypes.is_float(info.dtype):
                raise ValueError(
                    "Optimizers only support Tensor parameters of floating point dtype, but dtype of "
                    f"{param.name_hint} is {info.dtype}"
                )
            if info.dtype != params[0].struct_info.dtype:
                raise ValueError(
                    f"All parameters should have the same dtype, but parameter {param.name_hint} has dtype "
                    f"{info.dtype}, which differs from the previous dtype {params[0].struct_info.dtype}"
                )
            if param in seen:
                raise ValueError(f"Parameter {param.name_hint} appears more than once")
            seen.add(param)

    def _params(self) -> list[Var]:
        if self.param_list is None or self.state is None:
            raise RuntimeError("Please call init() for the optimizer before calling get_function()")
        return self.param_list

    def _zeros(self) -> list[Any]:
        return [array(np.zeros([const_int(d) or 0 for d in p.struct_info.dims()], self.dtype)) for p in self._plist()]

    def _plist(self) -> list[Var]:
        assert self.param_list is not None
        return self.param_list

    def _initial_state(self) -> tuple[Any, ...]:
        return (array(np.zeros((), "int64")),)

    def _decayed(self, builder: BlockBuilder, name: str, param: Expr, gradient: Expr, decay: float) -> Any:
        if not decay:
            return gradient
        return builder.emit(add(multiply(const(decay, self.dtype), param), gradient), f"{name}_grad_new")

    def _function(
        self, state_infos: Sequence[Any], update: Callable[[BlockBuilder, Var, Var, Var, list[Any]], list[Any]]
    ) -> Function:
        """The function around ``update``, which appends new state and returns new parameters."""
        infos = [p.struct_info for p in self._params()]
        params, gradients = Var("params", TupleStructInfo(infos)), Var("gradients", TupleStructInfo(infos))
        states = Var("optim_states", TupleStructInfo([TensorStructInfo((), "int64"), *state_infos]))
        builder = BlockBuilder()
        with builder.function(self.name, [params, gradients, states]):
            with builder.dataflow():
                steps = builder.emit(TupleGetItem(states, 0), "num_steps")
                new_states: list[Any] = [builder.emit(add(steps, const(1, "int64")), "num_steps_new")]
                new_params = update(builder, params, gradients, states, new_states)
                params_out = builder.emit_output(Tuple(new_params), "params_new")
                states_out = builder.emit_output(Tuple(new_states), "optim_states_new")
            builder.emit_func_output((params_out, states_out))
        made: Function = builder.get()[self.name]
        return made

    def get_function(self) -> Function:
        """The function ``(params, gradients, optim_states) -> (params_new, optim_states_new)``, all tuples.

        Raises RuntimeError before :meth:`init`.
        """
        raise NotImplementedError


class SGD(Optimizer):
    """Stochastic gradient descent: ``p -= lr * (g + weight_decay * p)``."""

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__("SGD")
        self.lr = float(lr)
        self.weight_decay = float(weight_decay)

    def get_function(self) -> Function:
        """The update function."""

        def update(builder: BlockBuilder, params: Var, gradients: Var, states: Var, new: list[Any]) -> list[Any]:
            out = []
            for i, var in enumerate(self._plist()):
                name = var.name_hint
                p = builder.emit(TupleGetItem(params, i), name)
                g = builder.emit(TupleGetItem(gradients, i), f"{name}_grad")
                g = self._decayed(builder, name, p, g, self.weight_decay)
                out.append(builder.emit(subtract(p, multiply(const(self.lr, self.dtype), g)), f"{name}_new"))
            return out

        self._params()
        return self._function([], update)


class MomentumSGD(Optimizer):
    """Gradient descent with momentum: ``v = momentum * v + (1 - dampening) * g; p -= lr * v``."""

    def __init__(
        self, lr: float, momentum: float, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr = float(lr)
        self.momentum = float(momentum)
        self.dampening = float(dampening)
        self.weight_decay = float(weight_decay)
        self.nesterov = nesterov

    def _initial_state(self) -> tuple[Any, ...]:
        return (*super()._initial_state(), *self._zeros())

    def get_function(self) -> Function:
        """The update function."""

        def update(builder: BlockBuilder, params: Var, gradients: Var, states: Var, new: list[Any]) -> list[Any]:
            momentum, out = const(self.momentum, self.dtype), []
            for i, var in enumerate(self._plist()):
                name = var.name_hint
                p = builder.emit(TupleGetItem(params, i), name)
                g = builder.emit(TupleGetItem(gradients, i), f"{name}_grad")
                v = builder.emit(TupleGetItem(states, i + 1), f"{name}_v")
                g = self._decayed(builder, name, p, g, self.weight_decay)
                damped = multiply(const(_complement(self.dampening), self.dtype), g) if self.dampening else g
                v = builder.emit(add(multiply(momentum, v), damped), f"{name}_v_new")
                step = builder.emit(add(g, multiply(momentum, v)), f"{name}_g_nest") if self.nesterov else v
                out.append(builder.emit(subtract(p, multiply(const(self.lr, self.dtype), step)), f"{name}_new"))
                new.append(v)
            return out

        return self._function([p.struct_info for p in self._params()], update)


class Adam(Optimizer):
    """Adam, with corrected first and second moments."""

    def __init__(
        self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0
    ) -> None:
        super().__init__("Adam")
        self.lr = float(lr)
        self.beta1, self.beta2 = float(betas[0]), float(betas[1])
        self.eps = float(eps)
        self.weight_decay = float(weight_decay)

    def _initial_state(self) -> tuple[Any, ...]:
        products = [array(np.ones((), self.dtype)) for _ in range(2)]
        return (*super()._initial_state(), *products, *self._zeros(), *self._zeros())

    def get_function(self) -> Function:
        """The update function."""
        infos = [p.struct_info for p in self._params()]
        scalar = TensorStructInfo((), self.dtype)
        return self._function([scalar, scalar, *infos, *infos], self._update)

    def _update(self, builder: BlockBuilder, params: Var, gradients: Var, states: Var, new: list[Any]) -> list[Any]:
        def number(value: float) -> Constant:
            return const(value, self.dtype)

        beta1, beta2 = number(self.beta1), number(self.beta2)
        prod1 = builder.emit(multiply(TupleGetItem(states, 1), beta1), "beta1_prod")
        prod2 = builder.emit(multiply(TupleGetItem(states, 2), beta2), "beta2_prod")
        firsts, seconds, out = [], [], []
        count = len(self._plist())
        for i, var in enumerate(self._plist()):
            name = var.name_hint
            p = builder.emit(TupleGetItem(params, i), name)
            g = builder.emit(TupleGetItem(gradients, i), f"{name}_grad")
            m = builder.emit(TupleGetItem(states, i + 3), f"{name}_m")
            v = builder.emit(TupleGetItem(states, i + 3 + count), f"{name}_v")
            g = self._decayed(builder, name, p, g, self.weight_decay)
            m = builder.emit(add(multiply(beta1, m), multiply(number(_complement(self.beta1)), g)), f"{name}_m_new")
            square = multiply(number(_complement(self.beta2)), multiply(g, g))
            v = builder.emit(add(multiply(beta2, v), square), f"{name}_v_new")
            m_hat = builder.emit(divide(m, subtract(number(1), prod1)), f"{name}_m_hat")
            v_hat = builder.emit(divide(v, subtract(number(1), prod2)), f"{name}_v_hat")
            step = multiply(number(self.lr), divide(m_hat, add(sqrt(v_hat), number(self.eps))))
            out.append(builder.emit(subtract(p, step), f"{name}_new"))
            firsts.append(m)
            seconds.append(v)
        new += [prod1, prod2, *firsts, *seconds]
        return out
