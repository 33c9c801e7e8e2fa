"""LowerRuntimeBuiltin: operators that the virtual machine implements itself become calls of its builtins."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.expr import Call, DataTypeImm, ExternFunc, Function, PrimValue, Tuple
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import ObjectStructInfo, TensorStructInfo
from .base import as_module_pass, map_relax_functions

__all__ = ["LowerRuntimeBuiltin", "VMBuiltinLower"]

_PACKED = {
    "relax.reshape": "vm.builtin.reshape",
    "relax.shape_of": "vm.builtin.shape_of",
    "relax.tensor_to_shape": "vm.builtin.tensor_to_shape",
    "relax.memory.ensure_zero_offset": "vm.builtin.ensure_zero_offset",
}
_KILLS = ("relax.memory.kill_storage", "relax.memory.kill_tensor")


class _Lower(PyExprMutator):
    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        if not isinstance(call.op, Op):
            return call
        name = call.op.name
        if name in _PACKED:
            return Call(ExternFunc(_PACKED[name]), call.args, None, (self._info(call),), call.span)
        if name in _KILLS:
            return Call(Op.get("relax.vm.kill_object"), call.args, None, None, call.span)
        rule = getattr(self, "_" + name.rsplit(".", 1)[-1], None) if name in _RULES else None
        return call if rule is None else rule(call)

    def _info(self, call: Call) -> Any:
        return call.struct_info_ if call.struct_info_ is not None else self.builder_.normalize(call).struct_info

    def _to_vdevice(self, call: Call) -> Call:
        target = call.attrs.dst_vdevice
        kind = getattr(getattr(target.target, "kind", None), "name", "llvm")
        code = {"llvm": 1, "c": 1, "cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "rocm": 10}.get(kind, 1)
        args = (call.args[0], PrimValue(code), PrimValue(int(target.vdevice_id)))
        return Call(ExternFunc("vm.builtin.to_device"), args, None, (self._info(call),), call.span)

    def _make_closure(self, call: Call) -> Call:
        args = (call.args[0], *call.args[1].fields)
        return Call(ExternFunc("vm.builtin.make_closure"), args, None, (ObjectStructInfo(),), call.span)

    def _invoke_closure(self, call: Call) -> Call:
        args = Tuple((call.args[0], *call.args[1].fields))
        builtin = ExternFunc("vm.builtin.invoke_closure")
        return Call(Op.get("relax.call_builtin_with_ctx"), (builtin, args), None, call.sinfo_args, call.span)

    def _alloc_tensor(self, call: Call) -> Call:
        return Call(Op.get("relax.vm.alloc_tensor"), call.args, None, None, call.span)

    def _alloc_storage(self, call: Call) -> Call:
        size, device, scope, dtype = call.args
        return Call(Op.get("relax.vm.alloc_storage"), (size, device, dtype, scope), None, None, call.span)

    def _view(self, call: Call) -> Call:
        info: Any = self._info(call)
        data, shape, dtype, offset = call.args
        source = data.struct_info
        if type(shape.struct_info) is ObjectStructInfo:
            shape = info.shape if isinstance(info, TensorStructInfo) else source.shape
        if not isinstance(dtype, DataTypeImm):
            dtype = DataTypeImm(source.dtype)
        if type(offset.struct_info) is ObjectStructInfo:
            offset = PrimValue(0)
        return Call(
            ExternFunc("runtime.TVMArrayCreateView"), (data, shape, dtype, offset), None, (info,), call.span
        )


_RULES = frozenset(
    (
        "relax.to_vdevice",
        "relax.make_closure",
        "relax.invoke_closure",
        "relax.memory.alloc_tensor",
        "relax.memory.alloc_storage",
        "relax.memory.view",
    )
)


def _run(mod: IRModule) -> IRModule:
    lower = _Lower(mod)

    def rewrite(_: Any, func: Function) -> Function:
        made: Function = lower.visit_expr(func)
        return made

    return map_relax_functions(mod, rewrite)


def LowerRuntimeBuiltin() -> Pass:  # noqa: N802  (public name of the pass)
    """Replace reshape, shape_of, closures, memory and view operators by the machine's builtins."""
    return as_module_pass(_run, "LowerRuntimeBuiltin")


def VMBuiltinLower() -> Pass:  # noqa: N802  (public name of the pass)
    """The older name of :func:`LowerRuntimeBuiltin`."""
    return LowerRuntimeBuiltin()
