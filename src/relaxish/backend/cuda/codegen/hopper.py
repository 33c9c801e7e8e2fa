"""Instructions of Hopper GPUs (sm_90a) as CUDA C++: barriers, bulk tensor copies, warpgroup products.

What the operands of a product look like in memory is given by byte distances; here they become matrix descriptors.
Source: PTX ISA, "wgmma", "cp.async.bulk.tensor", "mbarrier", "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....ir.expr import PrimExpr
from ....ir.prim import Call, Var
from ....ir import dtype as dt
from ....ir.prim import is_zero
from ....support.errors import RelaxishError
from .table import calls_with_all, constant_argument, prints
from .types import type_name

if TYPE_CHECKING:
    from .expr import CudaExpressions

__all__: list[str] = []

_SECTION = "hopper"
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
_PTX = {
    "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "int8": "s8", "uint8": "u8",
    "float32": "f32", "int32": "s32",
}  # fmt: skip


for _name, _function in {
    "mbarrier_init": "mbarrier_init", "mbarrier_arrive": "mbarrier_arrive",
    "mbarrier_arrive_expect_tx": "mbarrier_arrive_expect_tx", "mbarrier_try_wait": "mbarrier_try_wait",
    "mbarrier_wait_parity": "mbarrier_wait", "fence_mbarrier_init": "fence_mbarrier_init",
    "fence_proxy_async": "fence_proxy_async", "tma_prefetch": "prefetch_map", "tma_store_commit": "bulk_store_commit",
    "wgmma_fence": "wgmma_fence", "wgmma_commit": "wgmma_commit", "named_barrier_sync": "named_sync",
    "named_barrier_arrive": "named_arrive", "elect_sync": "elect_lane", "warp_group_index": "warp_group_index",
    "cluster_rank": "cluster_rank", "cluster_read": "cluster_read", "cluster_arrive": "cluster_arrive",
    "cluster_arrive_relaxed": "cluster_arrive_relaxed", "cluster_wait": "cluster_wait",
}.items():  # fmt: skip
    prints(f"tir.ptx_{_name}")(calls_with_all(_function, _SECTION))


@prints("tir.ptx_wgmma_wait")
def _products_wait(gen: CudaExpressions, e: Call) -> str:
    gen.need(_SECTION)
    return f"wgmma_wait<{constant_argument(e.args[0], 'how many groups of products may be unfinished')}>()"


@prints("tir.ptx_tma_store_wait")
def _stores_wait(gen: CudaExpressions, e: Call) -> str:
    gen.need(_SECTION)
    read = "_read" if constant_argument(e.args[1], "what a wait for stores waits for") else ""
    return f"bulk_store_wait{read}<{constant_argument(e.args[0], 'how many groups of stores may be unfinished')}>()"


@prints("tir.ptx_setmaxnreg")
def _registers(gen: CudaExpressions, e: Call) -> str:
    gen.need(_SECTION)
    count = constant_argument(e.args[0], "a number of registers")
    if count % 8 or not 24 <= count <= 256:
        raise RelaxishError(f"a thread can be given 24 to 256 registers in steps of 8, not {count}")
    how = "increase" if constant_argument(e.args[1], "the direction") else "decrease"
    return f"registers_{how}<{count}>()"


# -- bulk tensor copies ----------------------------------------------------------------------------------------------


@prints("tir.ptx_tma_load")
def _bulk_load(gen: CudaExpressions, e: Call) -> str:
    """``(target, map, barrier, multicast mask, coordinates...)``."""
    gen.need(_SECTION)
    target, tensor, barrier, mask, *at = e.args
    multicast = not is_zero(mask)
    rank = len(at)
    name = f"bulk_load_{rank}d{'_multicast' if multicast else ''}"
    names = ", ".join(f"int c{i}" for i in range(rank))
    places = ", ".join(f"%{3 + i}" for i in range(rank))
    inputs = "".join(f', "r"(c{i})' for i in range(rank))
    extra = (".multicast::cluster", f", %{3 + rank}", ', "h"(mask)') if multicast else ("", "", "")
    gen.helper(name, "\n".join([
        f"RX_DEVICE void {name}(const void* to, const CUtensorMap& map, const void* barrier, "
        f"{'unsigned short mask, ' if multicast else ''}{names}) {{",
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{extra[0]} "',
        f'               "[%0], [%1, {{{places}}}], [%2]{extra[1]};"',
        '               ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier))'
        f'{inputs}{extra[2]} : "memory"); }}',
    ]))  # fmt: skip
    args = [target, tensor, barrier, *([mask] if multicast else []), *at]
    return f"{name}({', '.join(gen.expr(a) for a in args)})"


@prints("tir.ptx_tma_store")
def _bulk_store(gen: CudaExpressions, e: Call) -> str:
    """``(map, source, coordinates...)``."""
    gen.need(_SECTION)
    rank = len(e.args) - 2
    name = f"bulk_store_{rank}d"
    names = ", ".join(f"int c{i}" for i in range(rank))
    places = ", ".join(f"%{2 + i}" for i in range(rank))
    inputs = "".join(f', "r"(c{i})' for i in range(rank))
    gen.helper(name, "\n".join([
        f"RX_DEVICE void {name}(const CUtensorMap& map, const void* from, {names}) {{",
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{places}}}], [%1];"',
        f'               ::"l"(&map), "r"(shared_address(from)){inputs} : "memory"); }}',
    ]))  # fmt: skip
    return f"{name}({', '.join(gen.expr(a) for a in e.args)})"


# -- products --------------------------------------------------------------------------------------------------------


def _result_registers(n: int, dtype: str) -> tuple[int, str, str]:
    """(32-bit registers, constraint, C++ type of one) of a thread's share of 64 x n results."""
    count = n // 2 * dt.bits(dtype) // 32
    if dtype == "float32":
        return count, "+f", "float"
    return count, "+r", "int" if dtype == "int32" else "unsigned int"


