"""One kernel for each construct: its text is the golden one, and it compiles for every architecture that has it."""

from __future__ import annotations

import pytest
from programs import cuda_constructs as programs

import relaxish
from relaxish.backend.cuda.compile import nvrtc, sass
from relaxish.ir import IRModule
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

A100 = Target("nvidia/nvidia-a100", host="llvm")
H100 = Target("nvidia/nvidia-h100", host="llvm")
ARCHS = ("sm_80", "sm_90a")
needs_compiler = pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")
needs_disassembler = pytest.mark.skipif(
    not (sass.available() and nvrtc.available()), reason="no disassembler (the triton package has one)"
)


def source_of(functions, target=A100):
    mod = IRModule(functions) if isinstance(functions, dict) else IRModule({"main": functions})
    return relaxish.compile(mod, target).imported_modules[0].get_source("cu")


def kernels_of(source):
    return source[source.index('extern "C"') :].rstrip()


@pytest.mark.parametrize("name", programs.KERNELS)
def test_text(name, golden):
    golden(f"cuda_{name}", kernels_of(source_of(programs.KERNELS[name])))


@pytest.mark.parametrize(
    "product", [programs.PRODUCTS[12], programs.PRODUCTS[13], programs.PRODUCTS[14], programs.PRODUCTS[0]]
)
def test_text_of_products(product, golden):
    source = source_of(programs.mma_kernel(product))
    golden("cuda_" + "_".join(product[:4]), source[source.index("RX_DEVICE void mma_") :].rstrip())


def test_text_of_a_sparse_product(golden):
    source = source_of(programs.mma_kernel(programs.SPARSE_PRODUCTS[1], True))
    golden("cuda_sparse_product", source[source.index("RX_DEVICE void mma_") :].rstrip())


def test_products_are_defined_once():
    kernels = [programs.mma_kernel(p) for p in (programs.PRODUCTS[11], programs.PRODUCTS[12])]
    copy = kernels[0].with_attr("global_symbol", "again")
    source = source_of({f.attrs["global_symbol"]: f for f in (*kernels, copy)})
    assert source.count("RX_DEVICE void mma_m16n8k16_row_col_f16_f16_f16(") == 1
    assert source.count("RX_DEVICE void mma_m16n8k16_row_col_f32_f16_f16(") == 1


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("arch", ARCHS)
def test_constructs_compile(arch):
    wanted = {n: f for n, f in programs.KERNELS.items() if arch != "sm_80" or n not in programs.HOPPER}
    resources = nvrtc.kernel_resources(source_of(wanted), arch)
    assert set(resources) == {f"{n}_kernel" for n in wanted}
    assert not [n for n, r in resources.items() if r.spills]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("arch", ARCHS)
def test_tensor_cores_compile(arch):
    fp8 = arch == "sm_90a"
    kernels = programs.tensor_core_kernels(fp8)
    resources = nvrtc.kernel_resources(source_of(kernels, H100 if fp8 else A100), arch)
    # Fragments are in registers: nothing is in local memory.
    assert set(resources) == {f"{n}_kernel" for n in kernels} and not any(r.stack_bytes for r in resources.values())


@pytest.mark.slow
@needs_disassembler
def test_tensor_core_instructions():
    kernels = programs.tensor_core_kernels()
    image = nvrtc.compile_cubin(source_of(kernels), "sm_80")
    for name in kernels:
        found = sass.sass_instructions(image, f"{name}_kernel")
        if name.startswith(("mma_m16", "mma_sp", "wmma")):
            kind = {"int": "IMMA", "uin": "IMMA", "fp6": "DMMA"}.get(_operand(name)[:3], "HMMA")
            kind = {"int1": "BMMA", "float64": "DMMA"}.get(_operand(name), kind)
            assert sass.mnemonics(found)[kind] >= 1, (name, found)
            assert (".SP." in " ".join(found)) == name.startswith("mma_sp")
        if name.startswith("ldmatrix_float16"):
            _, _, count, form = name.split("_")
            [load] = [i for i in found if i.startswith("LDSM")]
            assert ("MT88" in load) == (form == "t") and load.endswith({"1": "88", "2": "88.2", "4": "88.4"}[count])


def _operand(name):
    """The type of A in a kernel's name."""
    parts = name.split("_")
    return parts[4] if name.startswith("wmma") else parts[3] if name.startswith("mma_sp") else parts[2]


