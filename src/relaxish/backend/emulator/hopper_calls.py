"""Hopper's instructions in thread functions: barriers in shared memory, tensor copies, products of four warps.

Bulk loads are completed as late as the program allows, so that a missing wait shows. Products and bulk stores are
executed at once, but what they read and write counts as in use until their thread has waited for their group
(:mod:`.runtime_code.groups`). The arguments of the intrinsics are documented in :mod:`relaxish.tir.op_hopper`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.expr import PrimExpr
from ...ir.prim import Call, Cast, IntImm, Let, Var
from ...support.errors import RelaxishError
from . import hopper_helpers, layout
from .hopper_helpers import Operand
from .table import emulates

if TYPE_CHECKING:
    from .thread_function import Place, ThreadFunction

__all__: list[str] = []

_MOST_COORDINATES = 5
_UNIT = 16
"""Bytes that a product reads at a time."""
_OPERAND, _RESULT = 1, 2
"""Forms in which products use registers: results of equal shape are in order by themselves."""


def _barrier(gen: ThreadFunction, pointer: PrimExpr) -> PrimExpr:
    gen.clocks = True
    return gen.as_number(gen.place(pointer).address)


def _number(gen: ThreadFunction, value: PrimExpr) -> PrimExpr:
    return gen.integer(gen.visit(value))


@emulates("ptx_tma_prefetch", "ptx_wgmma_fence_operand")
def _nothing(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    """Intrinsics without an effect in the emulator; the last one only keeps the compiler from moving code."""
    return IntImm("int32", 0)


# ---- what orders asynchronous work; without checks there is none


def _ordering(name: str) -> Callable[[ThreadFunction, Any], Any]:
    def entry(gen: ThreadFunction, call: Call) -> PrimExpr:
        if not gen.checked:
            return IntImm("int32", 0)
        gen.proxies = True
        return gen.call(name, *[_number(gen, a) for a in call.args])

    return entry


for _name, _function in {
    "fence_proxy_async": "rx_fence_proxy", "tma_store_commit": "rx_commit_stores", "tma_store_wait": "rx_wait_stores",
    "wgmma_fence": "rx_fence_products", "wgmma_commit": "rx_commit_products", "wgmma_wait": "rx_wait_products",
}.items():  # fmt: skip
    emulates(f"ptx_{_name}")(_ordering(_function))


@emulates("ptx_setmaxnreg")
def _set_registers(gen: ThreadFunction, call: Call) -> PrimExpr:
    if not gen.checked:
        return IntImm("int32", 0)
    count, increase = (_number(gen, a) for a in call.args)
    return gen.call("rx_set_registers", count, increase, gen.site())


@emulates("ptx_mbarrier_init")
def _init(gen: ThreadFunction, call: Call) -> PrimExpr:
    return gen.call("rx_mbarrier_init", _barrier(gen, call.args[0]), _number(gen, call.args[1]), gen.site())


@emulates("ptx_mbarrier_arrive")
def _arrive(gen: ThreadFunction, call: Call) -> PrimExpr:
    address = _barrier(gen, call.args[0])
    if len(call.args) > 1:
        address = gen.call("rx_arrive_remote", address, _number(gen, call.args[1]), gen.site())
    return gen.call("rx_mbarrier_arrive", address, 1, 0, gen.site())


@emulates("ptx_mbarrier_arrive_expect_tx")
def _expect(gen: ThreadFunction, call: Call) -> PrimExpr:
    return gen.call("rx_mbarrier_arrive", _barrier(gen, call.args[0]), 1, _number(gen, call.args[1]), gen.site())


@emulates("ptx_mbarrier_wait_parity")
def _wait(gen: ThreadFunction, call: Call) -> PrimExpr:
    return gen.call("rx_mbarrier_wait", _barrier(gen, call.args[0]), _number(gen, call.args[1]), gen.site())


@emulates("ptx_mbarrier_try_wait")
def _try_wait(gen: ThreadFunction, call: Call) -> PrimExpr:
    done = gen.call("rx_mbarrier_test", _barrier(gen, call.args[0]), _number(gen, call.args[1]), gen.site())
    return done != IntImm("int64", 0)


@emulates("ptx_fence_mbarrier_init")
def _fence_barriers(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return gen.call("rx_fence_barriers") if gen.checked else IntImm("int32", 0)


# ---- tensor copies


def _map(gen: ThreadFunction, value: PrimExpr) -> PrimExpr:
    return gen.as_number(value)


def _coordinates(gen: ThreadFunction, values: Sequence[PrimExpr]) -> list[Any]:
    made = [_number(gen, v) for v in values]
    return made + [gen.integer(0)] * (_MOST_COORDINATES - len(made))


@emulates("ptx_tma_load")
def _load(gen: ThreadFunction, call: Call) -> PrimExpr:
    target, tensor, barrier, mask, *first = call.args
    place = gen.place(target)
    _note_bytes(gen, place)
    site = _site(gen, place.data, layout.SITE_STORE)
    at = place.index * gen.bytes_of(place.dtype)
    origin = _site(gen, tensor, layout.SITE_LOAD)
    return gen.call(
        "rx_tma_load", gen.as_number(place.data), at, _map(gen, tensor), _barrier(gen, barrier), _number(gen, mask),
        *_coordinates(gen, first), site, origin,
    )  # fmt: skip


@emulates("ptx_tma_store")
def _store(gen: ThreadFunction, call: Call) -> PrimExpr:
    tensor, source, *first = call.args
    place = gen.place(source)
    at = place.index * gen.bytes_of(place.dtype)
    _note_bytes(gen, place)
    gen.proxies = True
    site, target = _site(gen, place.data, layout.SITE_BULK_READ), _site(gen, tensor, layout.SITE_STORE)
    gen.memory_of[tensor].written = True
    return gen.call(
        "rx_tma_store", gen.as_number(place.data), at, _map(gen, tensor), *_coordinates(gen, first), site, target
    )


def _site(gen: ThreadFunction, data: PrimExpr, kind: int, align: int = 127) -> int:
    """The site of a bulk copy's access, counted in bytes; the caller says in which units the memory is accessed."""
    memory = gen.memory_of[data]
    return gen.site(buffer=memory.name, memory=memory.number, unit=1, align=align if memory.shared else 0, kind=kind)


