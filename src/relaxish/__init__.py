"""relaxish: a Relax/MetaSchedule-style deep-learning compiler in Python.

The names of the graph level (``relaxish.Var``, ``relaxish.BlockBuilder``, ``relaxish.build``) are here; ``relaxish.relax``
holds the same.  Everything loads on first use, so ``import relaxish`` is quick and pulls in no framework.
"""

from __future__ import annotations

from .support import aliases as _aliases

__version__ = "0.1.0"

_aliases.MODULE_ALIASES.update(
    {
        "relaxish.relax.transform": "relaxish.transform",
        **{f"relaxish.relax.transform.{name}": "relaxish.transform" for name in (
            "attach_external_modules", "fast_math", "ipc_allreduce_rewrite", "lower_gpu_ipc_alloc_storage",
            "optimize_layout_transform", "remove_redundant_reshape", "transform",
        )},
        "relaxish.relax.transform.tuning_api.database": "relaxish.meta_schedule.pass_database",
        "relaxish.relax.distributed.global_info": "relaxish.relax.distributed",
        "relaxish.relax.distributed.struct_info": "relaxish.relax.distributed",
        "relaxish.relax.distributed.transform": "relaxish.transform.distributed",
        "relaxish.relax.op": "relaxish.op",
        "relaxish.relax.testing": "relaxish.testing.relax",
        "relaxish.relax.training": "relaxish.training",
        "relaxish.relax.frontend": "relaxish.frontend",
        "relaxish.relax.backend": "relaxish.backend",
        "relaxish.relax.pipeline": "relaxish.pipeline",
        "relaxish.relax.vm_build": "relaxish.vm_build",
        "relaxish.relax.exec_builder": "relaxish.runtime.exec_builder",
        "relaxish.runtime.relax_vm": "relaxish.runtime.vm",
        "relaxish.dlight.benchmark": "relaxish.tools.kernel_benchmark",
        "relaxish.nd": "relaxish.runtime.nd",
        "relaxish.relay": "relaxish.autotvm.relay",
        "relaxish.relay.analysis": "relaxish.relax.analysis",
        "relaxish.relay.backend": "relaxish.backend",
        "relaxish.relay.dataflow_pattern": "relaxish.relax.dpl",
        "relaxish.relay.expr": "relaxish.relax.expr",
        "relaxish.relay.op": "relaxish.op",
        "relaxish.relay.transform": "relaxish.transform",
        "relaxish.autotvm.task.relay_integration": "relaxish.autotvm.task.relax_integration",
        "relaxish.autotvm.util": "relaxish.autotvm.utils",
        "relaxish.tile.carver": "relaxish.carver",
        "relaxish.rpc": "relaxish.runtime.rpc",
        "relaxish.error": "relaxish.support.errors",
        "relaxish.instrument": "relaxish.ir.instrument",
        "relaxish.ir.diagnostics": "relaxish.support.diagnostics",
        "relaxish.ir.function": "relaxish.ir.expr",
        "relaxish.ir.type": "relaxish.ir.types",
        "relaxish.runtime.script_printer": "relaxish.script.printer.config",
        "relaxish.tir.pipeline": "relaxish.tir.transform.pipeline",
        "relaxish.tir.stmt_functor": "relaxish.tir.functor",
        "relaxish.tir.block_scope": "relaxish.tir.schedule.sref",
        "relaxish.tir.block_dependence_info": "relaxish.tir.schedule.sref",
        "relaxish.tir.analysis.analysis": "relaxish.tir.analysis",
        "relaxish.tir.transform.function_pass": "relaxish.tir.transform",
        "relaxish.tir.transform.transform": "relaxish.tir.transform",
        "relaxish.arith.bound": "relaxish.arith",
        "relaxish.arith.int_solver": "relaxish.arith",
        "relaxish.arith.pattern": "relaxish.arith",
        "relaxish.dlight.base.analysis": "relaxish.dlight.analysis",
        "relaxish.target.tag": "relaxish.target.tags",
        "relaxish.te.tag": "relaxish.te.operation",
        "relaxish.testing.utils": "relaxish.testing",
        "relaxish.exec": "relaxish.tools",
        "relaxish.ir.tensor_type": "relaxish.ir.types",
        "relaxish.runtime.object": "relaxish.ir.node",
        "relaxish.runtime.object_generic": "relaxish.ir.object_generic",
        "relaxish.runtime.packed_func": "relaxish.runtime.registry",
        "relaxish.target.detect_target": "relaxish.target.detect",
        "relaxish.meta_schedule.runner.config": "relaxish.meta_schedule.runner.rpc_runner",
        "relaxish._ffi.registry": "relaxish.runtime.registry",
        "relaxish._ffi": "relaxish",
        "relaxish._ffi.base": "relaxish.support.errors",
        "relaxish._ffi.runtime_ctypes": "relaxish.runtime",
    }
)  # fmt: skip
_aliases.FUNCTION_MODULES["testing"] = "relaxish.testing.ffi"
_aliases.install()

