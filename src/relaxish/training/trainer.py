"""Trainer: runs training steps of a module that SetupTrainer made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.module import IRModule
from ..relax.expr import Var
from ..relax.scalars import const_int
from ..runtime.device import Device
from ..runtime.arrays.ndarray import NDArray, array
from ..runtime.vm.machine import VirtualMachine
from ..support.sequences import as_list
from .setup_trainer import SetupTrainer
from ..ir.plain import plain_int

__all__ = ["Trainer"]


class Trainer:
    """Keeps parameters, model states and optimizer state, and updates them.

    ::

        module = SetupTrainer(MSELoss(), SGD(0.1), [out_info, out_info])(backbone)
        vm = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
        trainer = Trainer(module, vm, tvm.cpu())
        trainer.xaiver_uniform_init_params()
        loss = trainer.update(inputs, targets)
    """

    def __init__(
        self, train_mod: IRModule, vm: VirtualMachine, device: Device, zero_init_param_state: bool = True
    ) -> None:
        self.mod = train_mod
        self.vm = vm
        self.device = device

        def count(key: str) -> int:
            value = train_mod.attrs[key]
            return plain_int(value)

        self._input_num = count("input_num")
        param_num = count(SetupTrainer.PARAM_NUM_ATTR_KEY)
        state_num = count(SetupTrainer.STATE_NUM_ATTR_KEY)
        params = list(train_mod[SetupTrainer.ADJOINT_FUNC].params)
        self._param_vars: list[Var] = params[self._input_num : self._input_num + param_num]
        self._state_vars: list[Var] = params[self._input_num + param_num : self._input_num + param_num + state_num]
        self._params: list[Any] = [None] * param_num
        self._states: list[Any] = [None] * state_num
        self._optim_state: list[Any] = [self._array(a.numpy()) for a in train_mod.attrs["optim_state"]]
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    def _array(self, value: np.ndarray[Any, Any]) -> NDArray:
        return array(value.numpy() if isinstance(value, NDArray) else np.asarray(value), self.device)

    @staticmethod
    def _shape(var: Var) -> list[int]:
        return [const_int(d) or 0 for d in var.struct_info.dims()]

    def xaiver_uniform_init_params(self) -> None:
        """Fill the parameters from Xavier's uniform distribution."""
        for index, var in enumerate(self._param_vars):
            shape = self._shape(var)
            bound = float(np.sqrt(6.0 / max(sum(shape[-2:]), 1)))
            self._params[index] = self._array(np.random.uniform(-bound, bound, shape).astype(var.struct_info.dtype))

    def _zeros(self, variables: Sequence[Var]) -> list[Any]:
        return [self._array(np.zeros(self._shape(v), v.struct_info.dtype)) for v in variables]

    def zero_init_params(self) -> None:
        """Fill the parameters with zeros."""
        self._params = self._zeros(self._param_vars)

    def zero_init_states(self) -> None:
        """Fill the model states with zeros."""
        self._states = self._zeros(self._state_vars)

    def _load(self, given: Mapping[str, Any], variables: Sequence[Var], values: list[Any]) -> None:
        names = {v.name_hint: i for i, v in enumerate(variables)}
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"the model has no parameter or state named {name}")
            values[names[name]] = self._array(value)

    def load_params(self, extern_param_dict: Mapping[str, Any]) -> None:
        """Set parameters by name. Raises ValueError for an unknown name."""
        self._load(extern_param_dict, self._param_vars, self._params)

    def load_states(self, extern_state_dict: Mapping[str, Any]) -> None:
        """Set model states by name. Raises ValueError for an unknown name."""
        self._load(extern_state_dict, self._state_vars, self._states)

    def export_params(self) -> dict[str, NDArray]:
        """Parameters by name."""
        return {v.name_hint: value for v, value in zip(self._param_vars, self._params)}

    def export_states(self) -> dict[str, NDArray]:
        """Model states by name."""
        return {v.name_hint: value for v, value in zip(self._state_vars, self._states)}

    def _check_inited(self) -> None:
        for var, value in zip([*self._param_vars, *self._state_vars], [*self._params, *self._states]):
            if value is None:
                raise RuntimeError(f"the parameter or state {var.name_hint} is not initialized")

    def _inputs(self, given: np.ndarray[Any, Any]) -> list[Any]:
        items = as_list(given)
        return [self._array(i) for i in items]

    def predict(self, *input_instances: Any) -> Any:
        """Result of the backbone for these inputs, without new states."""
        self._check_inited()
        if len(input_instances) != self._input_num:
            raise ValueError(f"the model takes {self._input_num} inputs, but got {len(input_instances)}")
        inputs = [self._array(i) for i in input_instances]
        result = self.vm[SetupTrainer.BACKBONE_FUNC](*inputs, *self._params, *self._states)
        if not self._states:
            return result
        kept = list(result)[: len(result) - len(self._states)]
        return kept[0] if len(kept) == 1 else kept

    def update(self, input_instances: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> NDArray:
        """One training step on one batch; returns the loss."""
        self._check_inited()
        args = [*self._inputs(input_instances), *self._params, *self._states, *self._inputs(targets)]
        result, gradients = self.vm[SetupTrainer.ADJOINT_FUNC](*args)
        if self._states:
            loss, *self._states = list(result)
        else:
            loss = result
        params, state = self.vm[SetupTrainer.OPTIMIZER_FUNC](
            tuple(self._params), tuple(gradients), tuple(self._optim_state)
        )
        self._params, self._optim_state = list(params), list(state)
        made: NDArray = loss
        return made

    def profile_adjoint(self, input_instances: Any, targets: Any) -> Any:
        """A report of the time each kernel of a training step takes; nothing is updated."""
        self._check_inited()
        args = [*self._inputs(input_instances), *self._params, *self._states, *self._inputs(targets)]
        return self.vm.profile(SetupTrainer.ADJOINT_FUNC, *args)
