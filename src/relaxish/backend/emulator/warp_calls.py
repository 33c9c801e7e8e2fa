"""Barriers, shuffles, votes and atomic updates in thread functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import dtype as dt
from ...ir.expr import ExprLike, PrimExpr
from ...ir.op import Op
from ...ir.prim import Call, Cast, IntImm, Let, Shuffle, Var
from ...support.errors import RelaxishError
from . import layout
from .matrix_helpers import atomic_update
from .table import emulates, emulates_function

if TYPE_CHECKING:
    from .thread_function import ThreadFunction

__all__: list[str] = []

_ALL_LANES = 0xFFFFFFFF
_SHUFFLES = {"shuffle": 0, "shuffle_up": 1, "shuffle_down": 2, "shuffle_xor": 3}


@emulates("tvm_storage_sync")
def _sync(gen: ThreadFunction, call: Call) -> PrimExpr:
    scope = call.args[0].value
    if scope == "warp":
        return _sync_warp(gen, _ALL_LANES)
    if scope == "global":
        gen.grid_barrier = True
        return gen.call("rx_grid_barrier", gen.site())
    if scope not in ("shared", "shared.dyn"):
        raise RelaxishError(f"the emulator's threads cannot wait for memory of scope {scope}")
    return gen.call("rx_barrier", 0, 0, 1, gen.site())


def _sync_warp(gen: ThreadFunction, mask: ExprLike) -> PrimExpr:
    gen.clocks = True
    return gen.call("rx_sync_warp", gen.integer(mask), gen.site())


@emulates_function("__syncthreads")
def _sync_threads(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return gen.call("rx_barrier", 0, 0, 1, gen.site())


@emulates_function("__syncwarp")
def _sync_lanes(gen: ThreadFunction, call: Call) -> PrimExpr:
    return _sync_warp(gen, gen.visit(call.args[1]) if len(call.args) > 1 else _ALL_LANES)


@emulates("ptx_named_barrier_sync", "ptx_named_barrier_arrive")
def _named(gen: ThreadFunction, call: Call) -> PrimExpr:
    number, threads = (gen.integer(gen.visit(a)) for a in call.args)
    gen.clocks = True
    return gen.call("rx_barrier", number, threads, int(call.op.name.endswith("sync")), gen.site())


# ---- shuffles


def _bits(gen: ThreadFunction, value: PrimExpr) -> PrimExpr:
    """A value of at most 64 bits as int64."""
    dtype = value.dtype
    if dtype == "int64":
        return value
    total = dt.bits(dtype) * dt.lanes(dtype)
    if dt.lanes(dtype) > 1 or not (dt.is_int(dtype) or dt.is_uint(dtype) or dtype == "bool"):
        value = Call(f"uint{total}", Op.get("tir.reinterpret"), [value])
    return Cast("int64", value)


def _value(bits: PrimExpr, dtype: str) -> PrimExpr:
    if dtype == "int64":
        return bits
    if dt.lanes(dtype) == 1 and (dt.is_int(dtype) or dt.is_uint(dtype) or dtype == "bool"):
        return Cast(dtype, bits)
    total = dt.bits(dtype) * dt.lanes(dtype)
    return Call(dtype, Op.get("tir.reinterpret"), [Cast(f"uint{total}", bits)])


def _shuffled(gen: ThreadFunction, kind: int, args: list[Any]) -> PrimExpr:
    mask, value, lane, width = args
    dtype = value.dtype
    if dt.bits(dtype) * dt.lanes(dtype) > 64:
        lanes = [IntImm("int32", i) for i in range(dt.lanes(dtype))]
        parts = [_shuffled(gen, kind, [mask, Shuffle([value], [i]), lane, width]) for i in lanes]
        return Shuffle(parts, lanes)
    numbers = [gen.integer(Cast("uint32", mask) if mask.dtype == "int32" else mask), _bits(gen, value)]
    rest = [gen.integer(lane), gen.integer(width)]
    return _value(gen.call("rx_shuffle", kind, *numbers, *rest, gen.site()), dtype)


@emulates("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down", "tvm_warp_shuffle_xor")
def _shuffle(gen: ThreadFunction, call: Call) -> PrimExpr:
    kind = _SHUFFLES[call.op.name.removeprefix("tir.tvm_warp_")]
    return _shuffled(gen, kind, [gen.visit(a) for a in call.args[:4]])


@emulates("cuda.__shfl_sync", "cuda.__shfl_up_sync", "cuda.__shfl_down_sync", "cuda.__shfl_xor_sync")
def _device_shuffle(gen: ThreadFunction, call: Call) -> PrimExpr:
    middle = call.op.name.removeprefix("tir.cuda.__shfl").removesuffix("sync").strip("_")
    return _shuffled(
        gen, _SHUFFLES["shuffle_" + middle if middle else "shuffle"], [gen.visit(a) for a in call.args[:4]]
    )


@emulates_function("__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync")
def _named_shuffle(gen: ThreadFunction, call: Call) -> PrimExpr:
    middle = call.args[0].value.removeprefix("__shfl").removesuffix("sync").strip("_")
    args = [gen.visit(a) for a in call.args[1:]]
    args = args if len(args) == 4 else [*args, IntImm("int32", 32)]
    return _shuffled(gen, _SHUFFLES["shuffle_" + middle if middle else "shuffle"], args)


# ---- votes


@emulates("tvm_warp_activemask", "cuda.__activemask")
def _active(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return Cast(call.dtype, gen.call("rx_active_mask", gen.site()))


@emulates_function("__activemask")
def _active_by_name(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return _active(gen, call)


@emulates_function("__ballot_sync", "__any_sync", "__all_sync")
def _vote(gen: ThreadFunction, call: Call) -> PrimExpr:
    mask, flag = (gen.visit(a) for a in call.args[1:3])
    flag = flag if flag.dtype == "bool" else flag != 0
    wanted = gen.integer(Cast("uint32", mask) if mask.dtype == "int32" else mask)
    name = call.args[0].value
    if name == "__all_sync":
        # All lanes agree exactly where no lane dissents.
        return Cast(call.dtype, gen.call("rx_ballot", wanted, Cast("int64", ~flag), gen.site()) == 0)
    found = gen.call("rx_ballot", wanted, Cast("int64", flag), gen.site())
    return Cast(call.dtype, found if name == "__ballot_sync" else found != 0)


# ---- atomic updates


_ATOMICS = ("Add", "Sub", "Max", "Min", "Exch", "Inc", "Dec", "And", "Or", "Xor", "CAS")
_SCOPES = ("", "_block", "_system")


@emulates_function(*(f"atomic{how}{scope}" for how in _ATOMICS for scope in _SCOPES))
def _atomic(gen: ThreadFunction, call: Call) -> PrimExpr:
    """``(address, value)`` or ``(address, expected, value)``; the value of the call is what was there before.

    Threads run in turns: it needs no lock. CUDA C++ Programming Guide, "Atomic Functions".
    """
    how = call.args[0].value.removeprefix("atomic").split("_")[0].lower()
    place, values = gen.place(call.args[1]), [gen.visit(a) for a in call.args[2:]]
    if not gen.local_size.get(place.data):
        gen.atomics = True
    dtype = place.dtype
    wide = "float64" if dt.is_float(dtype) or dtype == "bfloat16" else "int64"
    if len(values) == 1:
        values.insert(0, values[0])
    symbol = gen.helper(f"rx_atomic_{how}_{dtype}", lambda: atomic_update(how, dtype, wide))
    index = place.index
    if gen.checked:
        index = gen.call("rx_check", index, 1, gen.access(place, layout.SITE_ATOMIC, gen.bytes_of(dtype)))
    update: Any = gen.call(symbol, place.data, index, *(Cast(wide, v) for v in values), dtype="int32")
    if gen.checked:
        met = Var("met", "int64")
        update = Let(met, gen.call("rx_meet_at", gen.as_number(place.address)), update)
    before = gen.word(layout.FIBER_ANSWER)
    if wide == "float64":
        before = Cast("float32", Call("float64", Op.get("tir.reinterpret"), [before]))
        if dtype == "float64":
            before = Call("float64", Op.get("tir.reinterpret"), [gen.word(layout.FIBER_ANSWER)])
    return Let(Var("done", "int32"), update, before if before.dtype == call.dtype else Cast(call.dtype, before))


@emulates_function("__threadfence", "__threadfence_block", "__threadfence_system")
def _fence(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return gen.call("rx_fence_memory") if gen.checked else IntImm("int32", 0)