def _note_bytes(gen: ThreadFunction, place: Place) -> None:
    """Note that a memory is accessed in pieces of 16 bytes. Raises RelaxishError unless it is shared memory."""
    memory = gen.memory_of.get(place.data)
    if memory is None or not memory.shared:
        raise RelaxishError(f"a tensor copy goes to or from shared memory, which {place.data.name} is not")
    memory.note(16, True)


# ---- products of four warps


def _wide(dtype: str) -> str:
    return "int32" if dtype == "int32" else "float32"


def _operand(
    gen: ThreadFunction, fields: tuple[Call, IntImm, IntImm, IntImm, IntImm], dtype: str
) -> tuple[Operand, list[Any], Any]:
    """The constant properties of an operand in shared memory, the arguments that the helper takes for it, and its check."""
    pointer, leading, stride, swizzle, by_rows = fields
    place = gen.place(pointer)
    site = gen.access(type(place)(place.data, dtype, place.index), layout.SITE_PRODUCT)
    gen.memory_of[place.data].note(_UNIT, False)
    start = place.index * gen.bytes_of(place.dtype)
    made = Operand(dtype, int(swizzle.value), bool(by_rows.value))
    distances = [_number(gen, leading), _number(gen, stride)]
    check = gen.call("rx_check_operand", start, *distances, int(swizzle.value), site)
    return made, [place.data, start, *distances, gen.integer(site)], check


