"""CUDA C++ from lowered device functions.

A device function comes out of host/device splitting: flat buffers, thread extents as attributes, storage scopes on
pointers. Before and after::

    T.launch_thread("blockIdx.x", 4)                 extern "C" __global__ void __launch_bounds__(64) kernel(
    T.launch_thread("threadIdx.x", 64)                   const float* __restrict__ A, float* __restrict__ B) {
    B[bx * 64 + tx] = A[bx * 64 + tx] + 1.0           B[(int)blockIdx.x * 64 + (int)threadIdx.x] = ...
"""

from __future__ import annotations

import re
import struct
from math import prod
from typing import Any

import numpy as np

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.module import IRModule
from ....ir.prim import IntImm, Var, const_int, is_zero
from ....ir.types import PointerType, PrimType
from ....support.errors import RelaxishError
from ....tir import ForKind, PrimFunc
from ....tir.stmt import (
    Allocate, AllocateConst, AssertStmt, AttrStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt,
)  # fmt: skip
from ...common.csource import Piece, device_functions
from .expr import CudaExpressions
from .matrix_calls import FRAGMENT_SCOPES, fragment_element
from .preamble import preamble
from .table import load_printers
from .types import constant, is_nibble, section_of, size_of, type_name
from .usage import indexes_registers, issues_bulk_copies, read_only

__all__ = ["cuda_source"]

# Loops of so many steps are unrolled where they index registers; larger arrays are not in registers anyway.
_UNROLLED_STEPS = 1024
_REGISTER_BYTES = 1024


def cuda_source(mod: IRModule) -> str:
    """One source file for all device functions of a module."""
    load_printers()
    printer = CudaPrinter()
    kernels = [printer.kernel(name, func) for name, func in device_functions(mod)]
    functions = [printer.helpers[name] for name in sorted(printer.helpers)]
    return "\n".join([preamble(printer.features), *functions, *kernels])