def _wgmma(gen: CudaExpressions, n: int, a: str, b: str, c: str, transposed: tuple[int, int], a_registers: int) -> str:
    """The device function of one instruction; the name says all that it depends on."""
    if a not in _PTX or b not in _PTX or c not in _PTX:
        raise RelaxishError(f"warpgroup products do not take {a}, {b} and {c}")
    depth = 256 // dt.bits(a)
    count, constraint, kind = _result_registers(n, c)
    form = "rs" if a_registers else "ss"
    name = f"wgmma_{form}_m64n{n}k{depth}_{_PTX[c]}_{_PTX[a]}_{_PTX[b]}_{transposed[0]}{transposed[1]}"
    results = ", ".join(f"%{i}" for i in range(count))
    left = "{" + ", ".join(f"%{count + i}" for i in range(a_registers)) + "}" if a_registers else f"%{count}"
    right = count + (a_registers or 1)
    scale = "p" if c == "int32" else "p, 1, 1"
    if dt.bits(a) == 16:
        scale += f", {transposed[1]}" if a_registers else f", {transposed[0]}, {transposed[1]}"
    elif any(transposed):
        raise RelaxishError("only 16-bit operands may be contiguous along m or n")
    outputs = ", ".join(f'"{constraint}"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(a_registers)) if a_registers else '"l"(a)'
    gen.helper(name, "\n".join([
        f"RX_DEVICE void {name}({kind}* d, {'const unsigned int* a' if a_registers else 'unsigned long long a'}, "
        "unsigned long long b, int add) {",
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{right + 1}, 0;\\n"',
        f'               "wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{_PTX[c]}.{_PTX[a]}.{_PTX[b]} "',
        f'               "{{{results}}}, {left}, %{right}, {scale}; }}"',
        f"               : {outputs}",
        f'               : {inputs}, "l"(b), "r"(add)); }}',
    ]))  # fmt: skip
    return name


def _descriptor(gen: CudaExpressions, fields: Sequence[PrimExpr]) -> str:
    address, leading, stride, swizzle, _ = fields
    numbers = [constant_argument(f, "the layout of an operand") for f in (leading, stride, swizzle)]
    return f"matrix_descriptor({gen.expr(address)}, {numbers[0]}, {numbers[1]}, {_MODES[numbers[2]]})"


def _held(gen: CudaExpressions, data: Var, offset: PrimExpr, dtype: str, kind: str) -> str:
    """Registers of a thread from an offset on (in elements of ``dtype``), as an array of ``kind``."""
    base: str = gen.expr(data)
    if gen.memory_types.get(data) != dtype:  # they may have been declared as vectors
        base = f"(({type_name(dtype)}*){base})"
    at = base if is_zero(offset) else f"({base} + {gen.expr(offset)})"
    return at if type_name(dtype) == kind else f"({kind}*){at}"


@prints("tir.ptx_wgmma_ss")
def _product(gen: CudaExpressions, e: Call) -> str:
    """``wgmma`` with both operands in shared memory."""
    gen.need(_SECTION)
    n, a, b, c = int(e.args[0].value), *(str(x.value) for x in e.args[1:4])
    left, right = e.args[6:11], e.args[11:16]
    name = _wgmma(gen, n, a, b, c, (int(left[4].value), int(right[4].value)), 0)
    results = _held(gen, e.args[4], e.args[5], c, _result_registers(n, c)[2])
    return f"{name}({results}, {_descriptor(gen, left)}, {_descriptor(gen, right)}, {gen.expr(e.args[16])})"


@prints("tir.ptx_wgmma_rs")
def _product_of_registers(gen: CudaExpressions, e: Call) -> str:
    """``wgmma`` with the left operand in four 32-bit registers."""
    gen.need(_SECTION)
    n, a, b, c = int(e.args[0].value), *(str(x.value) for x in e.args[1:4])
    right = e.args[8:13]
    name = _wgmma(gen, n, a, b, c, (0, int(right[4].value)), 4)
    results = _held(gen, e.args[4], e.args[5], c, _result_registers(n, c)[2])
    held = _held(gen, e.args[6], e.args[7], a, "const unsigned int")
    return f"{name}({results}, {held}, {_descriptor(gen, right)}, {gen.expr(e.args[13])})"


@prints("tir.ptx_wgmma_fence_operand")
def _keep(gen: CudaExpressions, e: Call) -> str:
    """An empty ``asm`` that makes the compiler finish all writes of these registers before it."""
    gen.need(_SECTION)
    dtype = dt.element_of(gen.memory_types[e.args[0]])
    count = constant_argument(e.args[2], "a number of registers") * dt.bits(dtype) // 32
    constraint, kind = ("+f", "float") if dtype == "float32" else ("+r", "unsigned int")
    name = f"settle_{constraint[1]}{count}"
    body = "\n".join(f'  asm volatile("" : "{constraint}"(d[{i}]) :: "memory");' for i in range(count))
    gen.helper(name, f"RX_DEVICE void {name}({kind}* d) {{\n{body}\n}}")
    return f"{name}({_held(gen, e.args[0], e.args[1], dtype, kind)})"
