"""Facts about a kernel that its text depends on: which memory is only read, which loops index registers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....ir.node import Node
from ....ir.op import op_name_of
from ....ir.functor import all_nodes, mentions, pre_order_visit
from ....ir.prim import Call, IntImm, Var
from ....support.sequences import of_kind
from ....tir import BufferLoad, BufferStore, PrimFunc
from ....tir.stmt import For

__all__ = ["indexes_registers", "issues_bulk_copies", "read_only"]

# Calls -> positions of pointers that they only read.
_READERS = {"tir.ptx_cp_async": (2,), "tir.ptx_cp_async_bulk": (2,)}
_READ_MASK = 1
_PRODUCTS = ("tir.ptx_mma", "tir.ptx_mma_sp", "tir.tvm_mma_sync")
# (fragment, m, n, k, index, ...)
_WHOLE_FRAGMENTS = ("tir.tvm_load_matrix_sync", "tir.tvm_store_matrix_sync", "tir.tvm_fill_fragment")


def read_only(func: PrimFunc) -> set[Any]:
    """Pointer parameters that the kernel never writes to: only loaded from, or passed on to be read."""
    found = set(func.params)

    def look(node: Node) -> bool:
        match node:
            case BufferStore():
                found.discard(node.buffer.data)
            case Call():
                _discard_written(node, found)
        return True

    pre_order_visit(func.body, look)
    return found


def _discard_written(call: Call, found: set[Any]) -> None:
    name = op_name_of(call)
    if name == "tir.tvm_access_ptr":
        mask = call.args[4]
        if not isinstance(mask, IntImm) or int(mask.value) != _READ_MASK:
            found.discard(call.args[1])
        return
    if name == "tir.address_of":
        found.discard(call.args[0].buffer.data)
        return
    for position, arg in enumerate(call.args):
        if isinstance(arg, Var) and position not in _READERS.get(name, ()):
            found.discard(arg)


def indexes_registers(loop: For, registers: set[Any]) -> bool:
    """Whether the loop's variable is in an index of one of these buffers."""
    for node in all_nodes(loop.body):
        indices: Iterable[Any] = ()
        match node:
            case BufferLoad() | BufferStore() if node.buffer.data in registers:
                indices = node.indices
            case Call():
                indices = _register_indices(node, registers)
        if any(mentions(i, loop.loop_var) for i in indices):
            return True
    return False


def issues_bulk_copies(loop: For) -> bool:
    """Whether the loop's body gives work to the copy engine and computes no products: unrolling it gains nothing."""
    names = {op_name_of(node) for node in of_kind(all_nodes(loop.body), Call)}
    products = any("wgmma" in name or name in _PRODUCTS for name in names)
    return not products and any(name.startswith("tir.ptx_tma_load") for name in names)


def _register_indices(call: Call, registers: set[Any]) -> list[Any]:
    """The offsets into registers among the arguments: behind the pointer, or behind a fragment's shape."""
    whole = op_name_of(call) in _WHOLE_FRAGMENTS
    places = [0] if whole else range(len(call.args) - 1)
    return [
        call.args[p + (4 if whole else 1)]
        for p in places
        if isinstance(call.args[p], Var) and call.args[p] in registers
    ]