class CudaPrinter(CudaExpressions):
    """Kernels as CUDA C++."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = {"x": 1, "y": 1, "z": 1}
        self.fragments: dict[Any, dict[str, str]] = {}
        self.alignments: dict[Any, int] = {}
        self.private: set[Any] = set()
        self.registers: set[Any] = set()
        self.min_blocks = 0

    def _kernel(self, name: str, func: PrimFunc) -> str:
        self.name, self.constants = name, read_only(func)
        self.need("base")
        params = [self.parameter(p) for p in func.params]
        self.visit(func.body)
        head = f'extern "C" __global__ void {self._bounds()}{name}({", ".join(params)}) {{'
        return "\n".join([head, *self.lines, "}", ""])

    def _bounds(self) -> str:
        total = prod(self.threads.values())
        if not total:
            return ""
        return f"__launch_bounds__({total}{f', {self.min_blocks}' if self.min_blocks else ''}) "

    def parameter(self, param: Var) -> str:
        name = self.bind(param)
        kind = param.type_annotation
        if not isinstance(kind, PointerType):
            self.uses(param.dtype)
            return f"{type_name(param.dtype)} {name}"
        if is_tensor_map(kind):
            self.need("hopper")
            return f"const __grid_constant__ CUtensorMap {name}"
        element = kind.element_type.dtype if isinstance(kind.element_type, PrimType) else "uint8"
        element = "uint8" if element in ("void", "", "handle") else element
        self._remember(param, element)
        return (
            f"{'const ' if param in self.constants else ''}{type_name(self.memory_types[param])}* __restrict__ {name}"
        )

    def _remember(self, var: PrimExpr, dtype: str) -> None:
        """Record the element type of a pointer; elements of 4 bits are declared as bytes."""
        self.uses(dtype)
        if is_nibble(dtype):
            self.nibbles.add(var)
        self.memory_types[var] = "uint8" if is_nibble(dtype) else dtype

    # -- control -------------------------------------------------------------------------------------------

    def visit_For(self, loop: For) -> None:
        if loop.kind in (ForKind.THREAD_BINDING, ForKind.VECTORIZED):
            raise RelaxishError(f"the loop {loop.loop_var.name} must be lowered before code generation")
        super().visit_For(loop)

    def loop_end(self, loop: For, first: Piece, extent: Piece) -> Piece:
        return Piece(f"({first}) + ({extent})")

    def hint(self, loop: For) -> None:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        if loop.kind == ForKind.UNROLLED or self._fills_registers(loop):
            self.unroll_hint()
        elif issues_bulk_copies(loop):
            self.line("#pragma unroll 1")

    def _fills_registers(self, loop: For) -> bool:
        """Whether memory in registers is indexed by the loop: not unrolled, it would not stay in registers."""
        short = isinstance(loop.extent, IntImm) and loop.extent.value <= _UNROLLED_STEPS
        return short and indexes_registers(loop, self.registers)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self.block(f"if ({self.expr(stmt.condition)})", stmt.then_case)
        if stmt.else_case is not None:
            self.block("else", stmt.else_case)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        value = self.expr(stmt.value)
        name = self.bind(stmt.var)
        kind = type_name(stmt.var.dtype)
        if stmt.var.dtype == "handle":
            annotation = stmt.var.type_annotation
            element = annotation.element_type if isinstance(annotation, PointerType) else None
            if isinstance(element, PrimType) and element.dtype not in ("void", ""):
                self._remember(stmt.var, element.dtype)
                self.pointer_alignments[stmt.var] = self.address_alignment(stmt.value, element.dtype)
                kind = f"{type_name(self.memory_types[stmt.var])}*"
                value = Piece(f"({kind})({value})")
        elif dt.is_int(stmt.var.dtype) and dt.lanes(stmt.var.dtype) == 1:
            self.analyzer.bind(stmt.var, stmt.value, True)
        self.line(f"{kind} {name} = {value};")
        self.visit(stmt.body)

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        self.need("assert")
        message = self.expr(stmt.message) if stmt.message.dtype == "handle" else '"assertion failed"'
        self.line(f"if (!({self.expr(stmt.condition)})) assertion_failed({message});")
        self.visit(stmt.body)

    def visit_AttrStmt(self, stmt: Any) -> None:
        key = stmt.attr_key
        if key == "thread_extent":
            self._thread(stmt)
        elif key in ("fragment_shape", "fragment_layout"):
            self.fragments.setdefault(stmt.node, {})[key] = stmt.value.value
        elif key == "min_blocks_per_sm":
            self.min_blocks = int(stmt.value.value)
        elif key == "volatile_scope":
            self.volatile.add(stmt.node)
        elif key == "l2_policy":
            self._keep(stmt)
            return
        elif key == "storage_alignment":
            self.alignments[stmt.node] = int(stmt.value.value)
        elif key in ("async_commit_queue_scope", "async_wait_queue_scope"):
            self._queue(stmt)
            return
        self.visit(stmt.body)

    def _keep(self, stmt: Any) -> None:
        """Loads from a buffer under a policy of the second-level cache: ``"evict_last:0.5"`` keeps half of what they touch."""
        kind, share = str(stmt.value.value).split(":")
        self.need("l2")
        policy = self.supply.fresh(f"{stmt.node.name}_policy")
        self.line(f"unsigned long long {policy};")
        number = struct.pack(">f", float(share)).hex().upper()
        self.line(f'asm("createpolicy.fractional.L2::{kind}.b64 %0, 0f{number};" : "=l"({policy}));')
        before = self.kept.get(stmt.node)
        self.kept[stmt.node] = policy
        self.visit(stmt.body)
        self.kept.pop(stmt.node)
        if before is not None:
            self.kept[stmt.node] = before

    def _queue(self, stmt: Any) -> None:
        """Groups of asynchronous copies; the device has one queue of them."""
        if not is_zero(stmt.value):
            raise RelaxishError("For CUDA, the index of an async queue must be 0.")
        self.need("async")
        if stmt.attr_key == "async_commit_queue_scope":
            self.visit(stmt.body)
            self.line("commit_copies();")
            return
        inner = stmt.body
        if not isinstance(inner.value, IntImm):
            raise RelaxishError("how many groups of copies may be on their way must be constant")
        self.line(f"wait_copies<{inner.value.value}>();")
        self.visit(inner.body)

    def _thread(self, stmt: AttrStmt) -> None:
        var, tag = stmt.node.var, stmt.node.thread_tag
        kind = "" if var.dtype == "int32" else f"({type_name(var.dtype)})"
        if tag.startswith("clusterIdx."):
            self.need("cluster")
            self.names[var] = Piece(f"{kind}cluster_block_{tag[-1]}()")
        elif re.fullmatch(r"(threadIdx|blockIdx)\.[xyz]", tag):
            self.names[var] = Piece(f"({kind}(int){tag})" if kind else f"((int){tag})")
        else:
            raise RelaxishError(f"CUDA has no thread index {tag}")
        self.analyzer.bind(var, Range.from_min_extent(0, stmt.value), True)
        if tag.startswith("threadIdx."):
            axis = tag[-1]
            extent = const_int(stmt.value, 0)
            self.threads[axis] = max(self.threads[axis], extent) if extent else 0

    # -- memory --------------------------------------------------------------------------------------------

    def visit_Allocate(self, stmt: Allocate) -> None:
        self.names.pop(stmt.buffer_var, None)  # memory of another branch
        super().visit_Allocate(stmt)

    def allocate(self, stmt: Allocate, scope: str) -> None:
        name = self.bind(stmt.buffer_var)
        self._remember(stmt.buffer_var, stmt.dtype)
        kind = type_name(self.memory_types[stmt.buffer_var])
        align = self.alignments.get(stmt.buffer_var, 0)
        if scope == "shared.dyn":
            self.line(f"extern __shared__ __align__(1024) unsigned char {name}_bytes[];")
            self.line(f"{kind}* {name} = ({kind}*){name}_bytes;")
        elif scope in FRAGMENT_SCOPES:
            self._fragment_array(stmt, name, scope)
        elif scope == "shared":
            self.line(f"__shared__ __align__({max(16, align)}) {kind} {name}[{self._extent(stmt)}];")
        elif scope.startswith(("local", "global")):
            self.private.add(stmt.buffer_var)
            if _elements(stmt) * size_of(stmt.dtype) <= _REGISTER_BYTES:
                self.registers.add(stmt.buffer_var)
            self.line(f"{_local_alignment(stmt, self._extent(stmt), align)}{kind} {name}[{self._extent(stmt)}];")
        else:
            raise RelaxishError(f"CUDA code generation has no memory of scope {scope}")

    def _extent(self, stmt: Allocate) -> int:
        count = _elements(stmt)
        return (count * dt.lanes(stmt.dtype) + 1) // 2 if is_nibble(stmt.dtype) else count

    def visit_AllocateConst(self, stmt: AllocateConst) -> None:
        if stmt.data is None:
            raise RelaxishError(f"the values of {stmt.buffer_var.name} are kept elsewhere; inline them first")
        name = self.names[stmt.buffer_var] = Piece(self.supply.fresh(f"{self.name}_{stmt.buffer_var.name}"))
        array = stmt.data.numpy() if hasattr(stmt.data, "numpy") else np.asarray(stmt.data)
        dtype = stmt.dtype
        if section_of(dtype) is not None:
            # Types that C++ has no constants of: tables of their bits.
            dtype = f"uint{8 * array.dtype.itemsize}"
            array = np.ascontiguousarray(array).view(dtype)
        self._remember(stmt.buffer_var, dtype)
        texts = ", ".join(constant(v, dtype) for v in array.reshape(-1).tolist())
        self.helper(name, f"__device__ const __align__(16) {type_name(dtype)} {name}[{array.size}] = {{{texts}}};\n")
        self.visit(stmt.body)

    def _fragment_array(self, stmt: Allocate, name: str, scope: str) -> None:
        self.need("wmma")
        facts = self._fragment_facts(stmt)
        m, n, k = (int(v) for v in facts["fragment_shape"].split(","))
        size = {"wmma.matrix_a": m * k, "wmma.matrix_b": k * n}.get(scope, m * n)
        layout = f", nvcuda::wmma::{facts['fragment_layout']}" if scope != "wmma.accumulator" else ""
        kind = fragment_element(stmt.dtype, scope)
        self.memory_types[stmt.buffer_var] = stmt.dtype
        self.registers.add(stmt.buffer_var)
        self.line(
            f"nvcuda::wmma::fragment<nvcuda::wmma::{FRAGMENT_SCOPES[scope]}, {m}, {n}, {k}, {kind}{layout}> "
            f"{name}[{_elements(stmt) // size}];"
        )

    def _fragment_facts(self, stmt: Any) -> dict[str, str]:
        facts = dict(self.fragments.get(stmt.buffer_var, {}))
        inner = stmt.body
        while inner is not None and "fragment_shape" not in facts or _is_fragment_attr(inner, stmt.buffer_var):
            if _is_fragment_attr(inner, stmt.buffer_var):
                facts[inner.attr_key] = inner.value.value
            inner = getattr(inner, "body", None)
        if "fragment_shape" not in facts:
            raise RelaxishError(f"the fragment buffer {stmt.buffer_var.name} has no fragment_shape; run InferFragment")
        return facts

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        (index,) = stmt.indices
        index = self.narrow(index)
        pointer = self.memory(stmt.buffer)
        if is_nibble(stmt.buffer.dtype):
            self._store_nibbles(stmt, pointer, index)
            return
        value, at = self.expr(stmt.value), None
        if stmt.predicate is not None:
            self.line(f"scatter({pointer}, {self.expr(index)}, {value}, {self.expr(stmt.predicate)});")
        elif dt.lanes(index.dtype) == 1 and stmt.buffer.data in self.volatile:
            self.line(f"store_volatile({self.at(pointer, index)}, {value});")
        elif dt.lanes(index.dtype) == 1:
            self.line(f"{pointer}[{self.expr(index)}] = {value};")
        elif (at := self.consecutive(stmt.buffer, index)) is not None:
            kind, align = self.aligned_vector(stmt.buffer, stmt.value.dtype, at)
            self.line(f"store<{kind}{align}>({self.at(pointer, at)}, {value});")
        elif dt.lanes(stmt.buffer.dtype) == 1:
            self.line(f"scatter({pointer}, {self.expr(index)}, {value});")
        else:
            raise RelaxishError(f"CUDA code generation does not scatter vectors to {stmt.buffer.name}")

    def _store_nibbles(self, stmt: Any, pointer: str, index: PrimExpr) -> None:
        if dt.lanes(stmt.value.dtype) == 1:
            # A neighbour may be another thread's, except in registers.
            alone = "store_nibble" if stmt.buffer.data in self.private else "share_nibble"
            self.line(f"{alone}({pointer}, {self.expr(index)}, {self.expr(stmt.value)});")
            return
        start = self.nibble_start(stmt.buffer, index)
        align = self.alignment(stmt.buffer, start, stmt.value.dtype)
        load = stmt.value
        plain = type(load).__name__ == "BufferLoad" and is_nibble(load.buffer.dtype)
        value = self.packed_nibbles(load, load.indices[0]) if plain else f"packed({self.expr(load)})"
        kind = f"Vec<unsigned char, {dt.lanes(stmt.value.dtype) // 2}>"
        self.line(f"store<{kind}, {align}>({pointer} + ({self.expr(start)}) / 2, {value});")

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        if isinstance(stmt.value, IntImm):
            return
        text = self.expr(stmt.value)
        if text:
            self.line(f"{text.rstrip(';')};")


def is_tensor_map(kind: PointerType) -> bool:
    """Whether a pointer's annotation means a descriptor of a tensor for the copy engine."""
    return type(kind.element_type).__name__ == "TensorMapType" or kind.storage_scope in ("grid_constant", "tensor_map")


def _local_alignment(stmt: Allocate, count: int, asked: int) -> str:
    """Arrays of small elements are read as whole words, so they begin like them."""
    total = count * size_of(stmt.dtype)
    align = max(asked, next((n for n in (16, 8, 4) if total >= n), 0))
    return f"__align__({align}) " if align > size_of(stmt.dtype) else ""


def _is_fragment_attr(stmt: AttrStmt, var: Var) -> bool:
    return getattr(stmt, "attr_key", "") in ("fragment_shape", "fragment_layout") and stmt.node is var


def _elements(stmt: Allocate) -> int:
    """How many elements an allocation has; at most, where that depends on a shape: ``min(n, 16)``."""
    bounds = Analyzer().const_int_bound
    total = 1
    for extent in stmt.extents:
        most = extent.value if isinstance(extent, IntImm) else bounds.bound(extent)[1]
        if most >= 1 << 31:
            raise RelaxishError(
                f"the buffer {stmt.buffer_var.name} has the unknown size {extent}; a kernel's own memory must be constant"
            )
        total *= most
    return total
