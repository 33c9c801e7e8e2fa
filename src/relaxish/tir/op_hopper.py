"""Instructions of Hopper GPUs (sm_90a): bulk tensor copies, barriers in shared memory, warpgroup products.

Every one takes its operands in the open (addresses, byte distances, swizzle widths); encodings such as matrix
descriptors are the code generator's business, so that the interpreter and the emulator can say what a call means
from its arguments. Source: PTX ISA 8.x, "Asynchronous Warpgroup Level Matrix Instructions", "Tensor copies",
"mbarrier", "setmaxnreg".

Arguments, in order (``[]`` optional):

===============================  =========================================================================================
ptx_mbarrier_init                barrier, arrivals that complete a phase
ptx_mbarrier_arrive              barrier, [rank of the block in the cluster whose barrier of this place is meant: then it
                                 says that memory has been read, and publishes no stores]
ptx_mbarrier_arrive_expect_tx    barrier, bytes that copies will bring in this phase (arrives, too)
ptx_mbarrier_wait_parity         barrier, parity: waits until the phase of that parity is complete
ptx_mbarrier_try_wait            barrier, parity: whether it is complete
ptx_fence_mbarrier_init          makes initialised barriers visible to copies and to the cluster
ptx_fence_proxy_async            makes ordinary stores to shared memory visible to copies and products
ptx_tma_load                     target, tensor map, barrier, multicast mask (0: this block), coordinates innermost first
ptx_tma_store                    tensor map, source, coordinates innermost first
ptx_tma_store_commit             closes a group of stores
ptx_tma_store_wait               how many groups may be unfinished, whether having read shared memory is enough
ptx_tma_prefetch                 tensor map
ptx_wgmma_fence                  orders register and shared accesses before the first product
ptx_wgmma_commit                 closes a group of products
ptx_wgmma_wait                   how many groups may be unfinished
ptx_wgmma_ss                     n, dtypes of a, b and c, c, c's offset, two operands in shared memory (each: address,
                                 leading and stride byte offset, swizzle width in bytes (0: none), whether its rows are
                                 contiguous along m or n rather than k), whether to add to c (else c is overwritten)
ptx_wgmma_rs                     as ptx_wgmma_ss with a in registers: its memory and offset instead of an operand
ptx_wgmma_fence_operand          c, offset, count: keeps the compiler from moving accesses to these registers
ptx_setmaxnreg                   registers a thread, whether that is an increase: it waits until others of the block
                                 have given back so many of those that the block was launched with
ptx_named_barrier_sync           barrier number, threads
ptx_named_barrier_arrive         barrier number, threads
ptx_elect_sync                   whether this lane is the one its warp elects
ptx_warp_group_index             threadIdx.x // 128, known to be uniform in a warp
ptx_cluster_rank                 this block's rank in its cluster
ptx_cluster_read                 registers, a place in shared memory, rank: 16 bytes from that place in the memory of a
                                 block of the cluster
ptx_cluster_arrive / _wait       a barrier of all threads of the cluster
ptx_cluster_arrive_relaxed       arrives there without publishing what the thread has stored
tensor_map_encode                (host) data, dtype, rank, sizes innermost first, byte strides but for the innermost,
                                 box, swizzle width in bytes
===============================  =========================================================================================
"""

from __future__ import annotations

__all__ = ["HOPPER_CALLS", "HOPPER_VALUES"]

# Name -> result type; those with a value are read by programs, the others are statements.
HOPPER_VALUES = {
    "ptx_mbarrier_try_wait": "bool", "ptx_elect_sync": "bool", "ptx_warp_group_index": "int32",
    "ptx_cluster_rank": "int32", "tensor_map_encode": "handle",
}  # fmt: skip
HOPPER_CALLS = HOPPER_VALUES | dict.fromkeys(
    (
        "ptx_mbarrier_init", "ptx_mbarrier_arrive", "ptx_mbarrier_arrive_expect_tx", "ptx_mbarrier_wait_parity",
        "ptx_fence_mbarrier_init", "ptx_fence_proxy_async", "ptx_tma_load", "ptx_tma_store", "ptx_tma_store_commit",
        "ptx_tma_store_wait", "ptx_tma_prefetch", "ptx_wgmma_fence", "ptx_wgmma_commit", "ptx_wgmma_wait",
        "ptx_wgmma_ss", "ptx_wgmma_rs", "ptx_wgmma_fence_operand", "ptx_setmaxnreg", "ptx_named_barrier_sync",
        "ptx_named_barrier_arrive", "ptx_cluster_read", "ptx_cluster_arrive", "ptx_cluster_arrive_relaxed",
        "ptx_cluster_wait",
    ),
    "",
)  # fmt: skip