def _product(gen: ThreadFunction, call: Call, in_registers: bool) -> PrimExpr:
    n, a_dtype, b_dtype, c_dtype = call.args[0], *(str(t.value) for t in call.args[1:4])
    result = gen.place(call.args[4], call.args[5], c_dtype)
    if in_registers:
        held = gen.place(call.args[6], call.args[7], a_dtype)
        a: Operand | str = a_dtype
        a_args = [held.data, held.index, gen.integer(0), gen.integer(0), gen.integer(0)]
        checks, rest = [], call.args[8:]
    else:
        a, a_args, check = _operand(gen, call.args[6:11], a_dtype)
        checks, rest = [check], call.args[11:]
    b, b_args, check = _operand(gen, rest[:5], b_dtype)
    checks.append(check)
    count = int(n.value)
    key = a if isinstance(a, str) else a.key
    suffix = "_checked" if gen.checked else ""
    symbol = gen.helper(
        f"rx_wgmma_{count}_{key}_{b.key}_{c_dtype}{suffix}",
        lambda: hopper_helpers.warpgroup_product(count, a, b, c_dtype, _wide(c_dtype), gen.checked),
    )
    add = gen.integer(gen.visit(rest[5]))
    made: Any = gen.call(symbol, result.data, result.index, add, *a_args, *b_args, gen.site(), dtype="int32")
    if not gen.checked:
        return made
    gen.proxies = True
    before = [_uses(gen, result, count // 2, _RESULT + count)]
    if in_registers:
        before.append(_uses(gen, held, 16 // gen.bytes_of(a_dtype), _OPERAND))
    before += checks
    before.append(gen.call("rx_join_product", gen.site()))
    for statement in reversed(before):
        made = Let(Var("done", "int64"), statement, made)
    return made


def _uses(gen: ThreadFunction, place: Place, count: int, form: int) -> PrimExpr:
    """Mark registers as used by a product: ordinary code may not touch them until its group is waited for."""
    first = gen.registers.get(place.data)
    if first is None:
        raise RelaxishError(
            f"a product's registers are a local array, which {place.data.name} is not (kernel {gen.name})"
        )
    unit = gen.bytes_of(place.dtype)
    site = gen.site(buffer=place.data.name, unit=unit, dtype=place.dtype)
    return gen.call("rx_use_registers", first, place.index * unit, count * unit, form, site)


@emulates("ptx_wgmma_ss")
def _wgmma_ss(gen: ThreadFunction, call: Call) -> PrimExpr:
    return _product(gen, call, in_registers=False)


@emulates("ptx_wgmma_rs")
def _wgmma_rs(gen: ThreadFunction, call: Call) -> PrimExpr:
    return _product(gen, call, in_registers=True)


# ---- who am I


@emulates("ptx_elect_sync")
def _elect(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return gen.call("rx_elect", gen.site()) != IntImm("int64", 0)


@emulates("ptx_warp_group_index")
def _warp_group(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return Cast("int32", gen.call("rx_warp_group"))


@emulates("ptx_cluster_rank")
def _rank(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return Cast("int32", gen.call("rx_rank"))


@emulates("ptx_cluster_arrive")
def _cluster_arrive(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    gen.clocks = True
    return gen.call("rx_cluster_arrive", int(id(gen.statement) in gen.meetings), gen.site())


@emulates("ptx_cluster_arrive_relaxed")
def _cluster_arrive_relaxed(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return gen.call("rx_cluster_arrive_relaxed", gen.site())


@emulates("ptx_cluster_wait")
def _cluster_wait(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return gen.call("rx_cluster_wait", gen.site())


@emulates("ptx_cluster_read")
def _cluster_read(gen: ThreadFunction, call: Call) -> PrimExpr:
    """``(registers, shared, rank)``: 16 bytes from the place in that block's shared memory."""
    target, source, rank = call.args
    to, place = gen.place(target), gen.place(source)
    _note_bytes(gen, place)
    gen.clocks = True
    at = place.index * gen.bytes_of(place.dtype)
    site = _site(gen, place.data, layout.SITE_LOAD, align=15)
    return gen.call(
        "rx_cluster_read", gen.as_number(to.address), gen.as_number(place.data), at, _number(gen, rank), site
    )
