"""The table of public names: what is found where users of the field look for it, and where it really is.

The root package gives these tables to ``support/entry_points.py``, which is the one loader of all of them. A name that a
package defines or imports itself is not here.
"""

from __future__ import annotations

__all__ = ["HOOKS", "PUBLIC_NAMES"]

#: What low layers load without naming it: hook -> "module", or "module:name".
HOOKS = {
    "build": "relaxish.driver:build",
    "builder.ray": "relaxish.meta_schedule.distributed.ray_runner:RayBuilder",
    "kernel_pipeline": "relaxish.pipeline:kernel_pipeline",
    "contrib.ndk": "relaxish.contrib.ndk:create_shared",
    "cost_model.mlp": "relaxish.meta_schedule.cost_model.mlp_model:MLPModel",
    "cost_model.random": "relaxish.meta_schedule.cost_model.cost_model:RandomModel",
    "cost_model.xgb": "relaxish.meta_schedule.cost_model.xgb_model:XGBModel",
    "cuda.external_kernel": "relaxish.backend.cuda.external_kernel",
    "cuda.provider.emulator": "relaxish.backend.emulator.provider",
    "cuda.provider.emulator-fast": "relaxish.backend.emulator.provider",
    "cuda.tools": "relaxish.backend.cuda.build",
    "database.json": "relaxish.meta_schedule.database.json_database:JSONDatabase",
    "database.memory": "relaxish.meta_schedule.database.memory_database:MemoryDatabase",
    "database.ordered_union": "relaxish.meta_schedule.database.union_database:OrderedUnionDatabase",
    "database.sql": "relaxish.meta_schedule.database.sql.sql_database:SQLDatabase",
    "database.schedule_fn": "relaxish.meta_schedule.database.schedule_fn_database:ScheduleFnDatabase",
    "database.union": "relaxish.meta_schedule.database.union_database:UnionDatabase",
    "device_module.cuda": "relaxish.runtime.nvidia.module:CUDAModule",
    "device_runtime.nvptx": "relaxish.runtime.nvidia.ptx_runtime:ptx_runtime",
    "device_runtime.opencl": "relaxish.runtime.opencl_driver.host_runtime:OpenCLRuntime",
    "disco.remote_worker": "relaxish.tools.disco_remote_socket_session",
    "disco.worker": "relaxish.tools.disco_worker",
    "functions.meta_schedule": "relaxish.meta_schedule",
    "functions.testing": "relaxish.testing.ffi",
    "library.cublas": "relaxish.runtime.nvidia.libs.gemm_kernel",
    "library.cudnn": "relaxish.runtime.nvidia.libs.conv_kernel",
    "library.mkl": "relaxish.runtime.kernels.mkl",
    "native_compiler": "relaxish.backend.llvm.native",
    "nodes.relax": "relaxish.relax",
    "nodes.tir": "relaxish.tir",
    "operators": "relaxish.op",
    "printer": "relaxish.script.printer",
    "relax.binding_tools": "relaxish.relax.binding_tools",
    "relax.convert_to_expr": "relaxish.relax.utils:convert_to_expr",
    "relax.inline_functions": "relaxish.relax.inline:inline_functions",
    "relax.inspect_proxy": "relaxish.relax.inspect_proxy",
    "relax.te_tensor": "relaxish.relax.te_bridge:te_tensor",
    "runtime.export": "relaxish.runtime.exports.export",
    "runner.ray": "relaxish.meta_schedule.distributed.ray_runner:RayRunner",
    "script.parse": "relaxish.script.parser.core.entry:parse",
    "search_strategy.evolutionary": "relaxish.meta_schedule.search_strategy.evolutionary_search:EvolutionarySearch",
    "search_strategy.replay-func": "relaxish.meta_schedule.search_strategy.replay:ReplayFunc",
    "search_strategy.replay-trace": "relaxish.meta_schedule.search_strategy.replay:ReplayTrace",
    "serial": "relaxish.ir.serial",
    "targets": "relaxish.target",
    "tensor_arithmetic": "relaxish.topi",
    "tensor_intrinsics": "relaxish.tir.tensor_intrin:load_all",
    "trust": "relaxish.meta_schedule.trust",
    "tuning.mutators": "relaxish.meta_schedule.defaults:default_mutators",
    "tuning.postprocs": "relaxish.meta_schedule.defaults:default_postprocs",
    "tuning.rules": "relaxish.meta_schedule.defaults:default_rules",
}

