"""Names that users of the field's API import; every one resolves, through attributes as well as by import."""

from __future__ import annotations

import importlib

import pytest

import relaxish
from relaxish.public_names import HOOKS, PUBLIC_NAMES
from relaxish.support import entry_points

NAMES = {
    "": """
        InternalError register_error container pass_instrument
        nd ir tir te topi relax arith meta_schedule dlight target runtime script testing error instrument transform
        DataType DataTypeCode cpu cuda rocm opencl metal vulkan vpi ext_dev hexagon webgpu device Device IRModule
        compile build register_func get_global_func TVMError convert contrib driver Object register_object

    """,
    "tir.tensor_intrin": """
        arm_cpu cuda dot_product_common hexagon metal rocm x86
    """,
    "dlight.base": """
        BlockInfo IterInfo collect_block_iter_vars_used_in_access_region detect_dominant_read is_broadcast_epilogue
        normalize_prim_func
    """,
    "relax": """
        exec_builder ExecBuilder expr Expr Id Var DataflowVar Binding MatchCast VarBinding BindingBlock DataflowBlock
        SeqExpr ShapeExpr Tuple TupleGetItem Function ExternFunc Call If Constant PrimValue DataTypeImm StringImm
        const extern get_shape_of make_shape te_tensor Type ObjectType ShapeType DynTensorType TupleType FuncType
        PackedFuncType BlockBuilder StructInfo ObjectStructInfo PrimStructInfo ShapeStructInfo TensorStructInfo
        TupleStructInfo FuncStructInfo VirtualMachine VMInstrumentReturnKind DataflowBlockRewrite call_tir
        call_tir_inplace call_pure_packed call_dps_packed call_tir_with_grad get_pipeline register_pipeline
        get_default_pipeline build VMExecutable transform op frontend backend training distributed dpl analysis utils
        testing block_builder struct_info ty binding_rewrite pipeline expr_functor PyExprMutator PyExprVisitor
    """,
    "relax.analysis": """
        get_static_type erase_to_well_defined struct_info_base_check BaseCheckResult derive_call_ret_struct_info
        struct_info_lca tir_vars_in_struct_info definable_tir_vars_in_struct_info collect_non_negative_expressions
        defined_symbolic_vars free_symbolic_vars bound_vars free_vars all_vars all_global_vars post_order_visit
        has_reshape_pattern contains_impure_call get_var2val udchain name_to_binding remove_all_unused well_formed
        suggest_layout_transforms detect_recursion computable_at_compile_time estimate_memory_usage
    """,
    "relax.dpl": """
        DFPattern DFConstraint ExprPattern VarPattern DataflowVarPattern GlobalVarPattern ExternFuncPattern
        ConstantPattern CallPattern FunctionPattern TuplePattern UnorderedTuplePattern TupleGetItemPattern OrPattern
        AndPattern NotPattern WildcardPattern TypePattern DataTypePattern ShapePattern SameShapeConstraint
        PrimArrPattern AttrPattern PatternContext PatternSeq is_var is_gv is_dfv is_const is_expr is_op is_tuple
        is_tuple_get_item wildcard has_dtype is_shape is_call_tir is_call_dps_packed is_call_packed reject has_attr
        make_fused_bias_activation_pattern make_residual_block_pattern rewrite_call rewrite_bindings
        PatternMatchingRewriter ExprPatternRewriter OrRewriter TupleRewriter
    """,
    "ir": """
        NameSupply GlobalVarSupply
        SourceName Span SequentialSpan BaseExpr PrimExpr RelaxExpr GlobalVar GlobalInfo DummyGlobalInfo VDevice
        BaseFunc CallingConv Op register_op_attr register_intrin_lowering Range IRModule Type
        PrimType PointerType TupleType FuncType TensorType Array Map Node EnvFunc load_json save_json structural_equal
        assert_structural_equal structural_hash get_first_structural_mismatch transform instrument diagnostics Attrs
        DictAttrs make_node container
    """,
    "ir.transform": """
        PassInfo PassContext Pass ModulePass Sequential module_pass PrintIR ApplyPassToFunction
    """,
    "ir.instrument": """
        PassInstrument pass_instrument PassTimingInstrument PassPrintingInstrument PrintAfterAll PrintBeforeAll
    """,
    "tir": """
        logaddexp
        PrimExpr Var SizeVar Reduce FloatImm IntImm StringImm Cast Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE
        LT LE GT GE And Or Not Select BufferLoad ProducerLoad Ramp Broadcast Shuffle Call CallEffectKind Let IterVar
        CommReducer Any Stmt LetStmt AssertStmt ForKind For While BufferStore BufferRealize Allocate AllocateConst
        AttrStmt DeclBuffer ProducerRealize SeqStmt IfThenElse Evaluate stmt_seq stmt_list BufferRegion
        MatchBufferRegion Block BlockRealize PrimFunc TensorIntrin IndexMap Buffer decl_buffer DataProducer Layout
        BijectiveLayout bijective_layout layout Schedule ScheduleState StmtSRef BlockScope BlockDependenceInfo
        ScheduleError schedule transform analysis stmt_functor build call_packed_lowered call_cpacked_lowered call_tir
        call_packed call_cpacked call_intrin call_pure_extern call_extern call_llvm_intrin call_llvm_pure_intrin ret
        all any min_value max_value trace tvm_check_return tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array
        tvm_tuple handle_add_byte_offset tvm_struct_get tvm_struct_set address_of lookup_param assume undef
        tvm_thread_allreduce type_annotation tvm_access_ptr tvm_throw_last_error tvm_load_matrix_sync
        tvm_store_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_fill_fragment ptx_mma ptx_mma_sp ptx_ldmatrix
        ptx_cp_async ptx_cp_async_bulk ptx_commit_group ptx_wait_group ptx_cp_async_barrier
        ptx_init_barrier_thread_count ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier create_barriers
        mma_store mma_fill vectorlow vectorhigh vectorcombine infinity reinterpret exp exp2 exp10 log log2 log10 log1p
        ldexp clz sin sinh asin asinh cos cosh acos acosh tan tanh atan atan2 atanh erf sigmoid sqrt rsqrt floor ceil
        hypot trunc abs round nextafter nearbyint power pow popcount fmod if_then_else likely isnan isnullptr isfinite
        isinf copysign div indexdiv indexmod truncdiv truncmod floordiv floormod ceildiv comm_reducer min
        max sum q_multiply_shift q_multiply_shift_per_axis shift_left shift_right bitwise_and bitwise_or bitwise_xor
        bitwise_not add subtract multiply start_profile_intrinsic end_profile_intrinsic vscale get_active_lane_mask
        get_vscale_expr ignore_loop_partition dp4a anylist_getitem anylist_resetitem anylist_setitem_call_packed
        anylist_setitem_call_cpacked
    """,
    "tir.analysis": """
        expr_deep_equal verify_ssa verify_memory verify_gpu_code get_block_access_region get_block_read_write_region
        calculate_allocated_bytes detect_buffer_access_lca estimate_tir_flops undefined_vars verify_well_formed
        OOBChecker find_anchor_block get_vtcm_compaction_passes is_pure_function assert_pure_function
    """,
    "tir.stmt_functor": """
        ir_transform post_order_visit pre_order_visit substitute renew_defs
    """,
    "arith": """
        Analyzer ProofStrength ConstIntBound ModularSet Extension IntSet IntervalSet PresburgerSet deduce_bound
        estimate_region_lower_bound estimate_region_strict_bound estimate_region_upper_bound
        solve_linear_equations solve_linear_inequalities detect_linear_equation detect_clip_bound
        detect_common_subexpr IterMapExpr IterMark IterSplitExpr IterSumExpr detect_iter_map iter_map_simplify
        normalize_iter_map_to_expr normalize_to_iter_sum subspace_divide inverse_affine_iter_map IntConstraints
        IntConstraintsTransform IntGroupBounds
    """,
    "te": """
        logaddexp
        placeholder compute scan extern var size_var const thread_axis reduce_axis create_prim_func extern_primfunc
        Tensor TensorSlice tag_scope any all min_value max_value exp erf tanh sigmoid log cos sin sqrt rsqrt floor
        ceil sum min max div indexdiv indexmod truncdiv truncmod floordiv floormod comm_reducer if_then_else isnan
        PlaceholderOp ComputeOp ScanOp ExternOp
    """,
    "target": """
        generic_func GenericFunc get_native_generic_func override_native_generic_func
        Target TargetKind list_tags register_tag VirtualDevice
    """,
    "runtime": """
        ObjectGeneric convert_to_object TypeCode ArgTypeCode
        NDArray Object Module load_module PackedFunc convert device Device DataType DataTypeCode ShapeTuple String
        Report enabled num_threads
    """,
    "nd": """
        array empty from_dlpack NDArray cpu cuda
    """,
    "meta_schedule": """
        arg_info builder cost_model database feature_extractor measure_callback mutator postproc relax_integration
        runner schedule_rule search_strategy space_generator task_scheduler tir_integration trace_apply extracted_task
        ExtractedTask Builder CostModel Database FeatureExtractor MeasureCallback Mutator Postproc
        Profiler Runner ScheduleRule MeasureCandidate SearchStrategy SpaceGenerator
        TaskScheduler TuneContext tune_tasks tune_tir derived_object is_meta_schedule_enabled
        logging utils tune testing
    """,
    "meta_schedule.database": """
        Database PyDatabase TuningRecord Workload JSONDatabase MemoryDatabase OrderedUnionDatabase UnionDatabase
        ScheduleFnDatabase create
    """,
    "meta_schedule.schedule_rule": """
        AddRFactor ApplyCustomRule AutoBind AutoInline InlineConstantScalars CrossThreadReduction MultiLevelTiling
         MultiLevelTilingWideVector MultiLevelTilingWithIntrin ReuseType
        ParallelizeVectorizeUnroll RandomComputeLocation PyScheduleRule ScheduleRule
    """,
    "meta_schedule.postproc": """
        DisallowDynamicLoop DisallowAsyncStridedMemCopy Postproc PyPostproc RewriteCooperativeFetch RewriteLayout
        RewriteParallelVectorizeUnroll RewriteReductionBlock RewriteTensorize RewriteUnboundBlock VerifyGPUCode
        VerifyVTCMLimit
    """,
    "meta_schedule.mutator": """
        Mutator PyMutator MutateComputeLocation MutateParallel MutateThreadBinding MutateTileSize MutateUnroll
    """,
    "meta_schedule.relax_integration": """
        extract_tasks extracted_tasks_to_tune_contexts tune_relax compile_relax
    """,
    "meta_schedule.tir_integration": """
        tune_tir compile_tir
    """,
    "meta_schedule.runner": """
        EvaluatorConfig LocalRunner PyRunner Runner RunnerFuture PyRunnerFuture RunnerInput
        RunnerResult create
    """,
    "meta_schedule.builder": """
        Builder BuilderInput BuilderResult PyBuilder create
    """,
    "meta_schedule.cost_model": """
        CostModel PyCostModel RandomModel XGBModel
    """,
    "meta_schedule.search_strategy": """
        EvolutionarySearch MeasureCandidate PySearchStrategy ReplayFunc ReplayTrace SearchStrategy create
    """,
    "meta_schedule.space_generator": """
        PostOrderApply PySpaceGenerator ScheduleFn SpaceGenerator SpaceGeneratorUnion create
    """,
    "meta_schedule.task_scheduler": """
        GradientBased PyTaskScheduler RoundRobin TaskScheduler create
    """,
    "meta_schedule.measure_callback": """
        AddToDatabase MeasureCallback PyMeasureCallback RemoveBuildArtifact UpdateCostModel
    """,
    "meta_schedule.feature_extractor": """
        FeatureExtractor PerStoreFeature PyFeatureExtractor RandomFeatureExtractor
    """,
    "dlight": """
        ScheduleRule ApplyDefaultSchedule BlockInfo IterInfo normalize_prim_func try_inline
        try_inline_contiguous_spatial gpu cpu analysis base
    """,
    "dlight.gpu": """
        GEMV Fallback LowBatchGEMV Matmul MatmulInt8Tensorization MatmulTensorization MetalMatmul GeneralReduction Reduction
        RMSNorm Transpose
    """,
    "dlight.benchmark": """
        benchmark benchmark_prim_func benchmark_relax_func extract_prim_func extract_from_relax
        extract_all_func_info_from_relax
    """,
    "dlight.cpu": """
        GEMV
    """,
    "error": """
        TVMError InternalError OpError OpNotImplemented OpAttributeInvalid OpAttributeRequired
        OpAttributeUnImplemented DiagnosticError RPCError RPCSessionTimeoutError register_error
    """,
    "testing": """
        assert_allclose parameter parameters fixture requires_gpu main requires_llvm
    """,
    "relax.frontend.torch": """
        from_exported_program from_fx relax_dynamo dynamo_capture_subgraphs
    """,
    "relax.frontend.onnx": """
        from_onnx
    """,
    "relax.frontend": """
        detach_params nn torch onnx stablehlo
    """,
    "relax.frontend.nn": """
        Module Parameter ModuleList Object Effect op spec Tensor Linear Conv1D Conv2D Conv3D ConvTranspose1D Embedding
        LayerNorm RMSNorm GroupNorm ReLU SiLU GELU Identity IOEffect KVCache Timesteps TimestepEmbedding Attention
        SubroutineMixin Mutator ExternModule SourceModule ObjectModule wrap_nested add_extern modules
    """,
    "relax.training": """
        AppendLoss SetupTrainer Trainer loss optimizer trainer utils
    """,
    "relax.utils": """
        convert_to_expr copy_with_new_vars gen_call_tir_inputs metadata_partitioner args_converter
    """,
    "relax.testing": """
        nn ast_printer
    """,
    "script": """
        ir tir relax from_source parse ir_module
    """,
    "relax.backend": """
        DispatchSampling DispatchSortScan get_default_pipeline patterns pattern_registry get_pattern
        get_patterns_with_prefix register_patterns
    """,
    "tir.schedule": """
        Schedule BlockRV LoopRV ExprRV Instruction InstructionKind Trace ScheduleState StmtSRef BlockScope
        ScheduleError ScheduleDebugMask analysis testing state
    """,
    "tir.pipeline": """
        get_tir_pipeline get_default_tir_pipeline default_tir_pipeline finalize_host_passes finalize_device_passes
    """,
    "te.tensor": """
        Tensor Operation PlaceholderOp ComputeOp ScanOp ExternOp
    """,
    "tir.op": """
        tvm_access_ptr tvm_struct_get ptx_mma ptx_ldmatrix ptx_cp_async vectorlow vectorhigh vectorcombine logaddexp
    """,
    "tir.schedule._type_checker": """
        type_checked
    """,
    "runtime.object_generic": """
        ObjectGeneric convert convert_to_object const asnode
    """,
    "runtime.disco": """
        DModule DPackedFunc DRef ProcessSession Session SocketSession ThreadedSession
    """,
    "rpc": """
        Proxy Server Tracker connect connect_tracker LocalSession PopenSession TrackerSession RPCSession
    """,
    "exec.rpc_proxy": "main",
    "exec.disco_remote_socket_session": "main",
    "contrib": """
        cc nvcc tar utils popen_pool tvmjs
    """,
    "topi.nn": """
        conv2d_winograd_nhwc conv2d_winograd_nchw conv2d_winograd_nhwc_without_weight_transform
        conv2d_winograd_nchw_without_weight_transform winograd_util get_pad_tuple
    """,
    "topi.utils": """
        InvalidShapeError const_matrix get_const_float get_const_int get_const_tuple get_max_power2_factor get_shape
        within_index make_idx is_dynamic_shape ceil_div swap equal_const_int simplify prod
    """,
    "topi.testing": """
        conv2d_nchw_python conv2d_nhwc_python softmax_python layer_norm_python poolnd_python resize2d_python
        batch_matmul attention_python strided_slice_python gather_python one_hot adaptive_pool
    """,
    "meta_schedule.testing.local_rpc": """
        LocalRPC
    """,
    "meta_schedule.runner.rpc_runner": """
        default_create_session default_upload_module default_alloc_argument default_run_evaluator
        default_cleanup RPCRunner RPCRunnerFuture
    """,
}