_DEVICES = "cpu cuda gpu rocm opencl metal vulkan vpi ext_dev hexagon webgpu device Device".split()
_RELAX = (
    "Binding BindingBlock BlockBuilder Call Constant DataTypeImm DataflowBlock DataflowVar Expr ExternFunc "
    "FuncStructInfo Function Id If MatchCast ObjectStructInfo PrimStructInfo PrimValue SeqExpr ShapeExpr "
    "ShapeStructInfo StringImm StructInfo TensorStructInfo Tuple TupleGetItem TupleStructInfo Var VarBinding const "
    "extern"
).split()
_CALLS = "call_dps_packed call_pure_packed call_tir call_tir_inplace call_tir_with_grad".split()
_SCHEDULE = (
    "BlockDependenceInfo BlockScope DepKind Dependency Schedule ScheduleDebugMask ScheduleError ScheduleState StmtSRef "
    "Trace"
).split()
_BUILD = {
    "build": "relaxish.driver:build",
    "compile": "relaxish.driver:compile",
    "lower": "relaxish.driver:lower",
    "VirtualMachine": "relaxish.runtime:VirtualMachine",
    "VMInstrumentReturnKind": "relaxish.runtime:VMInstrumentReturnKind",
    "VMExecutable": "relaxish.runtime:VMExecutable",
    "ExecBuilder": "relaxish.backend.vm:ExecBuilder",
    "get_pipeline": "relaxish.pipeline:get_pipeline",
    "register_pipeline": "relaxish.pipeline:register_pipeline",
    "get_default_pipeline": "relaxish.pipeline:get_default_pipeline",
}
_aliases.register_attributes(
    "relaxish.relax",
    {
        **_BUILD,
        **{name: f"relaxish.op:{name}" for name in _CALLS},
        **{name: f"relaxish.relax.{name}" for name in (
            "backend", "binding_rewrite", "distributed", "dpl", "frontend", "ir", "op", "pipeline", "testing", "training",
            "transform",
        )},
        "DataflowBlockRewrite": "relaxish.relax.binding_rewrite:DataflowBlockRewrite",
        "exec_builder": "relaxish.runtime.exec_builder",
        "vm_build": "relaxish.vm_build",
    },
)  # fmt: skip
_TUNING_PASSES = "FewShotTuning MetaScheduleApplyDatabase MetaScheduleTuneIRMod MetaScheduleTuneTIR".split()
_aliases.register_attributes(
    "relaxish.transform", {name: f"relaxish.meta_schedule.passes:{name}" for name in _TUNING_PASSES}
)
_aliases.register_attributes(
    "relaxish.transform.tuning_api",
    {
        **{
            name: f"relaxish.meta_schedule.pass_database:{name}"
            for name in "Database JSONDatabase TuningRecord".split()
        },
        "default_evaluate": "relaxish.tools.pass_tuning:default_evaluate",
    },
)
_aliases.register_attributes(
    "relaxish.backend",
    {
        "DispatchSampling": "relaxish.backend.dispatch_sampling:DispatchSampling",
        "DispatchSortScan": "relaxish.backend.dispatch_sort_scan:DispatchSortScan",
        **{name: f"relaxish.backend.pattern_registry:{name}" for name in (
            "get_pattern", "get_patterns_with_prefix", "register_patterns",
        )},
        **{name: f"relaxish.backend.{name}" for name in (
            "adreno", "contrib", "cpu_generic", "cuda", "dispatch_sampling", "dispatch_sort_scan", "gpu_generic", "metal",
            "pattern_registry", "patterns", "rocm", "utils",
        )},
        "get_default_pipeline": "relaxish.pipeline:get_default_pipeline",
    },
)  # fmt: skip
_STAGES = (
    "library_dispatch_passes", "legalize_passes", "dataflow_lower_passes", "finalize_passes", "get_default_pipeline",
)  # fmt: skip
for _family in ("adreno", "cpu_generic", "cuda", "gpu_generic", "rocm"):
    _aliases.register_attributes(
        f"relaxish.backend.{_family}", {name: f"relaxish.backend.{_family}.pipeline:{name}" for name in _STAGES}
    )
