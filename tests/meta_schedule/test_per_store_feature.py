"""The 164 numbers of a store, for a program whose features are known."""

import numpy as np

from relaxish import meta_schedule as ms
from relaxish import tir
from relaxish.script import tir as T
from relaxish.target import Target


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (512, 512), "float32")
    B = T.match_buffer(b, (512, 512), "float32")
    C = T.match_buffer(c, (512, 512), "float32")
    for i, j, k in T.grid(512, 512, 512):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def features(sch, target="llvm"):
    context = ms.TuneContext(target=Target(target), num_threads=1)
    (found,) = ms.feature_extractor.PerStoreFeature().extract_from(context, [ms.MeasureCandidate(sch, [])])
    return np.asarray(found)


def scheduled():
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops(sch.get_block("C"))
    i_o, i_i = sch.split(i, factors=[None, 16])
    j_o, j_i = sch.split(j, factors=[None, 8])
    sch.reorder(i_o, j_o, k, j_i, i_i)
    sch.vectorize(j_i)
    sch.parallel(i_o)
    sch.parallel(j_o)
    sch.unroll(k)
    return sch


FLAGS = [0, 0, 0, 0, 0, 0, 0, 1]
GROUPS = {
    0: [0, 27, 27, 0, 0, 0, 0, 0, 29, 29, 0, 0, 0, 0, 0, 0],  # operations
    16: [1.0, 3.169924, 3.169924, *FLAGS],  # vectorized
    27: [1.0, 9.002815, 9.002815, *FLAGS],  # unrolled
    38: [1.58496, 11.0007, 6.022368, *FLAGS],  # parallel
    49: [0, 1, 1, 1, 1, 1, 1, 1],  # GPU threads
    57: [
        1, 0, 0, 29, 20, 27, 14.0000881, 1, 0, 0, 4.087463, 7.0552826, 3.169925, 26, 17.0000114, 24,
        11.0007038, 9.002815,
    ],
    75: [
        0, 0, 1, 29, 20.0000019, 27, 14.0000881, 1, 0, 0, 7.0112271, 9.2502985, 9.0028152, 20.0000019,
        11.0007038, 18.0000057, 5.044394, 9.0028152,
    ],
    93: [
        1, 0, 0, 29, 20.0000019, 19.0000019, 14.0000881, 1, 0, 0, 1, 3.7004397, 4.0874629, 25, 16.0000229,
        15.0000439, 10.0014082, 0,
    ],
    111: [0] * 36,
    147: [
        0.7097842693328857, 0.7408391237258911, 0.8750449419021606, 0.9449487924575806, 1.0148526430130005,
        1.0847564935684204, 1.113688349723816, 1.1394684314727783, 1.2119636535644531, 1.2971993684768677,
    ],
    157: [20.0000019, 18.0000076, 1.0, 27.0],  # allocation
    161: [27.0, 2.5849626, 0.0],  # iterations, loops, unroll limit
}  # fmt: skip


def test_every_group():
    (row,) = features(scheduled())
    assert row.shape == (164,)
    for start, wanted in GROUPS.items():
        np.testing.assert_allclose(row[start : start + len(wanted)], wanted, rtol=1e-5, atol=1e-5, err_msg=str(start))


def test_workload_columns():
    extractor = ms.feature_extractor.PerStoreFeature(extract_workload=True)
    context = ms.TuneContext(tir.Schedule(matmul).mod, target=Target("llvm"))
    (found,) = extractor.extract_from(context, [ms.MeasureCandidate(scheduled(), [])])
    assert found.shape == (1, 172)


def test_threads_of_a_gpu_program():
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops(sch.get_block("C"))
    i_o, i_i = sch.split(i, factors=[None, 16])
    j_o, j_i = sch.split(j, factors=[None, 8])
    sch.reorder(i_o, j_o, i_i, j_i, k)
    for loop, tag in ((i_o, "blockIdx.y"), (j_o, "blockIdx.x"), (i_i, "threadIdx.y"), (j_i, "threadIdx.x")):
        sch.bind(loop, tag)
    (row,) = features(sch, "nvidia/geforce-rtx-3090")
    np.testing.assert_allclose(row[49:57], np.log2([2 - 1 + 1, 65, 33, 2, 9, 17, 2, 2]), rtol=1e-5)