@pytest.mark.parametrize("module", NAMES, ids=lambda m: m or "relaxish")
def test_names_resolve(module: str) -> None:
    found: object = importlib.import_module(f"relaxish.{module}" if module else "relaxish")
    missing = [name for name in NAMES[module].split() if not hasattr(found, name)]
    assert not missing, f"relaxish.{module} lacks {missing}"


#: Programs and tools for tests, which are no attributes before somebody imports them.
_IMPORTED_BY_NAME = ("exec.rpc_proxy", "exec.disco_remote_socket_session", "meta_schedule.testing.local_rpc")


@pytest.mark.parametrize("module", [m for m in NAMES if m and m not in _IMPORTED_BY_NAME])
def test_modules_are_attributes(module: str) -> None:
    found: object = relaxish
    for part in module.split("."):
        found = getattr(found, part)
    assert found is importlib.import_module(f"relaxish.{module}")


@pytest.mark.parametrize("path", [p for p in PUBLIC_NAMES if not p.endswith(".*")])
def test_the_table_of_public_names_is_right(path: str) -> None:
    package, _, name = path.rpartition(".")
    module, _, attribute = PUBLIC_NAMES[path].partition(":")
    real = importlib.import_module(module)
    if attribute:
        assert getattr(importlib.import_module(package), name) is getattr(real, attribute)
    else:
        assert importlib.import_module(path) is real
        assert getattr(importlib.import_module(package), name) is real


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_load(hook: str) -> None:
    assert entry_points.available(hook)
    assert entry_points.load(hook) is not None


def test_unknown_hooks_and_names_are_errors() -> None:
    assert not entry_points.available("no.such.hook")
    with pytest.raises(KeyError):
        entry_points.load("no.such.hook")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = relaxish.relax.transform.nonsense
