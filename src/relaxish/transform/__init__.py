"""Passes over graph programs, one a file. Names resolve on first use, so that importing this package is cheap."""

from __future__ import annotations

import importlib
from typing import Any

from ..ir.transform import (
    ApplyPassToFunction,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    module_pass,
)
from ..support import aliases

# Public name -> the module that defines it.
_MODULES: dict[str, str] = {
    "AdjustMatmulOrder": "matmul_rewrites",
    "AllocateWorkspace": "allocate_workspace",
    "AlterOpImpl": "alter_op_impl",
    "AnnotateTIROpPattern": "annotate_tir_op_pattern",
    "AttachAttrLayoutFreeBuffers": "attach_attr_layout_free_buffers",
    "AttachExternModules": "simple_rewrites",
    "AttachGlobalSymbol": "attach_global_symbol",
    "BindParams": "bind_params",
    "BindSymbolicVars": "bind_params",
    "BundleModelParams": "bundle_model_params",
    "CallTIRRewrite": "call_tir_rewrite",
    "CanonicalizeBindings": "canonicalize_bindings",
    "CombineParallelMatmul": "combine_parallel_matmul",
    "ComputePrimValue": "compute_prim_value",
    "ConvertLayout": "convert_layout",
    "ConvertToDataflow": "convert_to_dataflow",
    "DataflowBlockPass": "base",
    "DataflowUseInplaceCalls": "dataflow_inplace",
    "DeadCodeElimination": "dead_code_elimination",
    "DecomposeOpsForInference": "decompose_ops",
    "DecomposeOpsForTraining": "decompose_ops",
    "EliminateCommonSubexpr": "eliminate_common_subexpr",
    "ExpandMatmulOfSum": "matmul_rewrites",
    "ExpandTupleArguments": "private_signatures",
    "FastMathTransform": "simple_rewrites",
    "FoldBatchnormToConv2D": "fold_batchnorm",
    "FoldConstant": "fold_constant",
    "FunctionPass": "base",
    "FuseOps": "fuse_ops",
    "FuseOpsByPattern": "fuse_ops_by_pattern",
    "FuseTIR": "fuse_tir",
    "FuseTransposeMatmul": "fuse_transpose_matmul",
    "FusionPattern": "fuse_ops_by_pattern",
    "Gradient": "gradient",
    "IPCAllReduceRewrite": "gpu_ipc",
    "InlinePrivateFunctions": "inline_private_functions",
    "KillAfterLastUse": "kill_after_last_use",
    "LambdaLift": "lambda_lift",
    "LazyGetInput": "lazy_params",
    "LazySetOutput": "lazy_params",
    "LazyTransformParams": "lazy_transform_params",
    "LegalizeOps": "legalize_ops",
    "LiftTransformParams": "lift_transform_params",
    "LowerAllocTensor": "lower_alloc_tensor",
    "LowerGPUIPCAllocStorage": "gpu_ipc",
    "LowerRuntimeBuiltin": "lower_runtime_builtin",
    "MergeCompositeFunctions": "merge_composite_functions",
    "Normalize": "normalize",
    "NormalizeGlobalVar": "normalize",
    "OptimizeLayoutTransform": "simple_rewrites",
    "PatternCheckContext": "fuse_ops_by_pattern",
    "RealizeVDevice": "realize_vdevice",
    "RemovePurityChecking": "remove_purity_checking",
    "RemoveRedundantReshape": "simple_rewrites",
    "RemoveUnusedOutputs": "private_signatures",
    "RemoveUnusedParameters": "private_signatures",
    "ReorderPermuteDimsAfterConcat": "matmul_rewrites",
    "ReorderTakeAfterMatmul": "matmul_rewrites",
    "RewriteCUDAGraph": "rewrite_cuda_graph",
    "RewriteDataflowReshape": "rewrite_dataflow_reshape",
    "RunCodegen": "run_codegen",
    "SplitCallTIRByPattern": "split_call_tir_by_pattern",
    "SplitLayoutRewritePreproc": "split_layout_rewrite_preproc",
    "StaticPlanBlockMemory": "static_plan_block_memory",
    "ToMixedPrecision": "to_mixed_precision",
    "ToNonDataflow": "to_non_dataflow",
    "TopologicalSort": "topological_sort",
    "UpdateParamStructInfo": "update_param_struct_info",
    "UpdateVDevice": "vdevice",
    "VMBuiltinLower": "lower_runtime_builtin",
    "VMShapeLower": "vm_shape_lower",
    "dataflowblock_pass": "base",
    "function_pass": "base",
}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "ApplyPassToFunction",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PrintIR",
    "Sequential",
    "module_pass",
    *_MODULES,
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if name == "tuning_api":
        value = importlib.import_module(f"{__name__}.{name}")
    elif module is None:
        # The tuning passes stand above this layer; the root package says where.
        value = aliases.attribute(__name__, name)
    else:
        value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *aliases.names(__name__)})
