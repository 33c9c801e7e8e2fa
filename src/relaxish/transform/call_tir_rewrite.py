"""CallTIRRewrite: destination-passing calls get explicit allocations."""

from __future__ import annotations

from typing import Any

from ..ir.global_info import VDevice
from ..ir.module import IRModule
from ..ir.op import Op
from ..relax.expr import Call, DataTypeImm, Expr, PrimValue, StringImm, Tuple, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, fields_of
from ..support.errors import InternalError
from .base import mutated
from ..ir.declared_pass import ModuleRewrite

__all__ = ["CallTIRRewrite"]

_NAMES = ("relax.call_tir", "relax.call_dps_packed", "relax.call_tir_inplace", "relax.call_tir_with_grad")


class _CallTIRRewriter(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, *_NAMES):
            return call
        args = self._args(call)
        inplace = list(call.attrs.get_int_tuple("inplace_indices")) if call.op.name == _NAMES[2] else None
        outputs = self._outputs(call.sinfo_args[0], args, inplace)
        fresh = [o for i, o in enumerate(outputs) if inplace is None or inplace[i] == -1]
        if len(call.args) == 2:
            self.builder_.emit(Call(call.args[0], (*args, *fresh)), "_")
        else:
            dynamic = Op.get("relax.vm.call_tir_dyn")
            self.builder_.emit(Call(dynamic, (call.args[0], Tuple((*args, *fresh, call.args[2])))), "_")
        if isinstance(call.sinfo_args[0], TupleStructInfo):
            return Tuple(outputs)
        return outputs[0]

    def _args(self, call: Call) -> list[Any]:
        value = call.args[1]
        if isinstance(value, Tuple):
            return list(value.fields)
        info = value.struct_info
        if isinstance(info, TupleStructInfo):
            from ..relax.expr import TupleGetItem

            return [self.builder_.emit(TupleGetItem(value, i)) for i in range(len(info.fields))]
        return [value]

    def _outputs(self, info: StructInfo, args: list[Any], inplace: list[int] | None) -> list[Any]:
        infos = fields_of(info)
        return [
            args[inplace[i]] if inplace is not None and inplace[i] != -1 else self._alloc(each)
            for i, each in enumerate(infos)
        ]

    def _alloc(self, info: StructInfo) -> Expr:
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise InternalError(f"the output of a destination-passing call needs a known shape, but has {info}")
        if not info.dtype:
            raise InternalError("the output of a destination-passing call needs a known dtype")
        index, scope = self._device(info.vdevice)
        call = Call(
            Op.get("relax.builtin.alloc_tensor"),
            (info.shape, DataTypeImm(info.dtype), PrimValue(index), StringImm(scope)),
        )
        return self.builder_.emit(call, "alloc")

    def _device(self, vdevice: VDevice | None) -> tuple[int, str]:
        if vdevice is None:
            return 0, "global"
        from ..relax.struct_info import same_vdevice

        for index, known in enumerate(self.mod.global_infos.get("vdevice", ())):
            if same_vdevice(known, vdevice):
                return index, str(vdevice.memory_scope)
        raise InternalError("a tensor lives on a virtual device that the module does not list")


class CallTIRRewrite(ModuleRewrite):
    """Make allocations explicit.

    ::

        lv = R.call_tir(cls.f, (x,), R.Tensor((4,), "float32"))
        # becomes
        alloc = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
        _ = cls.f(x, alloc)
        lv = alloc
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return mutated(_CallTIRRewriter(mod), mod)
