"""relaxish: a Relax/MetaSchedule-style deep-learning compiler in Python.

The names of the graph level (``relaxish.Var``, ``relaxish.BlockBuilder``, ``relaxish.build``) are here; ``relaxish.relax``
holds the same.  Everything loads on first use, so ``import relaxish`` is quick and pulls in no framework.
"""

from __future__ import annotations

from typing import Any

from .support import aliases as _aliases

__version__ = "0.1.0"

_aliases.MODULE_ALIASES.update(
    {
        "relaxish.relax.transform": "relaxish.transform",
        "relaxish.relax.op": "relaxish.op",
        "relaxish.relax.frontend": "relaxish.frontend",
        "relaxish.relax.backend": "relaxish.backend",
        "relaxish.relax.pipeline": "relaxish.pipeline",
        "relaxish.nd": "relaxish.runtime.ndarray",
        "relaxish.error": "relaxish.support.errors",
        "relaxish.instrument": "relaxish.ir.instrument",
        "relaxish.tir.op_names": "relaxish.tir.op",
    }
)
_aliases.install()

_DEVICES = "cpu cuda gpu rocm opencl metal vulkan vpi ext_dev hexagon webgpu device Device".split()
_RELAX = (
    "Binding BindingBlock BlockBuilder Call Constant DataTypeImm DataflowBlock DataflowVar Expr ExternFunc "
    "FuncStructInfo Function Id If MatchCast ObjectStructInfo PrimStructInfo PrimValue SeqExpr ShapeExpr "
    "ShapeStructInfo StringImm StructInfo TensorStructInfo Tuple TupleGetItem TupleStructInfo Var VarBinding const "
    "extern"
).split()
_BUILD = {
    "build": "relaxish.driver:build",
    "compile": "relaxish.driver:compile",
    "VirtualMachine": "relaxish.runtime:VirtualMachine",
    "VMInstrumentReturnKind": "relaxish.runtime:VMInstrumentReturnKind",
    "VMExecutable": "relaxish.runtime:VMExecutable",
    "ExecBuilder": "relaxish.backend.vm:ExecBuilder",
    "get_pipeline": "relaxish.pipeline:get_pipeline",
    "register_pipeline": "relaxish.pipeline:register_pipeline",
    "get_default_pipeline": "relaxish.pipeline:get_default_pipeline",
}
_aliases.register_attributes("relaxish.relax", {**_BUILD})
_aliases.register_attributes("relaxish.tir", {"build": "relaxish.driver:build_tir"})
_aliases.register_attributes(
    "relaxish",
    {
        **{name: f"relaxish.relax:{name}" for name in _RELAX},
        **{name: f"relaxish.runtime:{name}" for name in _DEVICES},
        **_BUILD,
        **{name: f"relaxish.{name}" for name in (
            "arith", "backend", "carver", "cli", "dlight", "driver", "frontend", "interp", "ir", "meta_schedule", "op",
            "pipeline", "relax", "runtime", "script", "support", "target", "te", "testing", "tir", "tools", "topi",
            "transform",
        )},
        "error": "relaxish.support.errors",
        "instrument": "relaxish.ir.instrument",
        "nd": "relaxish.runtime.ndarray",
        "IRModule": "relaxish.ir:IRModule",
        "TVMError": "relaxish.support.errors:TVMError",
        "DataType": "relaxish.runtime:DataType",
        "register_func": "relaxish.runtime:register_func",
        "get_global_func": "relaxish.runtime:get_global_func",
        "Target": "relaxish.target:Target",
        "convert": "relaxish.ir:convert",
    },
)  # fmt: skip


def __getattr__(name: str) -> Any:
    value = _aliases.attribute("relaxish", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_aliases.names("relaxish")})