@pytest.mark.slow
@needs_disassembler
def test_copies_are_asynchronous_and_whole():
    found = sass.sass_instructions(nvrtc.compile_cubin(source_of(programs.copies), "sm_80"))
    copies = [name for name in found if name.startswith("LDGSTS")]
    assert {name.rsplit(".", 1)[-1] for name in copies} >= {"128", "64"} and sum(found[n] for n in copies) == 4
    barrier = sass.mnemonics(sass.sass_instructions(nvrtc.compile_cubin(source_of(programs.bulk_copies), "sm_90a")))
    assert barrier["UBLKCP"] == 1 and barrier["SYNCS"] >= 3


# -- options of the pipeline ------------------------------------------------------------------------------------------------


@T.prim_func
def guarded(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    T.func_attr({"global_symbol": "guarded"})
    for bx in T.thread_binding(8, thread="blockIdx.x"):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("all"):
                r = T.alloc_buffer((1,), "float32", scope="local")
                with T.block("load"):
                    r[0] = T.if_then_else(bx * 128 + tx < 1000, A[bx * 128 + tx], T.float32(0))
                with T.block("B"):
                    B[bx * 128 + tx] = r[0] * T.float32(2)


@T.prim_func
def grid_wide(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32"), C: T.Buffer((1024,), "float32")):
    T.func_attr({"global_symbol": "grid_wide"})
    for bx in T.thread_binding(8, thread="blockIdx.x"):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("B"):
                B[bx * 128 + tx] = A[bx * 128 + tx] * T.float32(2)
            with T.block("C"):
                C[bx * 128 + tx] = B[1023 - (bx * 128 + tx)]


@pytest.mark.parametrize(
    "func, option, text",
    [
        (guarded, "tir.ptx_ldg32", "load_if((r + addr[1]), &A[addr[0]], predicate[0]);"),
        (guarded, "tir.instrument_lwp", "* 2.0f);"),
        (grid_wide, "tir.detect_global_barrier", "grid_barrier();"),
    ],
)
def test_options(func, option, text):
    from relaxish.ir.transform import PassContext

    with PassContext(config={option: True}):
        assert text in source_of(func)


def test_every_device_intrinsic_has_a_printer():
    """What has none runs on the host, or on devices of other kinds."""
    from relaxish.backend.cuda.codegen.table import PRINTERS, load_printers
    from relaxish.tir.intrinsics import INTRINSICS

    load_printers()
    elsewhere = (
        "anylist", "tvm_call", "tvm_stack", "tvm_struct", "TVMBackend", "dma_", "simdgroup", "texture2d",
        "call_llvm",
    )  # fmt: skip
    others = {
        "atomic_add", "call_pure_packed", "call_spirv_pure_glsl450", "dot_bf16x2", "dot_u8s8x4", "get_active_lane_mask", "llvm_lookup_intrinsic_id", "lookup_param",
        "make_filled_simdgroup_matrix", "nd_mem_alloc_with_scope", "prefetch_shape", "tensor_map_encode", "tvm_check_return",
        "tvm_context_id", "tvm_static_handle", "tvm_thread_allreduce", "tvm_thread_context", "tvm_throw_last_error",
        "tvm_tuple", "type_annotation", "vscale",
    }  # fmt: skip
    missing = {n for n in INTRINSICS if f"tir.{n}" not in PRINTERS and not n.startswith(elsewhere)}
    assert missing <= others, sorted(missing - others)


# -- what cannot be printed ----------------------------------------------------------------------------------------------


def test_unknown_intrinsic():
    @T.prim_func
    def kernel(A: T.Buffer((32,), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            A[tx] = T.call_intrin("float32", "tir.texture2d_load", A[tx])

    with pytest.raises(RelaxishError, match="does not know the intrinsic texture2d_load"):
        source_of(kernel)


@pytest.mark.parametrize("size", [2, 12])
def test_copies_of_other_sizes(size):
    @T.prim_func
    def kernel(A: T.Buffer((32,), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            S = T.decl_buffer((32,), "float32", scope="shared")
            T.evaluate(T.ptx_cp_async("float32", S.data, tx, A.data, tx, size))

    with pytest.raises(RelaxishError, match="cp.async copies 4, 8 or 16 bytes"):
        source_of(kernel)


def test_shape_that_there_is_not():
    with pytest.raises(RelaxishError, match="mma.sync has no shape 16x8x16"):
        source_of(programs.mma_kernel(("16x8x16", "fp16", "fp16", "fp32", 8, 4, 4)))


def test_type_that_tensor_cores_do_not_have():
    with pytest.raises(RelaxishError, match="mma.sync has no operands of type fp17"):
        programs._MEMORY["fp17"] = "float16"
        source_of(programs.mma_kernel(("m16n8k16", "fp17", "fp16", "fp32", 8, 4, 4)))


# -- names and numbers ---------------------------------------------------------------------------------------------------


def test_names_that_mean_something_in_cpp():
    @T.prim_func
    def kernel(new: T.Buffer((32,), "float32"), expf: T.Buffer((32,), "float32"), load: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for threadIdx in T.thread_binding(32, thread="threadIdx.x"):
            load[threadIdx] = T.log1p(new[threadIdx]) + expf[threadIdx]

    text = kernels_of(source_of(kernel))
    assert "new_1" in text and "expf_1" in text and "load_1" in text


def test_narrow_integers_wrap():
    @T.prim_func
    def kernel(A: T.Buffer((32,), "uint8"), B: T.Buffer((32,), "uint8")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            B[tx] = (A[tx] + A[tx]) >> T.uint8(1)

    assert "((unsigned char)(((unsigned char)(A[((int)threadIdx.x)] + A[((int)threadIdx.x)])) >> " in source_of(kernel)


def test_exponentials_follow_the_knob():
    from relaxish.support import config

    @T.prim_func
    def kernel(A: T.Buffer((32,), "float32"), H: T.Buffer((32,), "float16")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            A[tx] = T.exp(A[tx]) + T.sin(A[tx])
            H[tx] = T.exp(H[tx])

    quick = kernels_of(source_of(kernel))
    assert "__expf(A[" in quick and "sinf(A[" in quick and "__sinf" not in quick and "((float)H[" in quick
    with config.FAST_MATH.override(False):
        assert " expf(" in kernels_of(source_of(kernel)).replace("(expf", "( expf")


def test_launch_bounds_with_blocks():
    @T.prim_func
    def kernel(A: T.Buffer((32,), "float32")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.attr(T.int32(0), "min_blocks_per_sm", 1):
                A[tx] = A[tx] + T.float32(1)

    assert "__launch_bounds__(32, 1)" in source_of(kernel)


def test_loops_over_registers_are_unrolled():
    @T.prim_func
    def kernel(A: T.Buffer((32,), "float32"), B: T.Buffer((256,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            r = T.decl_buffer((8,), "float32", scope="local")
            for i in T.serial(8):
                r[i] = A[tx] * T.Cast("float32", i)
            for k in T.serial(8):
                B[tx * 8 + k] = r[7 - k] + r[0]
            for k in T.serial(8):
                B[k] = r[0]

    assert kernels_of(source_of(kernel)).count("#pragma unroll") == 2


# -- kernels of one's own ------------------------------------------------------------------------------------------------

SCALE = """
extern "C" __global__ void scale(float* x, float factor, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}
"""


def own_kernel(source, launch, **names):
    @I.ir_module
    class Module:
        @T.prim_func
        def main(x: T.handle):
            T.func_attr({"global_symbol": "main"})
            n = T.int64()
            X = T.match_buffer(x, (n,), "float32")
            with T.block("root"):
                T.reads()
                T.writes()
                T.call_kernel(source, launch, X.data, T.float32(2), n, **names)

    return Module


def test_call_kernel(tmp_path):
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)
    for source in (SCALE, str(path)):
        mod = own_kernel(source, ((4, 1), (64,), 128), kernel_name="scale")
        [made] = mod.attrs["external_mods"]
        assert made.kernel_names == ["scale"] and made.get_source("cu") == SCALE
        assert made.infos["scale"].kinds == ("pointer", "float32", "int64")
        assert made.infos["scale"].launch_params == (
            "blockIdx.x",
            "blockIdx.y",
            "threadIdx.x",
            "tir.use_dyn_shared_memory",
        )
        assert 'T.call_packed("scale", X.data, T.float32(2.0), n, 4, 1, 64, 128)' in mod["main"].script()


@pytest.mark.parametrize(
    "source, launch, names, message",
    [
        (SCALE, ((4,), (64,)), {}, "needs kernel_name="),
        (SCALE, ((4,),), {"kernel_name": "scale"}, "launch_args are the sizes"),
        (SCALE, ((1, 1, 1, 1), (64,)), {"kernel_name": "scale"}, "one to three sizes"),
        (len, ((4,), (64,)), {"kernel_name": "scale"}, "Unsupported kernel type"),
    ],
)
def test_call_kernel_errors(source, launch, names, message):
    with pytest.raises(Exception, match=message):
        own_kernel(source, launch, **names)
