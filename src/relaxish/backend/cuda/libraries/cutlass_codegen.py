"""``relax.ext.cutlass``: composite functions become CUDA kernels of relaxish's own.

CUTLASS is a library of C++ templates; what it would be instantiated for is here lowered, fused, scheduled with the
default GPU rules (tensor cores included) and generated, separately from the rest of the model. So one can choose per
operator, and compare.

Options (``RunCodegen({"cutlass": {"sm": 90}})``): ``sm`` is the architecture; without it the target in scope decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .... import transform
from ....ir.declared_pass import ModuleRewrite
from ....ir.expr import PrimExpr
from ....ir.module import IRModule, functions_of
from ....ir.prim import const_int
from ....ir.transform import Sequential
from ....relax.expr import Constant, Function, Var, VarBinding, is_call_of
from ....relax.struct_info import TensorStructInfo, fields_of
from ....runtime.kernels.external import KernelModule, Program, Step
from ....runtime.registry import register_func
from ....support.errors import RelaxishError
from ....target import Target
from ....tir import PrimFunc
from ...common import stages
from ..build import build_device

__all__ = ["cutlass_codegen"]


def _target(options: Mapping[str, Any]) -> Target:
    current = Target.current()
    if "sm" in options or current is None or current.kind.name != "cuda":
        return Target({"kind": "cuda", "arch": f"sm_{options.get('sm', 80)}"}, host="llvm")
    return current


def _lowered(func: Function, target: Target) -> IRModule:
    """The function's own module: calls of scheduled tensor programs."""
    bare = func.without_attr("Codegen").without_attr("WorkspaceSize").with_attr("global_symbol", "main")
    passes = [
        transform.LambdaLift(),
        _CompositesAsPrivate(),
        transform.InlinePrivateFunctions(),
        transform.ConvertToDataflow(min_size=1),
        transform.FuseTransposeMatmul(),
        *stages.legalize(),
        *stages.gpu_schedules(target),
    ]
    with target:
        out: IRModule = Sequential(passes)(IRModule({"main": bare}))
    return out


class _CompositesAsPrivate(ModuleRewrite, name="CompositesAsPrivate"):
    """Composites are functions like others now."""

    def rewrite(self, mod: IRModule) -> IRModule:
        out = mod.clone()
        for var, func in functions_of(mod, Function):
            if "Composite" in func.attrs:
                out.update_func(
                    var, func.without_attr("Composite").without_attr("global_symbol").without_attr("WorkspaceSize")
                )
        return out


class _Programs:
    """The programs of a module, and the kernels and constants they use."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.kernels: dict[str, PrimFunc] = {}
        self.constants: dict[str, Any] = {}

    def add(self, func: Function) -> Program:
        """One function."""
        symbol = str(func.attrs["global_symbol"])
        mod = _lowered(func, self.target)
        main = mod["main"]
        names: dict[Any, str] = {param: f"p{i}" for i, param in enumerate(main.params)}
        steps: list[Step] = []
        for block in main.body.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, Var):
                    names[binding.var] = names[binding.value]
                    continue
                names[binding.var] = f"v{len(steps)}"
                steps.append(self._step(symbol, mod, binding, names))
        body = main.body.body
        results = fields_of(body)
        return Program(len(main.params), tuple(steps), tuple(names[r] for r in results))

    def _step(self, symbol: str, mod: IRModule, binding: VarBinding, names: Mapping[Any, str]) -> Step:
        call, info = binding.value, binding.var.struct_info
        if not is_call_of(call, "relax.call_tir"):
            raise RelaxishError(f"{symbol}: the CUTLASS code generator cannot make a kernel of {call}")
        if not isinstance(info, TensorStructInfo) or len(call.args) > 2:
            raise RelaxishError(
                f"{symbol}: a kernel with several results or scalar arguments has no place in a library call"
            )
        kernel = f"{symbol}_{call.args[0].name_hint}"
        self.kernels[kernel] = mod[call.args[0]].with_attr("global_symbol", kernel)
        inputs = [self._operand(a, names) for a in call.args[1].fields]
        shape = [const_int(d, -1) for d in info.shape]
        return Step("kernel", tuple(inputs), info.dtype, {"name": kernel, "shape": shape})

    def _operand(self, value: PrimExpr, names: Mapping[Any, str]) -> str:
        if not isinstance(value, Constant):
            return names[value]
        name = f"c{len(self.constants)}"
        self.constants[name] = value.data
        return name


@register_func("relax.ext.cutlass", override=True)
def cutlass_codegen(
    functions: Sequence[Function], options: Mapping[str, Any], constant_names: Mapping[Constant, str]
) -> list[KernelModule]:
    """One runtime module with all functions, kernels included."""
    target = _target(options)
    programs = _Programs(target)
    made = {str(f.attrs["global_symbol"]): programs.add(f) for f in functions}
    with target:
        kernels = build_device(IRModule(programs.kernels), target)
    return [KernelModule("cutlass", made, programs.constants, kernels)]