_aliases.register_attributes(
    "relaxish.backend.cuda",
    {name: f"relaxish.backend.cuda.{name}" for name in ("cublas", "cudnn", "cutlass", "flashinfer")},
)
_aliases.register_attributes("relaxish.backend.rocm", {"hipblas": "relaxish.backend.rocm.hipblas"})
_aliases.register_attributes("relaxish.backend.metal", {"coreml": "relaxish.backend.metal.coreml"})
_aliases.register_attributes("relaxish.backend.contrib", {"nnapi": "relaxish.backend.contrib.nnapi"})
_aliases.register_attributes(
    "relaxish.backend.adreno",
    {"clml": "relaxish.backend.adreno.clml", "OpenCLMLOffLoad": "relaxish.backend.adreno.clml:OpenCLMLOffLoad"},
)
_aliases.register_attributes(
    "relaxish.backend.gpu_generic",
    {
        "gpu_2d_continuous_cumsum": "relaxish.backend.gpu_generic.cumsum:gpu_2d_continuous_cumsum",
        **{name: f"relaxish.backend.gpu_generic.sampling:{name}" for name in (
            "generic_get_sample_index", "gpu_multinomial_from_uniform",
        )},
    },
)  # fmt: skip
_aliases.register_attributes(
    "relaxish.dlight.base",
    {name: f"relaxish.dlight.analysis:{name}" for name in (
        "BlockInfo", "IterInfo", "collect_block_iter_vars_used_in_access_region", "detect_dominant_read",
        "is_broadcast_epilogue", "normalize_prim_func",
    )},
)  # fmt: skip
_aliases.register_attributes(
    "relaxish.tir.schedule",
    {name: f"relaxish.tir.schedule.{name}" for name in ("_type_checker", "analysis", "state", "testing")},
)
_aliases.register_attributes(
    "relaxish.runtime",
    {
        "Object": "relaxish.ir.node:Node",
        "ObjectGeneric": "relaxish.ir.object_generic:ObjectGeneric",
        "convert_to_object": "relaxish.ir.object_generic:convert_to_object",
        "object": "relaxish.ir.node",
        "object_generic": "relaxish.ir.object_generic",
        "packed_func": "relaxish.runtime.registry",
        "PrinterConfig": "relaxish.script.printer.config:PrinterConfig",
        "Scriptable": "relaxish.ir.node:Node",
        "const": "relaxish.ir.prim:const",
        "disco": "relaxish.runtime.disco",
        "relax_vm": "relaxish.runtime.vm",
        "script_printer": "relaxish.script.printer.config",
    },
)
_aliases.register_attributes(
    "relaxish.contrib",
    {name: f"relaxish.contrib.{name}" for name in ("cc", "mkl", "nvcc", "popen_pool", "tar", "thrust")},
)
_aliases.register_attributes("relaxish.topi", {"testing": "relaxish.topi.testing"})
_OPERATIONS = "BaseComputeOp ComputeOp ExternOp Operation PlaceholderOp ScanOp".split()
_aliases.register_attributes("relaxish.te.tensor", {name: f"relaxish.te.operation:{name}" for name in _OPERATIONS})
_aliases.register_attributes("relaxish.te.operation", {"create_prim_func": "relaxish.te.prim_func:create_prim_func"})
_aliases.register_attributes(
    "relaxish.runtime.module",
    {name: f"relaxish.runtime:{name}" for name in (
        "enabled", "load_module", "load_static_library", "num_threads", "system_lib",
    )},
)  # fmt: skip
_aliases.register_attributes(
    "relaxish.runtime.ndarray", {name: f"relaxish.runtime:{name}" for name in "cpu cuda device rocm hexagon".split()}
)
_aliases.register_attributes(
    "relaxish.arith.int_set",
    {name: f"relaxish.arith:{name}" for name in (
        "estimate_region_lower_bound", "estimate_region_strict_bound", "estimate_region_upper_bound",
    )},
)  # fmt: skip
_aliases.register_attributes(
    "relaxish.tir.op", {name: f"relaxish.tir.op_device:{name}" for name in (
        "mma_fill", "mma_store", "ptx_cp_async", "ptx_cp_async_bulk", "ptx_ldmatrix", "ptx_mma", "ptx_mma_sp",
        "q_multiply_shift_per_axis", "tvm_access_ptr", "tvm_struct_get", "tvm_thread_invariant", "tvm_warp_shuffle",
        "tvm_warp_shuffle_down", "tvm_warp_shuffle_up", "type_annotation", "vectorcombine", "vectorhigh", "vectorlow",
    )},
)  # fmt: skip
_aliases.register_attributes(
    "relaxish.tir",
    {
        **{name: f"relaxish.tir.schedule:{name}" for name in _SCHEDULE},
        **{name: f"relaxish.tir.{name}" for name in (
            "analysis", "generic", "ir_builder", "pipeline", "schedule", "tensor_intrin", "transform",
        )},
        "build": "relaxish.driver:build_tir",
        "get_default_tir_pipeline": "relaxish.tir.pipeline:get_default_tir_pipeline",
        "get_tir_pipeline": "relaxish.tir.pipeline:get_tir_pipeline",
    },
)  # fmt: skip
_aliases.register_attributes(
    "relaxish",
    {
        **{name: f"relaxish.relax:{name}" for name in _RELAX},
        **{name: f"relaxish.runtime:{name}" for name in _DEVICES},
        **_BUILD,
        **{name: f"relaxish.{name}" for name in (
            "arith", "autotvm", "backend", "carver", "cli", "contrib", "dlight", "driver", "frontend", "interp", "ir",
            "meta_schedule", "op", "pipeline", "relax", "runtime", "script", "support", "target", "te", "testing",
            "tile", "tir", "tools", "topi", "transform",
        )},
        "error": "relaxish.support.errors",
        "relay": "relaxish.autotvm.relay",
        "instrument": "relaxish.ir.instrument",
        "nd": "relaxish.runtime.nd",
        "IRModule": "relaxish.ir:IRModule",
        "TVMError": "relaxish.support.errors:TVMError",
        "InternalError": "relaxish.support.errors:InternalError",
        "container": "relaxish.ir.container",
        "pass_instrument": "relaxish.ir.instrument:pass_instrument",
        "register_error": "relaxish.support.errors:register_error",
        "DataType": "relaxish.runtime:DataType",
        "DataTypeCode": "relaxish.runtime:DataTypeCode",
        "Object": "relaxish.ir.node:Node",
        "register_object": "relaxish.ir.node:register_object",
        "register_func": "relaxish.runtime:register_func",
        "get_global_func": "relaxish.runtime:get_global_func",
        "Target": "relaxish.target:Target",
        "convert": "relaxish.ir:convert",
    },
)  # fmt: skip


__getattr__, __dir__ = _aliases.lazy_package(globals())
