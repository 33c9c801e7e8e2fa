"""Passes that divide host and device, and that serve the device: programs before and after."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import transform


def apply(a_pass: Any, func: Any, **attrs: Any) -> Any:
    func = func.with_attr("global_symbol", "main")
    for key, value in attrs.items():
        func = func.with_attr(key, value)
    return a_pass(IRModule({"main": func}))["main"]


def check(a_pass: Any, before: Any, after: Any, **attrs: Any) -> None:
    made = apply(a_pass, before, **attrs)
    assert_structural_equal(made.body, after.body, True)


def test_annotate_device_regions() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        i = T.env_thread("threadIdx.x")
        with T.launch_thread(i, 16):
            A[i] = T.float32(0)

    made = apply(transform.AnnotateDeviceRegions(), before, target=Target("cuda", host="llvm"))
    assert made.body.attr_key == "target" and made.body.node.kind.name == "cuda" and made.body.node.host is None
    assert_structural_equal(made.body.body, before.body, True)
    alone = apply(transform.AnnotateDeviceRegions(), before, target=Target("cuda").without_host())
    assert alone.body.same_as(before.body)
    with pytest.raises(ValueError, match="target"):
        apply(transform.AnnotateDeviceRegions(), before)


def test_split_host_device() -> None:
    @I.ir_module
    class Before:
        @T.prim_func
        def main(n: T.int32):
            T.func_attr({"target": T.target("cuda", host="llvm")})
            T.attr(T.target("cuda"), "target", 0)
            T.evaluate(n)

    @I.ir_module
    class After:
        @T.prim_func
        def main(n: T.int32):
            T.func_attr({"target": T.target("cuda", host="llvm")})
            After.main_kernel(n)

        @T.prim_func(private=True)
        def main_kernel(n: T.int32):
            T.func_attr({"target": T.target("cuda"), "tir.noalias": True, "tir.is_global_func": True})
            T.evaluate(n)

    made = transform.SplitHostDevice()(Before)
    assert sorted(v.name_hint for v in made.functions) == ["main", "main_kernel"]
    assert_structural_equal(made["main_kernel"], After["main_kernel"])
    assert made["main"].body.value.op.name_hint == "main_kernel"


def test_split_host_device_reports_errors_of_cpu_kernels() -> None:
    @I.ir_module
    class Before:
        @T.prim_func
        def main(n: T.int32):
            T.func_attr({"target": T.target("ext_dev", host="llvm")})
            T.attr(T.target("ext_dev"), "target", 0)
            T.evaluate(n)

    made = transform.SplitHostDevice()(Before)
    body = made["main"].body
    assert isinstance(body, tir.LetStmt) and isinstance(body.body, tir.AssertStmt)
    assert made["main_kernel"].ret_type.dtype == "int32"
    assert isinstance(made["main_kernel"].body, tir.SeqStmt)


def test_lower_device_kernel_launch() -> None:
    @I.ir_module
    class Before:
        @T.prim_func
        def main(A: T.Buffer((16,), "float32")):
            T.func_attr({"target": T.target("llvm")})
            Before.kernel(A.data)

        @T.prim_func(private=True)
        def kernel(A_data: T.handle("float32")):
            T.func_attr({"target": T.target("cuda")})
            A = T.decl_buffer(16, "float32", data=A_data)
            i = T.launch_thread("threadIdx.x", 16)
            A[i] = T.float32(0)

    made = transform.LowerDeviceKernelLaunch()(Before)
    call = made["main"].body.value
    assert call.op.name == "tir.tvm_call_packed"
    assert [getattr(a, "value", None) for a in call.args] == ["kernel", None, 16]
    kernel = made["kernel"]
    assert kernel.attrs["calling_conv"] == 2 and kernel.attrs["global_symbol"] == "kernel"
    assert list(kernel.attrs["tir.kernel_launch_params"]) == ["threadIdx.x"]


def test_make_packed_api() -> None:
    @T.prim_func
    def before(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            A[i] = T.float32(0)

    made = apply(transform.MakePackedAPI(), before, target=Target("llvm", host="llvm"))
    names = [p.name for p in made.params]
    assert names == ["args", "arg_type_ids", "num_args", "out_ret_value", "out_ret_tcode", "resource_handle"]
    assert made.ret_type.dtype == "int32" and not made.buffer_map
    assert made.attrs["calling_conv"] == 1 and made.attrs["target"].host is None
    messages: list[str] = []
    tir.stmt_functor.post_order_visit(
        made.body, lambda n: messages.append(n.message.value) if isinstance(n, tir.AssertStmt) else None
    )
    assert "main: num_args should be 2" in messages
    assert "main: Expect arg[1] to be int" in messages
    assert "main.a.ndim is expected to equal 1" in messages
    assert "main.a.dtype is expected to be float32" in messages
    assert any(m.startswith("Argument main.a.shape[0] has an unsatisfied constraint") for m in messages)
    with pytest.raises(ValueError, match="kTarget"):
        apply(transform.MakePackedAPI(), before)
    private = IRModule({"f": before.without_attr("global_symbol").with_attr("target", Target("llvm", host="llvm"))})
    assert transform.MakePackedAPI()(private)["f"].same_as(private["f"])


def test_make_packed_api_returns_values() -> None:
    @T.prim_func
    def before(n: T.int32) -> T.int32:
        T.ret(n + 1)

    made = apply(transform.MakePackedAPI(), before, target=Target("llvm", host="llvm"))
    stores: list[Any] = []
    tir.stmt_functor.post_order_visit(made.body, lambda n: stores.append(n) if isinstance(n, tir.BufferStore) else None)
    assert [s.buffer.data.name for s in stores] == ["out_ret_value", "out_ret_tcode"]
    assert stores[0].value.dtype == "int64" and int(stores[1].value) == 0


RETURN = tir.Evaluate(tir.ret(tir.IntImm("int32", 0)))


def test_make_unpacked_api() -> None:
    @T.prim_func
    def before(A: T.Buffer((1,), "float32")):
        T.evaluate(0)

    made = apply(transform.MakeUnpackedAPI(), before, target=Target("cuda", host="llvm"))
    assert len(made.params) == 1 and made.params[0].name == "A" and not made.buffer_map
    assert (made.body.node, made.body.attr_key, int(made.body.value)) == ("default", "device_id", 0)
    assert (made.body.body.attr_key, int(made.body.body.value)) == ("device_type", 2)
    assert_structural_equal(made.body.body.body, tir.SeqStmt([tir.Evaluate(0), RETURN]))


def test_make_unpacked_api_returns_after_the_body() -> None:
    @T.prim_func
    def before(n: T.int32, p: T.handle("int32")):
        B = T.Buffer((2,), "int32", data=p)
        B[0] = n
        B[1] = n + 1

    made = apply(transform.MakeUnpackedAPI(), before, target=Target("llvm", host="llvm"))
    assert made.ret_type.dtype == "int32" and len(made.body.seq) == 3
    assert_structural_equal(made.body.seq[-1], RETURN)


def test_lift_thread_binding() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
        for i in T.thread_binding(16, thread="blockIdx.x"):
            for k in range(4):
                for j in T.thread_binding(32, thread="threadIdx.x"):
                    A[i, j] = A[i, j] + T.float32(1)
            for j in T.thread_binding(32, thread="threadIdx.x"):
                B[i, j] = A[i, j]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
        for i in T.thread_binding(16, thread="blockIdx.x"):
            for j in T.thread_binding(32, thread="threadIdx.x"):
                for k in range(4):
                    A[i, j] = A[i, j] + T.float32(1)
                B[i, j] = A[i, j]

    check(transform.LiftThreadBinding(), before, after)


def test_lift_thread_binding_of_loops_of_two_types() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((T.int64(4),), "float32"), B: T.Buffer((), "float32")):
        for i in T.thread_binding(T.int64(2), thread="blockIdx.x"):
            for j in T.thread_binding(T.int64(4), thread="threadIdx.x"):
                A[j] = T.float32(1)
            for k in T.thread_binding(4, thread="threadIdx.x"):
                if k == 0:
                    B[()] = A[T.int64(0)]

    @T.prim_func(private=True)
    def after(A: T.Buffer((T.int64(4),), "float32"), B: T.Buffer((), "float32")):
        for i in T.thread_binding(T.int64(2), thread="blockIdx.x"):
            for j in T.thread_binding(T.int64(4), thread="threadIdx.x"):
                A[j] = T.float32(1)
                if T.Cast("int32", j) == 0:
                    B[()] = A[T.int64(0)]

    check(transform.LiftThreadBinding(), before, after)


def test_unify_thread_binding() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 4), "float32"), B: T.Buffer((16, 4), "float32")):
        for i in T.thread_binding(16, thread="blockIdx.x"):
            for j in T.thread_binding(4, thread="threadIdx.x"):
                A[i, j] = T.float32(1)
            for k in T.thread_binding(4, thread="threadIdx.x", annotations={"mark": 1}):
                B[i, k] = A[i, k]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16, 4), "float32"), B: T.Buffer((16, 4), "float32")):
        for i in T.thread_binding(16, thread="blockIdx.x"):
            for j in T.thread_binding(4, thread="threadIdx.x"):
                A[i, j] = T.float32(1)
                for _ in T.serial(1, annotations={"mark": 1}):
                    B[i, j] = A[i, j]

    check(transform.UnifyThreadBinding(), before, after)


def test_lower_cross_thread_reduction() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128,), "float32")):
        for i, ko in T.grid(128, 4):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    vk = T.axis.reduce(128, ko * 32 + ki)
                    T.reads(A[vi, vk])
                    T.writes(B[vi])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    @T.prim_func(private=True)
    def after(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128,), "float32")):
        cross = T.alloc_buffer([1], "float32", strides=[1], scope="local")
        part = T.alloc_buffer([1], "float32", strides=[1], scope="local")
        for i in range(128):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B_in_thread_init"):
                    T.reads()
                    T.writes(part[0])
                    part[0] = T.float32(0)
                for ko in range(4):
                    with T.block("B_in_thread"):
                        vi = T.axis.spatial(128, i)
                        vk = T.axis.reduce(128, ko * 32 + ki)
                        T.reads(A[vi, vk])
                        T.writes(part[0])
                        part[0] = part[0] + A[vi, vk]
                with T.block("B_cross_thread"):
                    T.reads(part[0])
                    T.writes(cross[0])
                    T.attr(
                        T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope",
                        T.reinterpret("handle", T.uint64(0)),
                    )  # fmt: skip
                    T.tvm_thread_allreduce(T.uint32(1), part[0], T.bool(True), cross[0], ki)
                with T.block("B_write_back"):
                    vi = T.axis.spatial(128, i)
                    T.where(ki == 0)
                    T.reads(cross[0])
                    T.writes(B[vi])
                    B[vi] = cross[0]

    check(transform.LowerCrossThreadReduction(), before, after)


def test_lower_thread_allreduce_by_warp() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "float32"), B: T.Buffer((1,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        data = T.allocate([1], "float32", "local")
        r = T.decl_buffer([1], "float32", data=data, scope="local")
        with T.attr(
            T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", T.reinterpret("handle", T.uint64(0))
        ):
            T.tvm_thread_allreduce(T.uint32(1), A[0], T.bool(True), r[0], t)
        if t == 0:
            B[0] = r[0]

    made = apply(transform.LowerThreadAllreduce(), before, target=Target("cuda"))
    assert "reduce_scope" in made.script() and "tvm_thread_allreduce" not in made.script()
    names: list[str] = []
    tir.stmt_functor.post_order_visit(made.body, lambda n: names.append(n.op.name) if isinstance(n, tir.Call) else None)
    assert names.count("tir.tvm_warp_shuffle_down") == 5 and names.count("tir.tvm_warp_shuffle") == 1
    text = made.script()
    assert "red_buf0" in text and "mask" in text and "tvm_storage_sync" not in text
    tree = apply(transform.LowerThreadAllreduce(), before, target=Target("opencl"))
    assert 'tvm_storage_sync("shared")' in tree.script() and "volatile_scope" in tree.script()


def test_thread_sync() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        data = T.allocate([32], "float32", "shared")
        S = T.Buffer([32], "float32", data=data, scope="shared")
        S[t] = A[t]
        B[t] = S[31 - t]

    @T.prim_func(private=True)
    def after(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        data = T.allocate([32], "float32", "shared")
        S = T.Buffer([32], "float32", data=data, scope="shared")
        S[t] = A[t]
        T.tvm_storage_sync("shared")
        B[t] = S[31 - t]

    check(transform.ThreadSync("shared"), before, after)
    assert apply(transform.ThreadSync("shared.dyn"), before).body.same_as(before.body)


def test_thread_sync_leaves_private_cells_alone() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        data = T.allocate([32], "float32", "shared")
        S = T.Buffer([32], "float32", data=data, scope="shared")
        S[t] = A[t]
        B[t] = S[t]

    assert apply(transform.ThreadSync("shared"), before).body.same_as(before.body)


def test_inject_virtual_thread() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((2,), "float32")):
        v = T.env_thread("vthread")
        T.launch_thread(v, 2)
        data = T.allocate([4], "float32", "local")
        B = T.Buffer([4], "float32", data=data, scope="local")
        B[3] = A[v]

    @T.prim_func(private=True)
    def after(A: T.Buffer((2,), "float32")):
        data = T.allocate([8], "float32", "local")
        B = T.Buffer([16], "float32", data=data, scope="local")
        B[3] = A[0]
        B[7] = A[1]

    made = apply(transform.Simplify(), apply(transform.InjectVirtualThread(), before))
    assert_structural_equal(made.body, after.body, True)


def test_inject_software_pipeline() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block():
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32", scope="shared")
                with T.block():
                    T.reads(A[i])
                    T.writes(B[0])
                    B[0] = A[i] * T.float32(2)
                with T.block():
                    T.reads(B[0])
                    T.writes(C[i])
                    C[i] = B[0] + T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        with T.block():
            T.reads(A[0:16])
            T.writes(C[0:16])
            B = T.alloc_buffer((2, 1), "float32", scope="shared")
            with T.block():
                T.reads(A[0])
                T.writes(B[0, 0])
                B[0, 0] = A[0] * T.float32(2)
            with T.block():
                T.reads(A[1:16], B[0:2, 0])
                T.writes(B[0:2, 0], C[0:15])
                for i in range(15):
                    with T.block():
                        T.reads(A[i + 1])
                        T.writes(B[(i + 1) % 2, 0])
                        B[(i + 1) % 2, 0] = A[i + 1] * T.float32(2)
                    with T.block():
                        T.reads(B[i % 2, 0])
                        T.writes(C[i])
                        C[i] = B[i % 2, 0] + T.float32(1)
            with T.block():
                T.reads(B[1, 0])
                T.writes(C[15])
                C[15] = B[1, 0] + T.float32(1)

    made = apply(transform.Simplify(), apply(transform.InjectSoftwarePipeline(), before))
    assert_structural_equal(made.body.block.body, after.body, True)


def test_software_pipeline_errors() -> None:
    @T.prim_func(private=True)
    def single(A: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"software_pipeline_stage": [0], "software_pipeline_order": [0]}):
            A[i] = T.float32(1)

    with pytest.raises(ValueError, match="should be SeqStmt"):
        apply(transform.InjectSoftwarePipeline(), single)

    @T.prim_func(private=True)
    def no_order(A: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"software_pipeline_stage": [0]}):
            A[i] = T.float32(1)

    with pytest.raises(ValueError, match="Order of the software pipeline is not defined"):
        apply(transform.InjectSoftwarePipeline(), no_order)


def test_inject_ptx_async_copy() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        data = T.allocate([32], "float32", "shared")
        S = T.Buffer([32], "float32", data=data, scope="shared")
        with T.attr(0, "async_scope", 1):
            S[t] = A[t]

    made = apply(transform.InjectPTXAsyncCopy(), before)
    assert 'T.ptx_cp_async("float32", S.data, t, A.data, t, 4)' in made.script() or "ptx_cp_async" in made.script()
    assert "async_scope" not in made.script()


def test_merge_shared_memory() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        d1 = T.allocate([32], "float32", "shared.dyn")
        d2 = T.allocate([32], "float16", "shared.dyn")
        S1 = T.Buffer([32], "float32", data=d1, scope="shared.dyn")
        S2 = T.Buffer([32], "float16", data=d2, scope="shared.dyn")
        S1[t] = A[t]
        S2[t] = T.Cast("float16", S1[t])
        B[t] = S1[t] + T.Cast("float32", S2[t])

    made = apply(transform.MergeSharedMemoryAllocations(), before)
    allocs: list[Any] = []
    tir.stmt_functor.post_order_visit(made.body, lambda n: allocs.append(n) if isinstance(n, tir.Allocate) else None)
    assert len(allocs) == 1 and allocs[0].dtype == "uint8" and int(allocs[0].extents[0]) == 32 * 4 + 32 * 2
    assert allocs[0].buffer_var.name == "buf_dyn_shmem"


def test_lower_warp_memory() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        data = T.allocate([32], "float32", "warp")
        W = T.Buffer([32], "float32", data=data, scope="warp")
        W[t] = A[t]
        B[t] = W[(t + 1) % 32]

    made = apply(transform.LowerWarpMemory(), before, target=Target("cuda"))
    text = made.script()
    assert "tvm_warp_shuffle(T.tvm_warp_activemask()" in text and '[1], "float32", "local"' in text


def test_infer_fragment() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((256,), "float16")):
        data = T.allocate([256], "float16", "wmma.matrix_a")
        T.tvm_load_matrix_sync(data, 16, 16, 16, 0, A.data, 16, "row_major")

    made = apply(transform.InferFragment(), before)
    assert (made.body.attr_key, made.body.value.value) == ("fragment_layout", "row_major")
    assert (made.body.body.attr_key, made.body.body.value.value) == ("fragment_shape", "16, 16, 16")


def test_transform_mma_buffer_layout() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64, 64), "float32")):
        with T.block("root"):
            C = T.alloc_buffer([64, 64], "float32", scope="m16n8k8.matrixC")
            C[17, 9] = A[0, 0]

    made = apply(transform.TransformMmaBufferLayout(), before)
    buffer = made.body.block.alloc_buffers[0]
    if not buffer.shape or len(buffer.shape) != 4:
        buffer = made.body.block.body.block.alloc_buffers[0]
    assert [int(d) for d in buffer.shape] == [4, 8, 2, 2] and buffer.scope() == "local"


def test_lower_vtcm_alloc() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "float32")):
        data = T.allocate([32, 32], "float32", "global.vtcm")
        T.evaluate(data)

    made = apply(transform.LowerVtcmAlloc(), before)
    assert isinstance(made.body, tir.LetStmt) and made.body.value.op.name == "tir.nd_mem_alloc_with_scope"


def test_default_gpu_schedule() -> None:
    @T.prim_func
    def before(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32")):
        for i, j in T.grid(128, 128):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    with Target("nvidia/geforce-rtx-3070"):
        made = apply(transform.DefaultGPUSchedule(), before)
    loop = made.body.block.body
    assert loop.thread_binding.thread_tag == "blockIdx.x" and int(loop.extent) == 16
    assert loop.body.thread_binding.thread_tag == "threadIdx.x" and int(loop.body.extent) == 1024
    assert made.attrs["tir.is_scheduled"]


def test_lower_tvm_builtin_device_allocate() -> None:
    @T.prim_func
    def before():
        T.attr("dummy", "device_type", 2)
        T.attr("dummy", "device_id", 0)
        ptr = T.allocate([16], "float32")
        buf = T.decl_buffer(16, "float32", data=ptr)
        buf[0] = T.float32(0)

    @T.prim_func
    def after():
        ptr: T.handle("float32") = T.TVMBackendAllocWorkspace(2, 0, T.uint64(64), 2, 32)
        T.attr(ptr, "storage_alignment", 64)
        if T.isnullptr(ptr):
            T.evaluate(T.Call("int32", "tir.tvm_throw_last_error", []))
        with T.decl_buffer(16, "float32", data=ptr) as buf:
            buf[0] = T.float32(0)
        if T.TVMBackendFreeWorkspace(2, 0, ptr) != 0:
            T.evaluate(T.Call("int32", "tir.tvm_throw_last_error", []))

    check(transform.LowerTVMBuiltin(), before, after, target=Target("llvm"))


def test_lower_tvm_builtin_packed_call() -> None:
    @T.prim_func
    def before(A: T.handle):
        T.evaluate(T.call_packed("f", 1, T.float32(2), "text", A))

    made = apply(transform.LowerTVMBuiltin(), before, target=Target("llvm"))
    codes: list[int] = []
    tir.stmt_functor.post_order_visit(
        made.body, lambda n: codes.append(int(n.value)) if isinstance(n, tir.BufferStore) else None
    )
    assert codes == [0, 2, 11, 3]
    assert "call_packed_lowered" in made.script()


@pytest.mark.parametrize("divisor", [4, 3])
def test_lower_intrin_floordiv(divisor: int) -> None:
    n, c = tir.Var("n", "int32"), tir.const(divisor)
    func = tir.PrimFunc([n], tir.Evaluate(tir.call_extern("int32", "f", tir.FloorDiv(n, c), tir.FloorMod(n, c))))
    made = apply(transform.LowerIntrin(), func, target=Target("llvm"))
    left = made.body.value.args[1:]
    for value in (-9, -1, 0, 5, 17):
        from relaxish.ir.evaluate import evaluate

        assert [int(evaluate(e, {n: value})) for e in left] == [value // divisor, value % divisor]


def test_inject_double_buffer() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((400,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(100):
            data = T.allocate([4], "float32", "shared")
            B = T.Buffer([4], "float32", data=data, scope="shared")
            with T.attr(data, "double_buffer_scope", 1):
                for j in range(4):
                    B[j] = A[i * 4 + j]
            for j in range(4):
                C[j] = B[j] + T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((400,), "float32"), C: T.Buffer((4,), "float32")):
        data = T.allocate([8], "float32", "shared")
        B = T.Buffer([8], "float32", data=data, scope="shared")
        for j in range(4):
            B[j] = A[j]
        for i in range(100):
            if i < 99:
                with T.attr(data, "double_buffer_write", 1):
                    for j in range(4):
                        B[(i + 1) % 2 * 4 + j] = A[i * 4 + j + 4]
            for j in range(4):
                C[j] = B[i % 2 * 4 + j] + T.float32(1)

    with PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": 0}}):
        made = apply(transform.Simplify(), apply(transform.InjectDoubleBuffer(), before))
    assert_structural_equal(made.body, after.body, True)


def test_pipelined_fragments() -> None:
    """A fragment buffer with versions: the number of a fragment moves on with the version."""

    @T.prim_func
    def before(A: T.Buffer((8, 256), "float16"), C: T.Buffer((8, 256), "float16")) -> None:
        for i in T.serial(8, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block("both"):
                F = T.alloc_buffer((2, 16, 16), "float16", scope="wmma.matrix_a")
                with T.block("load"):
                    T.reads(A[i, 0:256])
                    T.writes(F[1, 0:16, 0:16])
                    T.tvm_load_matrix_sync(F.data, 16, 16, 16, 1, A.access_ptr("r", offset=i * 256), 16, "row_major")
                with T.block("store"):
                    T.reads(F[1, 0:16, 0:16])
                    T.writes(C[i, 0:256])
                    T.tvm_store_matrix_sync(F.data, 16, 16, 16, 1, C.access_ptr("w", offset=i * 256), 16, "row_major")

    after = transform.Simplify()(transform.InjectSoftwarePipeline()(IRModule({"main": before})))["main"].script()
    assert '"float16", scope="wmma.matrix_a")' in after and "(2, 2, 16, 16)" in after
    assert "T.tvm_load_matrix_sync(F.data, 16, 16, 16, (i + 1) % 2 * 2 + 1," in after
    assert "T.tvm_store_matrix_sync(F.data, 16, 16, 16, i % 2 * 2 + 1," in after


def rows_of_threads(some: bool) -> Any:
    """Each row of threads has a number, written by its first thread (or all of them), and read by all."""

    @T.prim_func(private=True)
    def first(B: T.Buffer((128,), "float32")):
        S = T.allocate([4], "float32", "shared")
        s = T.decl_buffer((4,), "float32", data=S, scope="shared")
        x, y = T.env_thread("threadIdx.x"), T.env_thread("threadIdx.y")
        with T.launch_thread(x, 32), T.launch_thread(y, 4):
            if x == 0:
                s[y] = T.float32(1)
            B[y * 32 + x] = s[y]

    @T.prim_func(private=True)
    def every(B: T.Buffer((128,), "float32")):
        S = T.allocate([4], "float32", "shared")
        s = T.decl_buffer((4,), "float32", data=S, scope="shared")
        x, y = T.env_thread("threadIdx.x"), T.env_thread("threadIdx.y")
        with T.launch_thread(x, 32), T.launch_thread(y, 4):
            s[y] = T.float32(1)
            B[y * 32 + x] = s[y]

    return first if some else every


@pytest.mark.parametrize("some", [True, False])
def test_what_one_thread_writes_for_others(some: bool) -> None:
    """An index that tells rows of threads apart does not tell the threads of a row apart."""
    made = apply(transform.ThreadSync("shared"), rows_of_threads(some)).script()
    assert ('T.tvm_storage_sync("shared")' in made) is some
