"""Whether a device program keeps within the limits of a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import dtype as dt
from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...ir.prim import Cast, const_int
from ...ir.types import PointerType
from ...support.sequences import of_kind
from ..buffer import Buffer
from ..expr import BufferLoad, IntImm
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, Block, BufferStore, For

__all__ = ["verify_gpu_code"]

_LIMITS = (
    "max_local_memory_per_block",
    "max_shared_memory_per_block",
    "max_static_shared_memory_per_block",
    "max_threads_per_block",
    "max_thread_x",
    "max_thread_y",
    "max_thread_z",
    "max_vthread",
    "max_vector_bytes",
    "max_kernels",
)
_THREADS = {
    "threadIdx.x": "max_thread_x",
    "threadIdx.y": "max_thread_y",
    "threadIdx.z": "max_thread_z",
    "vthread": "max_vthread",
}
# What the pass that injects virtual threads calls the loops it makes of them.
_VTHREAD_LOOPS = ("vthread.s", "vthread.x.s", "vthread.y.s", "vthread.z.s")


def _bytes(dtype: str) -> int:
    return dt.lanes(dtype) * max(1, dt.bits(dtype) // 8)


class _Usage(Visitor):
    """Adds up what each kernel (outermost thread scope) uses and compares it with the limits."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = limits
        self.ok = True
        self.depth = 0
        self.kernels = 0
        self._reset()

    def _reset(self) -> None:
        self.extents: dict[str, int] = {}
        self.shared = 0
        self.static = 0
        self.local = 0

    def _need(self, limit: str, value: int) -> None:
        if limit in self.limits and value > self.limits[limit]:
            self.ok = False

    def _thread_scope(self, name: str, extent: PrimExpr, node: For | AttrStmt) -> None:
        if not isinstance(extent, IntImm):
            raise CheckValueError(f"the extent of {name} must be known to verify GPU code, it is {extent}")
        if self.depth == 0:
            self._reset()
            self.kernels += 1
        if name in _THREADS:
            length = int(extent.value)
            if self.extents.setdefault(name, length) != length:
                self.ok = False
            self._need(_THREADS[name], length)
        self.depth += 1
        self.visit(node.body)
        self.depth -= 1
        if self.depth == 0:
            self._leave_kernel()

    def _leave_kernel(self) -> None:
        threads = 1
        for length in self.extents.values():
            threads *= length
        self._need("max_threads_per_block", threads)
        self._need("max_local_memory_per_block", self.local)
        self._need("max_shared_memory_per_block", self.shared)
        self._need("max_static_shared_memory_per_block", self.static)
        self._need("max_kernels", self.kernels)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key in ("thread_extent", "virtual_thread"):
            tag = node.node.thread_tag
            self._thread_scope(tag if tag.startswith("threadIdx") else node.node.var.name, node.value, node)
        else:
            self.visit(node.body)

    def visit_For(self, node: For) -> None:
        if node.thread_binding is not None:
            tag = node.thread_binding.thread_tag
            self._thread_scope("vthread" if tag.startswith("vthread") else tag, node.extent, node)
            return
        if node.loop_var.name in _VTHREAD_LOOPS and isinstance(node.extent, IntImm):
            self._need("max_vthread", int(node.extent.value))
        self.visit(node.body)

    def visit_Allocate(self, node: Allocate) -> None:
        # The body first: an allocation around the threads belongs to the kernel in it.
        self.visit(node.body)
        pointer = node.buffer_var.type_annotation
        self._count(pointer.storage_scope if isinstance(pointer, PointerType) else "", node.dtype, node.extents)
        self._vector(node.dtype)
        if self.depth == 0:
            self._leave_kernel()

    def visit_Block(self, node: Block) -> None:
        if node.init is not None:
            self.visit(node.init)
        self.visit(node.body)
        for buffer in node.alloc_buffers:
            self._count(buffer.scope(), buffer.dtype, buffer.shape)
        if node.alloc_buffers and self.depth == 0:
            self._leave_kernel()

    def _count(self, scope: str, dtype: str, extents: Sequence[PrimExpr]) -> None:
        size = _bytes(dtype)
        for extent in extents:
            size *= const_int(extent, 1)
        if scope.startswith("shared"):
            self.shared += size
            self.static += size if scope == "shared" else 0
        elif scope.startswith("local"):
            self.local += size

    def _vector(self, dtype: str) -> None:
        if dt.lanes(dtype) > 1:
            self._need("max_vector_bytes", _bytes(dtype))

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self._vector(node.dtype)
        self.visit(node.indices)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self._vector(node.value.dtype)
        self.visit(node.value)
        self.visit(node.indices)

    def visit_Cast(self, node: Cast) -> None:
        self._vector(node.dtype)
        self.visit(node.value)

    def visit_Buffer(self, node: Buffer) -> None:
        pass


def verify_gpu_code(func: PrimFunc | IRModule, constraints: Mapping[str, int]) -> bool:
    """Whether every kernel keeps within ``constraints``.

    Keys: ``max_threads_per_block``, ``max_thread_x`` (``_y``, ``_z``), ``max_vthread``, ``max_shared_memory_per_block``,
    ``max_static_shared_memory_per_block`` (without ``shared.dyn``), ``max_local_memory_per_block`` (all in bytes),
    ``max_vector_bytes`` and ``max_kernels``; what is absent is unlimited.

    >>> from relaxish.script import tir as T
    >>> @T.prim_func
    ... def f(A: T.Buffer((256,), "float32")):
    ...     for i in T.thread_binding(256, thread="threadIdx.x"):
    ...         A[i] = 0.0
    >>> verify_gpu_code(f, {"max_threads_per_block": 128})
    False
    """
    for key in constraints:
        if key not in _LIMITS:
            raise CheckValueError(f"Invalid check item: {key}; known are {', '.join(_LIMITS)}")
    limits = {key: int(value) for key, value in constraints.items()}
    functions = func.functions.values() if isinstance(func, IRModule) else [func]
    for one in of_kind(functions, PrimFunc):
        usage = _Usage(limits)
        usage.visit(one.body)
        if not usage.ok:
            return False
    return True
