"""What candidates for GPUs are refused for, by formulas over decisions and by the postproc alike."""

import numpy as np
import pytest
from gpu_workloads import CONTEXTS, context, matmul16
from test_vector_search_gpu import accepted, sketches_of

from relaxish import tir
from relaxish.meta_schedule.postproc import VerifyGPUCode
from relaxish.meta_schedule.testing import te_workload
from relaxish.script import tir as T
from relaxish.target import Target, opt_in_shared_memory
from relaxish.target.shared_memory import STATIC_SHARED_MEMORY
from relaxish.tir.analysis import verify_gpu_code
from relaxish.tir.transform.blocks.inject_permuted_layout import CheckPermutedLayout


def test_tiles_that_cannot_be_swizzled_are_no_candidates():
    """``InjectPermutedLayout`` wants rows of 32 elements, or pairs of such rows."""
    rng = np.random.default_rng(11)
    tuning = CONTEXTS["matmul_mma"]()
    ((sketch, variant),) = sketches_of(tuning)
    limits = variant.compiled.limits
    assert [buffer.permuted for buffer in limits.shared] == [True, True]
    rows = sketch.table.sample(rng, 3000)
    env = variant.compiled.environment(rows)
    fits = np.logical_and.reduce([limits._swizzles(env, buffer) for buffer in limits.shared])
    valid = variant.valid(rows)
    assert not (valid & ~fits).any()
    limits.shared = [type(b)(**{**vars(b), "permuted": False}) for b in limits.shared]
    only_for_that = rows[variant.valid(rows) & ~fits]
    assert len(only_for_that) > len(rows[valid]) / 4
    assert not accepted(tuning, sketch, only_for_that[0])
    assert accepted(tuning, sketch, rows[valid][0])


@pytest.mark.parametrize("shape, refused", [((16, 64), False), ((16, 32), False), ((15, 32), True), ((16, 48), True)])
def test_shapes_of_swizzled_tiles(shape, refused):
    n, m = shape

    @T.prim_func
    def copy(a: T.handle):
        A = T.match_buffer(a, (n, m), "float16")
        S = T.alloc_buffer((n, m), "float16", scope="shared")
        for i, j in T.grid(n, m):
            with T.block("S"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"permuted_layout": "g2s_A"})
                S[vi, vj] = A[vi, vj]

    mod = tir.Schedule(copy).mod
    if refused:
        with pytest.raises(ValueError, match="Permuted Layout"):
            CheckPermutedLayout()(mod)
    else:
        assert CheckPermutedLayout()(mod)["main"] is mod["main"]


def test_shared_memory_of_architectures():
    assert [opt_in_shared_memory(arch) for arch in ("sm_50", "sm_80", "sm_86", "sm_90a")] == [
        49152,
        166912,
        101376,
        232448,
    ]
    assert Target("nvidia/nvidia-h100").attrs["max_shared_memory_per_block"] == STATIC_SHARED_MEMORY


def _most(tuning):
    """Most bytes of shared memory among random valid candidates of the first sketch."""
    ((sketch, variant),) = sketches_of(tuning, 1)
    rows = sketch.table.sample(np.random.default_rng(5), 40000)
    rows = rows[variant.valid(rows)]
    limits = variant.compiled.limits
    used = np.broadcast_to(limits.shared_bytes(variant.compiled.environment(rows), limits.heads[0]), len(rows))
    return float(used.max()), sketch, rows[int(used.argmax())]


def test_a_target_may_offer_more_shared_memory():
    """Tiles in ``shared.dyn`` may take what the target says; arrays of fixed size no more than compilers allow."""
    ample = Target({"tag": "nvidia/nvidia-a100", "max_shared_memory_per_block": opt_in_shared_memory("sm_80")})
    func = matmul16(512, 512, 512, "float32")
    usual, _, _ = _most(context(func))
    more, sketch, row = _most(context(func, ample))
    assert usual <= STATIC_SHARED_MEMORY < more <= 166912
    assert accepted(context(func, ample), sketch, row)
    fixed, sketch, row = _most(context(te_workload.matmul(512, 512, 512), ample, "cuda"))
    assert fixed <= STATIC_SHARED_MEMORY
    assert accepted(context(te_workload.matmul(512, 512, 512), ample, "cuda"), sketch, row)


def test_static_shared_memory_is_counted_by_itself():
    @T.prim_func
    def both():
        with T.block("root"):
            S = T.alloc_buffer((1024,), "float32", scope="shared")
            D = T.alloc_buffer((2048,), "float32", scope="shared.dyn")
            for i in T.thread_binding(32, thread="threadIdx.x"):
                S[i] = D[i]

    assert verify_gpu_code(both, {"max_static_shared_memory_per_block": 4096, "max_shared_memory_per_block": 12288})
    assert not verify_gpu_code(both, {"max_static_shared_memory_per_block": 4095})
    assert not verify_gpu_code(both, {"max_shared_memory_per_block": 12287})
    verify = VerifyGPUCode()
    verify.initialize_with_tune_context(context(matmul16(64, 64, 64, "float32"), Target("nvidia/nvidia-a100")))
    assert verify._limits["max_static_shared_memory_per_block"] == STATIC_SHARED_MEMORY