# Other paths of modules.
_MODULES = {
    "relaxish._ffi": "relaxish",
    "relaxish._ffi.base": "relaxish.support.errors",
    "relaxish._ffi.registry": "relaxish.runtime.registry",
    "relaxish._ffi.runtime_ctypes": "relaxish.runtime",
    "relaxish.arith.bound": "relaxish.arith",
    "relaxish.arith.int_solver": "relaxish.arith",
    "relaxish.arith.pattern": "relaxish.arith",
    "relaxish.autotvm.relay.analysis": "relaxish.relax.analysis",
    "relaxish.autotvm.relay.backend": "relaxish.backend",
    "relaxish.autotvm.relay.dataflow_pattern": "relaxish.relax.dpl",
    "relaxish.autotvm.relay.expr": "relaxish.relax.expr",
    "relaxish.autotvm.relay.op": "relaxish.op",
    "relaxish.autotvm.relay.transform": "relaxish.transform",
    "relaxish.autotvm.task.relay_integration": "relaxish.autotvm.task.relax_integration",
    "relaxish.autotvm.util": "relaxish.autotvm.utils",
    "relaxish.container": "relaxish.ir.container",
    "relaxish.dlight.base.analysis": "relaxish.dlight.analysis",
    "relaxish.dlight.benchmark": "relaxish.tools.kernel_benchmark",
    "relaxish.error": "relaxish.support.errors",
    "relaxish.exec": "relaxish.tools",
    "relaxish.instrument": "relaxish.ir.instrument",
    "relaxish.ir.diagnostics": "relaxish.support.diagnostics",
    "relaxish.ir.function": "relaxish.ir.expr",
    "relaxish.ir.tensor_type": "relaxish.ir.types",
    "relaxish.ir.type": "relaxish.ir.types",
    "relaxish.meta_schedule.runner.config": "relaxish.meta_schedule.runner.rpc_runner",
    "relaxish.nd": "relaxish.runtime.nd",
    "relaxish.topi.gpu": "relaxish.topi.cuda",
    "relaxish.relax.backend": "relaxish.backend",
    "relaxish.relax.distributed.global_info": "relaxish.relax.distributed",
    "relaxish.relax.distributed.struct_info": "relaxish.relax.distributed",
    "relaxish.relax.distributed.transform": "relaxish.transform.distributed",
    "relaxish.relax.dpl.pattern.*": "relaxish.relax.dpl.build",
    "relaxish.relax.exec_builder": "relaxish.runtime.bytecode.exec_builder",
    "relaxish.relax.frontend": "relaxish.frontend",
    "relaxish.relax.analysis.analysis": "relaxish.relax.analysis",
    "relaxish.relax.frontend.onnx.onnx_frontend": "relaxish.frontend.onnx",
    "relaxish.relax.frontend.torch.exported_program_translator": "relaxish.frontend.torch",
    "relaxish.relax.frontend.torch.fx_translator": "relaxish.frontend.torch",
    "relaxish.relax.op": "relaxish.op",
    "relaxish.relax.pipeline": "relaxish.pipeline",
    "relaxish.relax.testing": "relaxish.testing.relax",
    "relaxish.relax.training": "relaxish.training",
    "relaxish.relax.transform": "relaxish.transform",
    "relaxish.relax.transform.attach_external_modules": "relaxish.transform",
    "relaxish.relax.transform.fast_math": "relaxish.transform",
    "relaxish.relax.transform.ipc_allreduce_rewrite": "relaxish.transform",
    "relaxish.relax.transform.lower_gpu_ipc_alloc_storage": "relaxish.transform",
    "relaxish.relax.transform.optimize_layout_transform": "relaxish.transform",
    "relaxish.relax.transform.remove_redundant_reshape": "relaxish.transform",
    "relaxish.relax.transform.transform": "relaxish.transform",
    "relaxish.relax.transform.tuning_api.database": "relaxish.meta_schedule.application.pass_database",
    "relaxish.relax.vm_build": "relaxish.vm_build",
    "relaxish.relay": "relaxish.autotvm.relay",
    "relaxish.relay.analysis": "relaxish.relax.analysis",
    "relaxish.relay.backend": "relaxish.backend",
    "relaxish.relay.dataflow_pattern": "relaxish.relax.dpl",
    "relaxish.relay.expr": "relaxish.relax.expr",
    "relaxish.relay.op": "relaxish.op",
    "relaxish.relay.transform": "relaxish.transform",
    "relaxish.rpc": "relaxish.runtime.rpc",
    "relaxish.runtime.container": "relaxish.runtime.arrays.container",
    "relaxish.runtime.executable": "relaxish.runtime.vm.compiled",
    "relaxish.runtime.module": "relaxish.runtime.kernels.module",
    "relaxish.runtime.ndarray": "relaxish.runtime.arrays.ndarray",
    "relaxish.runtime.object": "relaxish.ir.node",
    "relaxish.runtime.object_generic": "relaxish.ir.object_generic",
    "relaxish.runtime.packed_func": "relaxish.runtime.registry",
    "relaxish.runtime.params": "relaxish.runtime.arrays.params",
    "relaxish.runtime.profiling": "relaxish.runtime.vm.profiling",
    "relaxish.runtime.relax_vm": "relaxish.runtime.vm.machine",
    "relaxish.runtime.script_printer": "relaxish.script.printer.config",
    "relaxish.script.ir.*": "relaxish.script.parser.ir",
    "relaxish.script.parser.ir.*": "relaxish.script.ir_builder.ir",
    "relaxish.script.parser.relax.*": "relaxish.script.ir_builder.relax",
    "relaxish.script.parser.tir.*": "relaxish.script.ir_builder.tir",
    "relaxish.script.relax.*": "relaxish.script.parser.relax",
    "relaxish.script.tir.*": "relaxish.script.parser.tir",
    "relaxish.target.detect_target": "relaxish.target.detect",
    "relaxish.target.tag": "relaxish.target.tags",
    "relaxish.te.tag": "relaxish.te.operation",
    "relaxish.testing.utils": "relaxish.testing",
    "relaxish.tile.carver": "relaxish.carver",
    "relaxish.tir.analysis.analysis": "relaxish.tir.analysis",
    "relaxish.tir.block_dependence_info": "relaxish.tir.schedule.sref",
    "relaxish.tir.block_scope": "relaxish.tir.schedule.sref",
    "relaxish.tir.pipeline": "relaxish.tir.transform.pipeline",
    "relaxish.tir.stmt_functor": "relaxish.tir.functor",
    "relaxish.tir.transform.function_pass": "relaxish.tir.transform",
    "relaxish.tir.transform.transform": "relaxish.tir.transform",
}

