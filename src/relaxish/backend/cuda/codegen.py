"""CUDA C++ from lowered device functions.

A device function comes out of host/device splitting: flat buffers, thread extents as attributes, storage scopes on
pointers. Before and after::

    T.launch_thread("blockIdx.x", 4)                 extern "C" __global__ void __launch_bounds__(64) kernel(
    T.launch_thread("threadIdx.x", 64)                   float* __restrict__ A, float* __restrict__ B) {
    B[bx * 64 + tx] = A[bx * 64 + tx] + 1.0           B[(int)blockIdx.x * 64 + (int)threadIdx.x] = ...
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from ...arith import Analyzer
from ...ir import dtype as dt
from ...ir.module import IRModule
from ...ir.prim import IntImm
from ...ir.types import PointerType, PrimType
from ...support.errors import RelaxishError
from ...tir import ForKind, PrimFunc
from .expr import ExprText
from .preamble import PREAMBLE
from .types import headers_for, type_name

__all__ = ["cuda_source", "kernel_source"]

_FRAGMENTS = {"wmma.matrix_a": "matrix_a", "wmma.matrix_b": "matrix_b", "wmma.accumulator": "accumulator"}


def cuda_source(mod: IRModule) -> str:
    """One source file for all device functions of a module."""
    kernels = []
    dtypes: set[str] = set()
    wmma = False
    for var, func in sorted(mod.functions.items(), key=lambda item: item[0].name_hint):
        if isinstance(func, PrimFunc):
            made = _Kernel(str((func.attrs or {}).get("global_symbol") or var.name_hint), func)
            kernels.append(made.source())
            dtypes |= made.dtypes
            wmma |= made.uses_wmma
    headers = headers_for(dtypes) + (["mma.h"] if wmma else [])
    if wmma and "cuda_fp16.h" not in headers:
        headers.insert(0, "cuda_fp16.h")
    includes = "".join(f"#include <{h}>\n" for h in headers)
    return f"{includes}{PREAMBLE}\n" + "\n".join(kernels)


def kernel_source(name: str, func: PrimFunc) -> str:
    """The source of one kernel, without preamble."""
    return _Kernel(name, func).source()


class _Kernel(ExprText):
    """One kernel; statements append lines."""

    def __init__(self, name: str, func: PrimFunc) -> None:
        super().__init__()
        self.name = name
        self.func = func
        self.lines: list[str] = []
        self.depth = 1
        self.taken: set[str] = {"a", "b"}
        self.threads = {"x": 1, "y": 1, "z": 1}
        self.fragments: dict[Any, dict[str, str]] = {}

    def fresh(self, name: str) -> str:
        base = re.sub(r"\W", "_", name) or "v"
        base = f"v{base}" if base[0].isdigit() else base
        found, number = base, 0
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found

    def source(self) -> str:
        """The whole function."""
        params = [self._param(p) for p in self.func.params]
        self.visit(self.func.body)
        total = self.threads["x"] * self.threads["y"] * self.threads["z"]
        bounds = f"__launch_bounds__({total}) " if total else ""
        head = f'extern "C" __global__ void {bounds}{self.name}({", ".join(params)}) {{'
        return "\n".join([head, *self.lines, "}", ""])

    def _param(self, param: Any) -> str:
        name = self.names[param] = self.fresh(param.name)
        kind = param.type_annotation
        if isinstance(kind, PointerType):
            element = kind.element_type.dtype if isinstance(kind.element_type, PrimType) else "uint8"
            element = "uint8" if element in ("void", "", "handle") else element
            self.memory_types[param] = element
            self.dtypes.add(element)
            return f"{type_name(element)}* __restrict__ {name}"
        self.dtypes.add(param.dtype)
        return f"{type_name(param.dtype)} {name}"

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("  " * self.depth + text)

    def block(self, head: str, body: Any) -> None:
        """A braced statement."""
        self.line(head + " {")
        self.depth += 1
        self.visit(body)
        self.depth -= 1
        self.line("}")

    # -- statements ----------------------------------------------------------------------------------------

    def visit_SeqStmt(self, stmt: Any) -> None:
        for item in stmt.seq:
            self.visit(item)

    def visit_For(self, loop: Any) -> None:
        name = self.names[loop.loop_var] = self.fresh(loop.loop_var.name)
        low, extent = self.expr(loop.min), self.expr(loop.extent)
        if loop.kind == ForKind.UNROLLED:
            self.line("#pragma unroll")
        kind = type_name(loop.loop_var.dtype)
        stop = extent if isinstance(loop.min, IntImm) and loop.min.value == 0 else f"({low}) + ({extent})"
        self.block(f"for ({kind} {name} = {low}; {name} < {stop}; ++{name})", loop.body)

    def visit_While(self, loop: Any) -> None:
        self.block(f"while ({self.expr(loop.condition)})", loop.body)

    def visit_IfThenElse(self, stmt: Any) -> None:
        self.block(f"if ({self.expr(stmt.condition)})", stmt.then_case)
        if stmt.else_case is not None:
            self.block("else", stmt.else_case)

    def visit_LetStmt(self, stmt: Any) -> None:
        value = self.expr(stmt.value)
        name = self.names[stmt.var] = self.fresh(stmt.var.name)
        self.line(f"{type_name(stmt.value.dtype)} {name} = {value};")
        self.visit(stmt.body)

    def visit_AssertStmt(self, stmt: Any) -> None:
        # Device code has nobody to tell; the host checked what could be checked.
        self.visit(stmt.body)

    def visit_AttrStmt(self, stmt: Any) -> None:
        key = stmt.attr_key
        if key == "thread_extent":
            self._thread(stmt)
        elif key in ("fragment_shape", "fragment_layout"):
            self.fragments.setdefault(stmt.node, {})[key] = stmt.value.value
        elif key == "async_wait_queue_scope":
            raise RelaxishError("asynchronous queues must be lowered (InjectPTXAsyncCopy) before code generation")
        self.visit(stmt.body)

    def _thread(self, stmt: Any) -> None:
        var, tag = stmt.node.var, stmt.node.thread_tag
        self.names[var] = f"(({type_name(var.dtype)}){tag})"
        if tag.startswith("threadIdx."):
            axis = tag[-1]
            extent = int(stmt.value.value) if isinstance(stmt.value, IntImm) else 0
            self.threads[axis] = max(self.threads[axis], extent) if extent else 0

    def visit_DeclBuffer(self, stmt: Any) -> None:
        self.visit(stmt.body)

    def visit_Allocate(self, stmt: Any) -> None:
        scope = getattr(stmt.buffer_var.type_annotation, "storage_scope", "") or "global"
        name = self.names[stmt.buffer_var] = self.fresh(stmt.buffer_var.name)
        self.memory_types[stmt.buffer_var] = stmt.dtype
        self.dtypes.add(stmt.dtype)
        kind = type_name(stmt.dtype)
        if scope == "shared.dyn":
            self.line(f"extern __shared__ __align__(1024) unsigned char {name}_bytes[];")
            self.line(f"{kind}* {name} = ({kind}*){name}_bytes;")
        elif scope in _FRAGMENTS:
            self._fragment_array(stmt, name, scope)
        else:
            space = "__shared__ __align__(16) " if scope == "shared" else ""
            self.line(f"{space}{kind} {name}[{_elements(stmt)}];")
        self.visit(stmt.body)

    def _fragment_array(self, stmt: Any, name: str, scope: str) -> None:
        self.uses_wmma = True
        facts = self._fragment_facts(stmt)
        m, n, k = (int(v) for v in facts["fragment_shape"].split(","))
        size = {"wmma.matrix_a": m * k, "wmma.matrix_b": k * n}.get(scope, m * n)
        layout = f", nvcuda::wmma::{facts['fragment_layout']}" if scope != "wmma.accumulator" else ""
        kind = type_name(stmt.dtype)
        self.line(
            f"nvcuda::wmma::fragment<nvcuda::wmma::{_FRAGMENTS[scope]}, {m}, {n}, {k}, {kind}{layout}> "
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

    def visit_BufferStore(self, stmt: Any) -> None:
        value = self.expr(stmt.value)
        how, pointer, index = self.place(stmt.buffer, stmt.indices, dt.lanes(stmt.value.dtype))
        if how == "lanes":
            self.line(f"scatter({pointer}, {index}, {value});")
        else:
            self.line(f"{pointer}[{index}] = {value};")

    def visit_Evaluate(self, stmt: Any) -> None:
        value = stmt.value
        name = getattr(getattr(value, "op", None), "name", "").removeprefix("tir.")
        if name in self.STATEMENTS:
            self.STATEMENTS[name](self, value)
        elif not isinstance(value, IntImm):
            self.line(f"{self.expr(value)};")

    # -- statements that are calls -------------------------------------------------------------------------

    def _sync(self, call: Any) -> None:
        self.line("__syncwarp();" if call.args[0].value == "warp" else "__syncthreads();")

    def _fill(self, call: Any) -> None:
        buffer, _, _, _, index, value = call.args
        self.line(f"nvcuda::wmma::fill_fragment({self.expr(buffer)}[{self.expr(index)}], {self.expr(value)});")

    def _load(self, call: Any) -> None:
        buffer, _, _, _, index, source, stride, _ = call.args
        fragment = f"{self.expr(buffer)}[{self.expr(index)}]"
        self.line(f"nvcuda::wmma::load_matrix_sync({fragment}, {self.expr(source)}, {self.expr(stride)});")

    def _store(self, call: Any) -> None:
        buffer, _, _, _, index, target, stride, layout = call.args
        fragment = f"{self.expr(buffer)}[{self.expr(index)}]"
        self.line(
            f"nvcuda::wmma::store_matrix_sync({self.expr(target)}, {fragment}, {self.expr(stride)}, "
            f"nvcuda::wmma::mem_{layout.value});"
        )

    def _multiply(self, call: Any) -> None:
        parts = [f"{self.expr(b)}[{self.expr(i)}]" for b, i in zip(call.args[::2], call.args[1::2], strict=True)]
        self.line(f"nvcuda::wmma::mma_sync({', '.join(parts)});")

    def _copy_async(self, call: Any) -> None:
        target, t_at, source, s_at, size, *rest = call.args
        places = [f"{self.expr(p)} + {self.expr(i)}" for p, i in ((target, t_at), (source, s_at))]
        condition = f", {self.expr(rest[0])}" if rest else ""
        self.line(f"copy_async<{self.expr(size)}>({', '.join(places)}{condition});")

    STATEMENTS: ClassVar[dict[str, Callable[[Any, Any], None]]] = {
        "tvm_storage_sync": _sync,
        "tvm_fill_fragment": _fill,
        "tvm_load_matrix_sync": _load,
        "tvm_store_matrix_sync": _store,
        "tvm_mma_sync": _multiply,
        "ptx_cp_async": _copy_async,
        "ptx_commit_group": lambda self, call: self.line('asm volatile("cp.async.commit_group;");'),
        "ptx_wait_group": lambda self, call: self.line(
            f'asm volatile("cp.async.wait_group {int(call.args[0].value)};" ::: "memory");'
        ),
    }


def _is_fragment_attr(stmt: Any, var: Any) -> bool:
    return getattr(stmt, "attr_key", "") in ("fragment_shape", "fragment_layout") and stmt.node is var


def _elements(stmt: Any) -> int:
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
