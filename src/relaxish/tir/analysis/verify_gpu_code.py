"""Whether a lowered kernel stays within the limits of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir import dtype as dt
from ...ir.functor import Visitor
from ...ir.prim import Cast, IntImm
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, BufferStore, For

__all__ = ["verify_gpu_code"]

_UNLIMITED = 1 << 62
_THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def verify_gpu_code(func: PrimFunc, constraints: Mapping[str, int]) -> bool:
    """Whether every kernel of a lowered function keeps the given limits.

    Known limits: ``max_local_memory_per_block``, ``max_shared_memory_per_block``, ``max_threads_per_block``,
    ``max_thread_x`` (``_y``, ``_z``), ``max_vthread``, ``max_vector_bytes`` and ``max_kernels``.
    """
    checker = _Checker({name: int(getattr(value, "value", value)) for name, value in constraints.items()})
    checker.visit(func.body)
    return not checker.broken


class _Checker(Visitor):
    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.broken: list[str] = []
        self.depth = 0
        self.kernels = 0
        self._new_kernel()

    def _new_kernel(self) -> None:
        self.local = self.shared = 0
        self.threads: dict[str, int] = {}

    def _demand(self, name: str, value: int) -> None:
        if value > self.limits.get(name, _UNLIMITED):
            self.broken.append(f"{name}: {value}")

    def visit_Allocate(self, node: Allocate) -> None:
        # The body first: an allocation around the threads belongs to the kernel in it.
        self.visit(node.body)
        size = dt.lanes(node.dtype) * max(1, dt.bits(node.dtype) // 8)
        for extent in node.extents:
            size *= extent.value if isinstance(extent, IntImm) else 0
        scope = getattr(node.buffer_var.type_annotation, "storage_scope", "") or ""
        if scope.startswith("local"):
            self.local += size
        elif scope.startswith("shared"):
            self.shared += size
        self._vector(node.dtype)
        if self.depth == 0:
            self._finish_kernel()

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key not in ("thread_extent", "virtual_thread"):
            self.default_visit(node)
            return
        if self.depth == 0:
            self._new_kernel()
            self.kernels += 1
            self._demand("max_kernels", self.kernels)
        extent = node.value.value if isinstance(node.value, IntImm) else 0
        self._thread(node.node.var.name if node.attr_key == "virtual_thread" else node.node.thread_tag, extent)
        self.depth += 1
        self.visit(node.body)
        self.depth -= 1
        if self.depth == 0:
            self._finish_kernel()

    def _thread(self, name: str, extent: int) -> None:
        if name.startswith("vthread"):
            self._demand("max_vthread", extent)
        elif name in _THREADS:
            if self.threads.setdefault(name, extent) != extent:
                self.broken.append(f"{name} has two extents")
            self._demand(f"max_thread_{name[-1]}", extent)

    def _finish_kernel(self) -> None:
        product = 1
        for extent in self.threads.values():
            product *= extent
        self._demand("max_threads_per_block", product)
        self._demand("max_local_memory_per_block", self.local)
        self._demand("max_shared_memory_per_block", self.shared)

    def visit_For(self, node: For) -> None:
        if node.loop_var.name == "vthread.s":
            self._demand("max_vthread", node.extent.value if isinstance(node.extent, IntImm) else 0)
        self.default_visit(node)

    def _vector(self, dtype: str) -> None:
        if dt.lanes(dtype) > 1:
            self._demand("max_vector_bytes", dt.lanes(dtype) * dt.bits(dtype) // 8)

    def visit_Cast(self, node: Cast) -> None:
        self._vector(node.dtype)
        self.default_visit(node)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self._vector(node.dtype)
        self.default_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self._vector(node.value.dtype)
        self.default_visit(node)