# Names under other names.
_RENAMED = {
    "relaxish.Object": "relaxish.ir.node:Node",
    "relaxish.runtime.Object": "relaxish.ir.node:Node",
    "relaxish.runtime.Scriptable": "relaxish.ir.node:Node",
    "relaxish.script.from_source": "relaxish.script.parser:parse",
    "relaxish.tir.build": "relaxish.driver:build_tir",
}

# Package -> its modules that load on first use.
_PARTS = {
    "relaxish": (
        "arith autotvm backend carver cli contrib dlight driver frontend interp ir lab meta_schedule op pipeline "
        "relax runtime script support target te testing tile tir tools topi transform"
    ),
    "relaxish.backend": (
        "adreno contrib cpu_generic cuda dispatch_sampling dispatch_sort_scan gpu_generic metal pattern_registry "
        "patterns rocm utils"
    ),
    "relaxish.backend.adreno": "clml",
    "relaxish.backend.contrib": "nnapi",
    "relaxish.backend.cuda": "cublas cudnn cutlass flashinfer",
    "relaxish.backend.metal": "coreml",
    "relaxish.backend.rocm": "hipblas",
    "relaxish.contrib": "cblas cc mkl nvcc popen_pool tar thrust",
    "relaxish.frontend": "nn onnx stablehlo torch",
    "relaxish.meta_schedule": "distributed passes post_optimization relax_integration testing",
    "relaxish.relax": "binding_rewrite distributed dpl ir",
    "relaxish.runtime": "disco",
    "relaxish.script": "highlight ir ir_builder parser printer relax tir",
    "relaxish.script.ir_builder": "ir relax tir",
    "relaxish.tile": "autotuner language layout profiler",
    "relaxish.tir": "analysis generic ir_builder schedule tensor_intrin transform",
    "relaxish.tir.schedule": "_type_checker analysis state testing",
    "relaxish.tir.tensor_intrin": (
        "amx arm_cpu build cuda cuda_names dot_product_common hexagon metal mma mma_fragments mma_layouts mma_m16n8k8 rocm "
        "rocm_mfma wgmma wmma x86"
    ),
    "relaxish.ir": "analysis",
    "relaxish.topi": "testing",
    "relaxish.transform": "tuning_api",
}

