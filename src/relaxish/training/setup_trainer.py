"""SetupTrainer: from a backbone to everything a training step needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import ModulePass, PassContext, PassInfo
from ..relax.analysis.wellformed import well_formed
from ..relax.expr import Function
from ..relax.struct_info import StructInfo, as_struct_info, fields_of
from ..transform.decompose_ops import DecomposeOpsForTraining
from ..transform.gradient import Gradient
from ..transform.legalize_ops import LegalizeOps
from .loss import Loss
from .optimizer import Optimizer
from .utils import AppendLoss
from ..ir.plain import plain

__all__ = ["SetupTrainer"]


class SetupTrainer(ModulePass):
    """A pass that completes a module with the function ``backbone`` for training.

    ``backbone(inputs..., params..., states...)`` returns its results and then the new states; the module attributes
    ``param_num`` and ``state_num`` count its parameters and states.  Added are ``backbone_loss``,
    ``backbone_loss_adjoint`` and ``optimizer``, and the attributes ``input_num`` and ``optim_state``. ``loss_args`` is the
    struct info of all that the loss takes: results of the backbone, targets, weights.

    Raises ValueError if the module is not of that form.
    """

    BACKBONE_FUNC = "backbone"
    BACKBONE_LOSS_FUNC = "backbone_loss"
    ADJOINT_FUNC = "backbone_loss_adjoint"
    UPDATE_PARAMS_FUNC = OPTIMIZER_FUNC = "optimizer"
    PARAM_NUM_ATTR_KEY = "param_num"
    STATE_NUM_ATTR_KEY = "state_num"

    def __init__(self, loss: Loss, optimizer: Optimizer, loss_args: Sequence[Any], legalize: bool = True) -> None:
        super().__init__(PassInfo(0, "SetupTrainer", ()))
        self._loss = loss
        self._optimizer = optimizer
        self._loss_args: list[StructInfo] = [as_struct_info(a) for a in loss_args]
        self._legalize = legalize

    def _count(self, mod: IRModule, key: str) -> int:
        value = (mod.attrs or {}).get(key)
        value = plain(value)
        if not isinstance(value, int):
            raise ValueError(f"SetupTrainer: The backbone module should have an integer attribute named {key}")
        return value

    def _check(self, mod: IRModule) -> tuple[int, int]:
        if not well_formed(mod):
            raise ValueError("SetupTrainer: The backbone module is not well formed.")
        if self.BACKBONE_FUNC not in mod or not isinstance(mod[self.BACKBONE_FUNC], Function):
            raise ValueError(
                f"SetupTrainer: The backbone module does not contain a function named {self.BACKBONE_FUNC}"
            )
        params, states = self._count(mod, self.PARAM_NUM_ATTR_KEY), self._count(mod, self.STATE_NUM_ATTR_KEY)
        func = mod[self.BACKBONE_FUNC]
        if len(func.params) < params + states:
            raise ValueError(
                f"SetupTrainer: The number of parameters of the backbone function should be no less than the number "
                f"of parameters and states, {params + states}, but it is {len(func.params)}"
            )
        wanted = self._loss.num_backbone_outputs + states
        have = len(_results(func))
        if have < wanted or (states == 0 and have != wanted and wanted > 1):
            raise ValueError(
                f"SetupTrainer: The backbone function should return {wanted} values (results for the loss and states), "
                f"but it returns {have}"
            )
        return params, states

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The completed module."""
        param_num, state_num = self._check(mod)
        loss = self._loss(*self._loss_args)  # type: ignore[operator]
        mod = AppendLoss(self.BACKBONE_FUNC, loss, self._loss.num_backbone_outputs, self.BACKBONE_LOSS_FUNC)(mod)
        mod = DecomposeOpsForTraining(self.BACKBONE_LOSS_FUNC)(mod)
        input_num = len(mod[self.BACKBONE_FUNC].params) - param_num - state_num
        params = mod[self.BACKBONE_LOSS_FUNC].params[input_num : input_num + param_num]
        mod = Gradient(self.BACKBONE_LOSS_FUNC, require_grads=params, target_index=0)(mod)
        self._optimizer.init(params)
        out = mod.clone()
        out[self.OPTIMIZER_FUNC] = self._optimizer.get_function().with_attr("global_symbol", self.OPTIMIZER_FUNC)
        out = out.with_attrs({"input_num": input_num, "optim_state": list(self._optimizer.state or ())})
        return LegalizeOps()(out) if self._legalize else out


def _results(func: Function) -> list[StructInfo]:
    info = func.ret_struct_info
    return list(fields_of(info))
