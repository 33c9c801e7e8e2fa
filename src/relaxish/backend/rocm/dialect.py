"""LLVM for AMD devices. Source of names and semantics: LLVM's AMDGPU usage guide."""

from __future__ import annotations

from typing import ClassVar

from ...ir import dtype as dt
from ...ir.prim import Call
from ...support.errors import RelaxishError
from ..common.llvmsource import Dialect
from ..common.llvmsource.expressions import ExpressionWriter
from ..common.llvmsource.types import llvm_type

__all__ = ["AMDGPU"]


class AMDGPU(Dialect):
    """Kernels for the HSA run time."""

    name = "amdgpu"
    triple = "amdgcn-amd-amdhsa"
    convention = "amdgpu_kernel"
    spaces: ClassVar[dict[str, int]] = {"global": 1, "shared": 3, "shared.dyn": 3, "local": 5}

    def kernel_attributes(self, threads: int) -> str:
        return f'"amdgpu-flat-work-group-size"="1,{threads}"'

    def thread_index(self, w: ExpressionWriter, tag: str) -> str:
        where, _, axis = tag.partition(".")
        register = {"threadIdx": "workitem", "blockIdx": "workgroup"}.get(where)
        if register is None:
            raise RelaxishError(f"AMD devices have no threads of the kind {tag}")
        return w.call(f"llvm.amdgcn.{register}.id.{axis}", "i32")

    def barrier(self, w: ExpressionWriter, scope: str) -> None:
        if scope == "warp":
            w.call("llvm.amdgcn.wave.barrier", "void")
        elif scope.startswith("shared"):
            w.line('fence syncscope("workgroup") release')
            w.call("llvm.amdgcn.s.barrier", "void")
            w.line('fence syncscope("workgroup") acquire')
        else:
            raise RelaxishError("a kernel cannot synchronise all its blocks")

    def shuffle(self, w: ExpressionWriter, kind: str, call: Call) -> str:
        value, offset, width = call.args[1:4]
        if dt.lanes(call.dtype) != 1 or dt.bits(call.dtype) != 32:
            raise RelaxishError(f"shuffles move 32 bits, not {call.dtype}")
        low = w.call("llvm.amdgcn.mbcnt.lo", "i32", ("i32", "-1"), ("i32", "0"))
        own = w.call("llvm.amdgcn.mbcnt.hi", "i32", ("i32", "-1"), ("i32", low))
        source = self._source_lane(w, kind, own, w.convert(w.visit(offset), offset.dtype, "int32"), int(width.value))
        word, plain = w.visit(value), llvm_type(call.dtype)
        if plain != "i32":
            word = w.value(f"bitcast {plain} {word} to i32")
        address = w.value(f"shl i32 {source}, 2")
        moved = w.call("llvm.amdgcn.ds.bpermute", "i32", ("i32", address), ("i32", word))
        return moved if plain == "i32" else w.value(f"bitcast i32 {moved} to {plain}")

    def _source_lane(self, w: ExpressionWriter, kind: str, own: str, offset: str, width: int) -> str:
        """The lane to read from; a lane outside of the group of ``width`` reads its own value."""
        start = w.value(f"and i32 {own}, {-width}")
        if kind == "":
            return w.value(f"or i32 {start}, {w.value(f'and i32 {offset}, {width - 1}')}")
        there = w.value(f"{'sub' if kind == '_up' else 'add'} i32 {own}, {offset}")
        group = w.value(f"and i32 {there}, {-width}")
        same = w.value(f"icmp eq i32 {group}, {start}")
        return w.select(same, 1, "i32", there, own)

    def active_mask(self, w: ExpressionWriter, dtype: str) -> str:
        return w.convert(w.call("llvm.amdgcn.ballot.i64", "i64", ("i1", "true")), "uint64", dtype)
