"""Host functions as Python text: what runs around the launches of device kernels.

Before (what host/device splitting leaves) and after::

    def rows(A: T.Buffer((n, 96)), S: T.Buffer((n,))):        def rows(rt, A, S):
        T.call_packed("rows_kernel", A.data, S.data, n,           if A.device is not rt.device or ...: rt.misplaced(A, S)
                      n, 64)                                      n = A.shape[0]
                                                                  rt.launch('rows_kernel', (A.ptr, S.ptr, n), (n, 1, 1),
                                                                            (64, 1, 1), 0)

``rt`` is a :class:`relaxish.runtime.devices.host_program.HostRuntime`. The text is kept with the module and exported with it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.op import op_name_of
from ...ir import dtype as dt
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...ir.node import Node
from ...ir.prim import Call, IntImm, StringImm, Var
from ...ir.types import PointerType
from ...runtime.devices.host_program import KernelInfo
from ...support.errors import RelaxishError
from ...tir import PrimFunc
from ...tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from .host_expr import HostExpr
from .signature import shape_vars
from ...ir.plain import plain_str

__all__ = ["host_program_text", "kernel_infos"]

_DYNAMIC_SHARED = "tir.use_dyn_shared_memory"
_TENSOR_MAP_SCOPES = ("tensor_map", "grid_constant")
# What nobody looks at once kernels are split off.
_QUIET_CALLS = ("tir.start_profile_intrinsic", "tir.end_profile_intrinsic")
_QUIET_ATTRS = (
    "device_id",
    "device_type",
    "compute_scope",
    "target",
    "storage_alignment",
    "resource_scope",
    "explicit_sync",
)


def kernel_infos(device: IRModule) -> dict[str, KernelInfo]:
    """Launch parameters of each kernel in a module of device functions."""
    made = {}
    for var, func in device.functions.items():
        assert isinstance(func, PrimFunc), "device modules hold kernels alone"
        attrs = func.attrs or {}
        name = str(attrs.get("global_symbol") or var.name_hint)
        kinds = tuple(_kind(p) for p in func.params)
        made[name] = KernelInfo(name, kinds, tuple(str(p) for p in attrs.get("tir.kernel_launch_params") or ()))
    return made


def _kind(param: Var) -> str:
    annotation = param.type_annotation
    if isinstance(annotation, PointerType):
        is_map = annotation.storage_scope in _TENSOR_MAP_SCOPES or "TensorMap" in type(annotation.element_type).__name__
        return "tensor_map" if is_map else "pointer"
    return "pointer" if param.dtype == "handle" else param.dtype


def host_program_text(name: str, func: PrimFunc, kernels: Mapping[str, KernelInfo]) -> str:
    """The Python text of a host function. Raises RelaxishError for what cannot run on the host."""
    return _HostText(name, func, kernels).text()


class _HostText(Visitor):
    """Appends lines for statements; expressions are :class:`HostExpr`'s."""

    def __init__(self, name: str, func: PrimFunc, kernels: Mapping[str, KernelInfo]) -> None:
        self.name = name
        self.func = func
        self.kernels = kernels
        self.lines: list[str] = []
        self.depth = 1
        self.taken = {"rt", "math", "trunc_div", "trunc_mod"}
        self.names: dict[Any, str] = {}
        self.expr = HostExpr(name, self.names, self.fresh)

    def text(self) -> str:
        """The whole function."""
        params = [self.fresh(p.name.removeprefix("var_")) for p in self.func.params]
        tensors = [t for t, p in zip(params, self.func.params) if p in self.func.buffer_map or p.dtype == "handle"]
        if tensors:
            self.line(f"if {' or '.join(f'{t}.device is not rt.device' for t in tensors)}:")
            self.line(f"    rt.misplaced({self.name!r}, {', '.join(tensors)})")
        self._bind(params)
        self.visit(self.func.body)
        function = re.sub(r"\W", "_", self.name)
        return "\n".join([f"def {function}({', '.join(['rt', *params])}):", *self.lines, ""])

    def _bind(self, params: Sequence[str]) -> None:
        """Give names to data pointers, scalars and shape variables."""
        for text, param in zip(params, self.func.params):
            buffer = self.func.buffer_map.get(param)
            if buffer is None:
                self.names[param] = f"{text}.ptr" if param.dtype == "handle" else text
                continue
            self.names[param] = text
            self.names[buffer.data] = f"{text}.ptr"
            if isinstance(buffer.elem_offset, Var):
                self.names[buffer.elem_offset] = "0"  # addresses include it
        for var, index, dim in shape_vars(self.func):
            if var not in self.names:
                self.names[var] = name = self.fresh(var.name)
                self.line(f"{name} = {params[index]}.shape[{dim}]")
        for param in self.func.params:
            self._bind_strides(self.func.buffer_map.get(param))

    def _bind_strides(self, buffer: Any) -> None:
        """Arrays are compact, which says what variable strides are."""
        strides = buffer.strides if buffer is not None else ()
        for axis, stride in enumerate(strides):
            if isinstance(stride, Var) and stride not in self.names:
                extents = [self.expr.text(e) for e in buffer.shape[axis + 1 :]]
                self.names[stride] = f"({' * '.join(extents)})" if extents else "1"

    def fresh(self, name: str) -> str:
        """A Python name not used yet."""
        base = re.sub(r"\W", "_", name) or "v"
        if base[0].isdigit() or keyword.iskeyword(base) or base in ("int", "float", "bool", "min", "max", "range"):
            base = f"v_{base}"
        found, number = base, 0
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def block(self, head: str, body: Stmt) -> None:
        """An indented suite."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        self.visit(body)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    # -- statements ----------------------------------------------------------------------------------------

    def default_visit(self, node: Node) -> None:
        raise RelaxishError(f"{self.name}: a {type(node).__name__} cannot run on the host of a device program")

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        for item in stmt.seq:
            self.visit(item)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self.visit(stmt.body)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        key = stmt.attr_key
        if key not in _QUIET_ATTRS and not key.startswith("pragma_"):
            raise RelaxishError(f"{self.name}: the attribute {key!r} means nothing on the host of a device program")
        self.visit(stmt.body)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        value = self.expr.text(stmt.value)
        name = self.names[stmt.var] = self.fresh(stmt.var.name)
        self.line(f"{name} = {value}")
        self.visit(stmt.body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self.block(f"if {self.expr.text(stmt.condition)}:", stmt.then_case)
        if stmt.else_case is not None:
            self.block("else:", stmt.else_case)

    def visit_For(self, loop: For) -> None:
        name = self.names[loop.loop_var] = self.fresh(loop.loop_var.name)
        low, extent = self.expr.text(loop.min), self.expr.text(loop.extent)
        bounds = extent if low == "0" else f"{low}, {low} + {extent}"
        self.block(f"for {name} in range({bounds}):", loop.body)

    def visit_While(self, loop: While) -> None:
        self.block(f"while {self.expr.text(loop.condition)}:", loop.body)

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        message = plain_str(stmt.message)
        self.line(f"if not ({self.expr.text(stmt.condition)}):")
        self.line(f"    rt.fail({message!r})")
        self.visit(stmt.body)

    def visit_Allocate(self, stmt: Allocate) -> None:
        size = " * ".join([*(self.expr.text(e) for e in stmt.extents), str(dt.nbytes(stmt.dtype))])
        name = self.fresh(stmt.buffer_var.name)
        self.names[stmt.buffer_var] = f"{name}.ptr"
        self.line(f"{name} = rt.allocate({size})")
        self.visit(stmt.body)

    def visit_Evaluate(self, stmt: Any) -> None:
        value = stmt.value
        if isinstance(value, IntImm):
            return
        kind = op_name_of(value)
        if kind in _QUIET_CALLS:
            return
        if kind == "tir.ret":
            self.line(f"return {self.expr.text(value.args[0])}")
        elif kind in ("tir.tvm_call_packed", "tir.call_packed") and self._kernel(value) is not None:
            self._launch(value)
        else:
            self.line(self.expr.text(value))

    def _kernel(self, call: Call) -> KernelInfo | None:
        first = call.args[0]
        return self.kernels.get(first.value) if isinstance(first, StringImm) else None

    def _launch(self, call: Call) -> None:
        info = self._kernel(call)
        assert info is not None
        args = [self.expr.text(a) for a in call.args[1:]]
        values, sizes = args[: len(info.kinds)], dict(zip(info.launch_params, args[len(info.kinds) :]))
        grid, block, cluster = (
            f"({', '.join(sizes.get(f'{part}.{axis}', '1') for axis in 'xyz')})"
            for part in ("blockIdx", "threadIdx", "clusterIdx")
        )
        rest = [grid, block, sizes.get(_DYNAMIC_SHARED, "0")]
        if cluster != "(1, 1, 1)":
            rest.append(cluster)
        packed = f"({', '.join(values)}{',' if len(values) == 1 else ''})"
        self.line(f"rt.launch({info.name!r}, {packed}, {', '.join(rest)})")