_STAGES = "dataflow_lower_passes finalize_passes get_default_pipeline legalize_passes library_dispatch_passes"
# Package -> module that defines -> names.
_DEFINED = {
    "relaxish": {
        "relaxish.backend.vm": "ExecBuilder",
        "relaxish.driver": "build compile lower",
        "relaxish.ir": "IRModule convert",
        "relaxish.ir.instrument": "pass_instrument",
        "relaxish.ir.node": "register_object",
        "relaxish.pipeline": "get_default_pipeline get_pipeline register_pipeline",
        "relaxish.relax": (
            "Binding BindingBlock BlockBuilder Call Constant DataTypeImm DataflowBlock DataflowVar Expr ExternFunc "
            "FuncStructInfo Function Id If MatchCast ObjectStructInfo PrimStructInfo PrimValue SeqExpr ShapeExpr "
            "ShapeStructInfo StringImm StructInfo TensorStructInfo Tuple TupleGetItem TupleStructInfo Var VarBinding "
            "const extern"
        ),
        "relaxish.runtime": (
            "DataType DataTypeCode Device VMExecutable VMInstrumentReturnKind VirtualMachine cpu cuda device ext_dev "
            "get_global_func hexagon metal opencl register_func rocm vpi vulkan webgpu"
        ),
        "relaxish.support.errors": "InternalError TVMError register_error",
        "relaxish.target": "Target",
    },
    "relaxish.arith.int_set": {
        "relaxish.arith": "estimate_region_lower_bound estimate_region_strict_bound estimate_region_upper_bound",
    },
    "relaxish.backend": {
        "relaxish.backend.dispatch_sampling": "DispatchSampling",
        "relaxish.backend.dispatch_sort_scan": "DispatchSortScan",
        "relaxish.backend.pattern_registry": "get_pattern get_patterns_with_prefix register_patterns",
        "relaxish.pipeline": "get_default_pipeline",
    },
    "relaxish.backend.adreno": {
        "relaxish.backend.adreno.clml": "OpenCLMLOffLoad",
        "relaxish.backend.adreno.pipeline": _STAGES,
    },
    "relaxish.backend.cpu_generic": {
        "relaxish.backend.cpu_generic.pipeline": _STAGES,
    },
    "relaxish.backend.cuda": {
        "relaxish.backend.cuda.pipeline": _STAGES,
    },
    "relaxish.backend.gpu_generic": {
        "relaxish.backend.gpu_generic.cumsum": "gpu_2d_continuous_cumsum",
        "relaxish.backend.gpu_generic.pipeline": _STAGES,
        "relaxish.backend.gpu_generic.sampling": "generic_get_sample_index gpu_multinomial_from_uniform",
    },
    "relaxish.backend.rocm": {
        "relaxish.backend.rocm.pipeline": _STAGES,
    },
    "relaxish.dlight.base": {
        "relaxish.dlight.analysis": (
            "BlockInfo IterInfo collect_block_iter_vars_used_in_access_region detect_dominant_read "
            "is_broadcast_epilogue normalize_prim_func"
        ),
    },
    "relaxish.frontend": {
        "relaxish.frontend.common": "detach_params",
    },
    "relaxish.lab": {
        "relaxish.lab.ablation": "ablate",
        "relaxish.lab.comparison": "Band Comparison PairTest compare",
        "relaxish.lab.metrics": "ModelMetrics",
        "relaxish.lab.models": "FEATURE_GROUPS PartialXGBModel evaluate_cost_model make_cost_model",
        "relaxish.lab.recording": "record record_workload",
        "relaxish.lab.registry": "create_strategy register_strategy strategy_names",
        "relaxish.lab.replay": "Noise RecordedGenerator ReplayBuilder ReplayRunner",
        "relaxish.lab.search": "Run run_search",
        "relaxish.lab.space": "Dimension RecordedSpace UnsupportedSpaceError bundled_spaces load_space",
        "relaxish.lab.strategy": "MetaScheduleStrategy Strategy TPEStrategy TunerStrategy",
    },
    "relaxish.meta_schedule": {
        "relaxish.meta_schedule.relax_integration": "compile_relax extract_tasks tune_relax",
    },
    "relaxish.meta_schedule.cost_model": {
        "relaxish.meta_schedule.cost_model.mlp_model": "MLPModel MLPModelConfig MLPModelTrainer",
        "relaxish.meta_schedule.cost_model.xgb_model": "XGBConfig XGBModel",
    },
    "relaxish.meta_schedule.database": {
        "relaxish.meta_schedule.database.sql.sql_database": "SQLDatabase",
    },
    "relaxish.meta_schedule.measure": {
        "relaxish.meta_schedule.measure.candidate": "Candidate Prebuilt Skipped",
        "relaxish.meta_schedule.measure.engine": "Batch MeasureEngine Measured",
        "relaxish.meta_schedule.measure.journal": "FileJournal MeasureJournal",
        "relaxish.meta_schedule.measure.validators": "CheckFailedError ReferenceValidator Validator",
    },
    "relaxish.meta_schedule.measure_callback": {
        "relaxish.meta_schedule.measure_callback.exporters": "MLflowCallback TensorBoardCallback",
        "relaxish.meta_schedule.measure_callback.progress": "LiveProgress",
    },
    "relaxish.meta_schedule.runner": {
        "relaxish.meta_schedule.distributed.ray_runner": "RayRunner",
    },
    "relaxish.relax": {
        "relaxish.backend.vm": "ExecBuilder",
        "relaxish.driver": "build compile lower",
        "relaxish.op": "call_dps_packed call_pure_packed call_tir call_tir_inplace call_tir_with_grad",
        "relaxish.pipeline": "get_default_pipeline get_pipeline register_pipeline",
        "relaxish.relax.binding_rewrite": "DataflowBlockRewrite",
        "relaxish.runtime": "VMExecutable VMInstrumentReturnKind VirtualMachine",
    },
    "relaxish.relax.analysis": {
        "relaxish.relax.analysis.cleanup": "remove_all_unused",
        "relaxish.relax.analysis.compile_time": "computable_at_compile_time",
        "relaxish.relax.analysis.layout_transforms": "suggest_layout_transforms",
        "relaxish.relax.analysis.memory_usage": "estimate_memory_usage",
        "relaxish.relax.analysis.recursion": "detect_recursion",
        "relaxish.relax.analysis.tir_pattern": "OpPatternKind detect_op_pattern has_reshape_pattern",
        "relaxish.relax.analysis.variables": (
            "all_global_vars all_vars bound_vars contains_impure_call defined_symbolic_vars free_symbolic_vars "
            "free_vars get_var2val name_to_binding post_order_visit udchain"
        ),
        "relaxish.relax.analysis.wellformed": "find_ill_formed well_formed",
    },
    "relaxish.relax.utils": {
        "relaxish.relax.copying": "copy_with_new_vars",
        "relaxish.relax.te_bridge": "gen_call_tir_inputs",
    },
    "relaxish.runtime": {
        "relaxish.ir.object_generic": "ObjectGeneric convert_to_object",
        "relaxish.ir.prim": "const",
        "relaxish.script.printer.config": "PrinterConfig",
    },
    "relaxish.runtime.kernels.module": {
        "relaxish.runtime": "enabled load_module load_static_library num_threads system_lib",
    },
    "relaxish.runtime.arrays.ndarray": {
        "relaxish.runtime": "cpu cuda device hexagon rocm",
    },
    "relaxish.runtime.vm": {
        "relaxish.runtime.vm.machine": "VMInstrumentReturnKind VirtualMachine",
    },
    "relaxish.script": {
        "relaxish.script.ir": "ir_module",
        "relaxish.script.parser": "parse",
    },
    "relaxish.te.operation": {
        "relaxish.te.prim_func": "create_prim_func",
    },
    "relaxish.te.tensor": {
        "relaxish.te.operation": "ComputeOp ExternOp Operation PlaceholderOp ScanOp",
    },
    "relaxish.tile": {
        "relaxish.tile.autotuner": "AutoTuner AutotuneResult autotune set_autotune_inputs",
        "relaxish.tile.profiler": "Profiler TensorSupplyType do_bench",
    },
    "relaxish.testing": {
        "relaxish.testing.contracts.database": "DatabaseContract",
        "relaxish.testing.contracts.parts": (
            "BuilderContract CallbackContract CostModelContract RunnerContract SpaceContract StrategyContract"
        ),
    },
    "relaxish.tir": {
        "relaxish.tir.pipeline": "get_default_tir_pipeline get_tir_pipeline",
        "relaxish.tir.schedule": (
            "BlockDependenceInfo BlockScope DepKind Dependency Schedule ScheduleDebugMask ScheduleError ScheduleState "
            "StmtSRef Trace"
        ),
    },
    "relaxish.tir.function": {
        "relaxish.tir.index_map": "IndexMap",
    },
    "relaxish.tir.op": {
        "relaxish.tir.op_device": (
            "mma_fill mma_store ptx_cp_async ptx_cp_async_bulk ptx_ldmatrix ptx_mma ptx_mma_sp "
            "q_multiply_shift_per_axis tvm_access_ptr tvm_struct_get tvm_thread_invariant tvm_warp_shuffle "
            "tvm_warp_shuffle_down tvm_warp_shuffle_up type_annotation vectorcombine vectorhigh vectorlow"
        ),
    },
    "relaxish.transform": {
        "relaxish.meta_schedule.passes": (
            "FewShotTuning MetaScheduleApplyDatabase MetaScheduleTuneIRMod MetaScheduleTuneTIR"
        ),
        "relaxish.transform.allocate_workspace": "AllocateWorkspace",
        "relaxish.transform.alter_op_impl": "AlterOpImpl",
        "relaxish.transform.annotate_tir_op_pattern": "AnnotateTIROpPattern",
        "relaxish.transform.attach_attr_layout_free_buffers": "AttachAttrLayoutFreeBuffers",
        "relaxish.transform.attach_global_symbol": "AttachGlobalSymbol",
        "relaxish.transform.base": "DataflowBlockPass FunctionPass dataflowblock_pass function_pass",
        "relaxish.transform.bind_params": "BindParams BindSymbolicVars",
        "relaxish.transform.bundle_model_params": "BundleModelParams",
        "relaxish.transform.call_tir_rewrite": "CallTIRRewrite",
        "relaxish.transform.canonicalize_bindings": "CanonicalizeBindings",
        "relaxish.transform.combine_parallel_matmul": "CombineParallelMatmul",
        "relaxish.transform.compute_prim_value": "ComputePrimValue",
        "relaxish.transform.convert_layout": "ConvertLayout",
        "relaxish.transform.convert_to_dataflow": "ConvertToDataflow",
        "relaxish.transform.dataflow_inplace": "DataflowUseInplaceCalls",
        "relaxish.transform.dead_code_elimination": "DeadCodeElimination",
        "relaxish.transform.decompose_ops": "DecomposeOpsForInference DecomposeOpsForTraining",
        "relaxish.transform.eliminate_common_subexpr": "EliminateCommonSubexpr",
        "relaxish.transform.fold_batchnorm": "FoldBatchnormToConv2D",
        "relaxish.transform.fold_constant": "FoldConstant",
        "relaxish.transform.fuse_ops": "FuseOps",
        "relaxish.transform.fuse_ops_by_pattern": "FuseOpsByPattern FusionPattern PatternCheckContext",
        "relaxish.transform.fuse_tir": "FuseTIR",
        "relaxish.transform.fuse_transpose_matmul": "FuseTransposeMatmul",
        "relaxish.transform.gpu_ipc": "IPCAllReduceRewrite LowerGPUIPCAllocStorage",
        "relaxish.transform.gradient": "Gradient",
        "relaxish.transform.inline_private_functions": "InlinePrivateFunctions",
        "relaxish.transform.kill_after_last_use": "KillAfterLastUse",
        "relaxish.transform.lambda_lift": "LambdaLift",
        "relaxish.transform.lazy_params": "LazyGetInput LazySetOutput",
        "relaxish.transform.lazy_transform_params": "LazyTransformParams",
        "relaxish.transform.legalize_ops": "LegalizeOps",
        "relaxish.transform.lift_transform_params": "LiftTransformParams",
        "relaxish.transform.lower_alloc_tensor": "LowerAllocTensor",
        "relaxish.transform.lower_runtime_builtin": "LowerRuntimeBuiltin VMBuiltinLower",
        "relaxish.transform.matmul_rewrites": (
            "AdjustMatmulOrder ExpandMatmulOfSum ReorderPermuteDimsAfterConcat ReorderTakeAfterMatmul"
        ),
        "relaxish.transform.merge_composite_functions": "MergeCompositeFunctions",
        "relaxish.transform.normalize": "Normalize NormalizeGlobalVar",
        "relaxish.transform.private_signatures": "ExpandTupleArguments RemoveUnusedOutputs RemoveUnusedParameters",
        "relaxish.transform.realize_vdevice": "RealizeVDevice",
        "relaxish.transform.remove_purity_checking": "RemovePurityChecking",
        "relaxish.transform.rewrite_cuda_graph": "RewriteCUDAGraph",
        "relaxish.transform.rewrite_dataflow_reshape": "RewriteDataflowReshape",
        "relaxish.transform.run_codegen": "RunCodegen",
        "relaxish.transform.simple_rewrites": (
            "AttachExternModules FastMathTransform OptimizeLayoutTransform RemoveRedundantReshape"
        ),
        "relaxish.transform.specialize_sizes": "SpecializeSizes",
        "relaxish.transform.split_call_tir_by_pattern": "SplitCallTIRByPattern",
        "relaxish.transform.split_layout_rewrite_preproc": "SplitLayoutRewritePreproc",
        "relaxish.transform.static_plan_block_memory": "StaticPlanBlockMemory",
        "relaxish.transform.to_mixed_precision": "ToMixedPrecision",
        "relaxish.transform.to_non_dataflow": "ToNonDataflow",
        "relaxish.transform.topological_sort": "TopologicalSort",
        "relaxish.transform.update_param_struct_info": "UpdateParamStructInfo",
        "relaxish.transform.vdevice": "UpdateVDevice",
        "relaxish.transform.vm_shape_lower": "VMShapeLower",
    },
    "relaxish.transform.tuning_api": {
        "relaxish.meta_schedule.application.pass_database": "Database JSONDatabase TuningRecord",
        "relaxish.tools.pass_tuning": "default_evaluate",
    },
}

#: Public path -> real place: "module:name", or a module's path.
PUBLIC_NAMES = {
    **_MODULES,
    **_RENAMED,
    **{f"{package}.{name}": f"{package}.{name}" for package, names in _PARTS.items() for name in names.split()},
    **{
        f"{package}.{name}": f"{module}:{name}"
        for package, modules in _DEFINED.items()
        for module, names in modules.items()
        for name in names.split()
    },
}
