"""The kernels of the canaries: CUDA C++ of one mechanism each, with the device functions that compiled programs use.

The preamble's functions (``mbarrier_wait``, ``matrix_descriptor``, ...) are those of real kernels, so that a canary
tests them, too; only copies by tensor maps and products are written out here, since the code generator makes those.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["KERNELS", "LARGEST_SHARED", "compiled"]

LARGEST_SHARED = 232448
"""Bytes of shared memory that a block may have at most on a Hopper GPU."""

_COPIES = r"""
RX_DEVICE void load_box(void* to, const CUtensorMap& map, void* bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
    ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y) : "memory"); }
RX_DEVICE void load_box_to_all(void* to, const CUtensorMap& map, void* bar, unsigned short blocks, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%0], [%1, {%3, %4}], [%2], %5;"
    ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y), "h"(blocks) : "memory"); }
RX_DEVICE void store_box(const CUtensorMap& map, void* from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
    ::"l"(&map), "r"(shared_address(from)), "r"(x), "r"(y) : "memory"); }
"""
_SHARED = "extern __shared__ __align__(1024) unsigned char s[];"
_RESULTS = ", ".join(f"%{i}" for i in range(32))
_OUTPUTS = ", ".join(f'"+f"(d[{i}])' for i in range(32))


def _multiply(b_across: int) -> str:
    """One product of 64 x 64 results and 16 steps of depth; ``b_across``: B is contiguous along its columns."""
    return (
        "RX_DEVICE void multiply(float* d, unsigned long long a, unsigned long long b, int add) {\n"
        '  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{_RESULTS}}}, %32, %33, p, 1, 1, 0, {b_across}; }}"\n'
        f'    : {_OUTPUTS} : "l"(a), "l"(b), "r"(add)); }}\n'
    )


def _product(b_across: int, swizzle: int = 128) -> str:
    """``C = A B^T`` of 64 x 64 halves, both operands put into shared memory by threads, in pieces of ``swizzle`` bytes.

    What a matrix descriptor says is an argument, so that a wrong result can be compared with other readings of it.
    """
    across = swizzle // 2  # elements of a line
    lines = 128 // swizzle  # of which a swizzle pattern's row of 128 bytes has so many
    mask = swizzle // 16 - 1
    # Element (line, at) of a piece: units of 16 bytes are exchanged by the line's number.
    place = f"piece * {64 * swizzle} + line * {swizzle} + (((at / 8) ^ (line / {lines} & {mask})) * 16) + at % 8 * 2"
    by_depth = f"int line = r, piece = k / {across}, at = k % {across};"
    by_rows = f"int line = k, piece = r / {across}, at = r % {across};"
    steps_of_piece = across // 16
    a_at = f"q / {steps_of_piece} * {64 * swizzle} + q % {steps_of_piece} * 32"
    b_at = f"q * {16 * swizzle}" if b_across else a_at
    return (
        _multiply(b_across)
        + 'extern "C" __global__ void __launch_bounds__(128, 1) k(const __half* A, const __half* B, float* C, '
        "int a_leading, int a_stride, int b_leading, int b_stride, int mode) {\n"
        f"  {_SHARED}\n"
        "  for (int i = threadIdx.x; i < 4096; i += 128) { int r = i / 64, k = i % 64;\n"
        f"    {{ {by_depth} *(__half*)(s + {place}) = A[i]; }}\n"
        f"    {{ {by_rows if b_across else by_depth} *(__half*)(s + 8192 + {place}) = B[i]; }} }}\n"
        "  fence_proxy_async(); __syncthreads();\n"
        "  float d[32]; wgmma_fence();\n"
        "  for (int q = 0; q < 4; ++q)\n"
        f"    multiply(d, matrix_descriptor(s + {a_at}, a_leading, a_stride, mode),\n"
        f"             matrix_descriptor(s + 8192 + {b_at}, b_leading, b_stride, mode), q);\n"
        "  wgmma_commit(); wgmma_wait<0>();\n"
        "  for (int j = 0; j < 8; ++j) for (int h = 0; h < 4; ++h)\n"
        "    C[(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + h / 2 * 8) * 64 + j * 8 + threadIdx.x % 4 * 2 + h % 2] = d[j * 4 + h];\n"
        "}\n"
    )


def _kernel(parameters: str, body: str, threads: int = 0) -> str:
    bounds = f"__launch_bounds__({threads}, 1) " if threads else ""
    return f'extern "C" __global__ void {bounds}k({parameters}) {{\n{body}\n}}\n'


_MAP = "const __grid_constant__ CUtensorMap m"
# Name: (sections of the preamble, text). Every kernel is called k.
KERNELS: dict[str, tuple[str, str]] = {
    "add": ("base", _kernel("float* x", "x[threadIdx.x] += 1.f;")),
    "bigshared": ("base", _kernel("int* x, int n", """
  extern __shared__ int s[]; int t = 0;
  for (int i = threadIdx.x; i < n; i += 256) s[i] = i * 3;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += 256) t += s[n - 1 - i] == (n - 1 - i) * 3;
  atomicAdd(x, t);""")),
    "mbarrier": ("hopper", _kernel("int* x", """
  __shared__ unsigned long long b;
  if (threadIdx.x == 0) mbarrier_init(&b, 128);
  __syncthreads();
  for (int p = 0; p < 6; ++p) { mbarrier_arrive(&b); mbarrier_wait(&b, p & 1); }
  atomicAdd(x, 1);""")),
    "cpasync": ("async", _kernel("const float4* a, float4* c", """
  __shared__ float4 s[128];
  copy_async<16>(&s[threadIdx.x], &a[threadIdx.x]);
  commit_copies(); wait_copies<0>(); __syncthreads();
  c[threadIdx.x] = s[127 - threadIdx.x];""")),
    "wmma": ("wmma", _kernel("const __half* a, const __half* b, float* c", """
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> x; fragment<matrix_b, 16, 16, 16, __half, row_major> y;
  fragment<accumulator, 16, 16, 16, float> z;
  fill_fragment(z, 0.f); load_matrix_sync(x, a, 16); load_matrix_sync(y, b, 16);
  mma_sync(z, x, y, z); store_matrix_sync(c, z, 16, mem_row_major);""")),
    "tma": ("hopper", _COPIES + _kernel(f"{_MAP}, uint4* out, int bytes", f"""
  {_SHARED} __shared__ unsigned long long b;
  if (threadIdx.x == 0) {{ mbarrier_init(&b, 1); fence_mbarrier_init(); fence_proxy_async(); }}
  __syncthreads();
  if (threadIdx.x == 0) {{ mbarrier_arrive_expect_tx(&b, bytes); load_box(s, m, &b, 64, 32); }}
  mbarrier_wait(&b, 0);
  for (int i = threadIdx.x; i < bytes / 16; i += 128) out[i] = ((uint4*)s)[i];""", 128)),
    "tmastore": ("hopper,half", _COPIES + _kernel(_MAP, f"""
  {_SHARED}
  for (int i = threadIdx.x; i < 4096; i += 128) ((__half*)s)[i] = __int2half_rn(i % 1000);
  fence_proxy_async(); __syncthreads();
  if (threadIdx.x == 0) {{ store_box(m, s, 64, 64); bulk_store_commit(); bulk_store_wait<0>(); }}""", 128)),
    "wgmma": ("hopper,half", _product(0)), "wgmma_64": ("hopper,half", _product(0, 64)),
    "wgmma_32": ("hopper,half", _product(0, 32)), "wgmma_mn": ("hopper,half", _product(1)),
    "wgmma_mn_64": ("hopper,half", _product(1, 64)),
    "registers": ("hopper", _kernel("int* x", """
  if (warp_group_index() == 0) registers_decrease<40>(); else registers_increase<232>();
  atomicAdd(x, 1);""", 384)),
    "registers_3": ("hopper", _kernel("int* x", """
  if (warp_group_index() == 0) registers_decrease<32>(); else registers_increase<160>();
  atomicAdd(x, 1);""", 512)),
    "cluster": ("hopper", _kernel("float4* out", """
  __shared__ unsigned long long b; __shared__ float4 v[128];
  int r = cluster_rank();
  v[threadIdx.x] = make_float4(r, threadIdx.x, 0, 0);
  if (threadIdx.x == 0) { mbarrier_init(&b, 2); fence_mbarrier_init(); }
  cluster_arrive(); cluster_wait();
  if (threadIdx.x < 2) mbarrier_arrive(&b, (int)threadIdx.x);
  mbarrier_wait(&b, 0);
  cluster_read(&out[r * 128 + threadIdx.x], &v[threadIdx.x], r ^ 1);
  cluster_arrive(); cluster_wait();""", 128)),
    # Four warps of each block tell both blocks, over and over, as consumers do that give a stage back.
    "remote": ("hopper", _kernel("int* x, int turns", """
  __shared__ unsigned long long b;
  if (threadIdx.x == 0) { mbarrier_init(&b, 8); fence_mbarrier_init(); }
  cluster_arrive_relaxed(); cluster_wait();
  for (int p = 0; p < turns; ++p) {
    if (threadIdx.x % 32 < 2) mbarrier_arrive(&b, (int)threadIdx.x % 32);
    mbarrier_wait(&b, p & 1);
  }
  atomicAdd(x, 1);
  cluster_arrive(); cluster_wait();""", 128)),
    "multicast": ("hopper", _COPIES + _kernel(f"{_MAP}, uint4* out", f"""
  {_SHARED} __shared__ unsigned long long b;
  int r = cluster_rank();
  if (threadIdx.x == 0) {{ mbarrier_init(&b, 1); fence_mbarrier_init(); fence_proxy_async(); }}
  cluster_arrive_relaxed(); cluster_wait();
  if (threadIdx.x == 0) {{ mbarrier_arrive_expect_tx(&b, 8192); load_box_to_all(s + r * 4096, m, &b, 3, 64, 32 + r * 32); }}
  mbarrier_wait(&b, 0);
  for (int i = threadIdx.x; i < 512; i += 128) out[r * 512 + i] = ((uint4*)s)[i];
  cluster_arrive(); cluster_wait();""", 128)),
}  # fmt: skip


@lru_cache(maxsize=None)
def compiled(name: str) -> bytes:
    """The machine code of a kernel. Raises RelaxishError with the compiler's log."""
    from relaxish.backend.cuda.compile import nvrtc
    from relaxish.backend.cuda.codegen.preamble import preamble

    sections, text = KERNELS[name]
    return nvrtc.compile_cubin(preamble(sections.split(",")) + text, "sm_90a")
