"""Statements of device functions as LLVM text, and whole modules of kernels."""

from __future__ import annotations

from typing import Any


from ....ir.op import op_name_of
from ....ir import dtype as dt
from ....ir.module import IRModule
from ....ir.prim import Call, Var
from ....ir.types import PointerType
from ....support.errors import RelaxishError
from ....tir import PrimFunc
from ....tir.stmt import (
    Allocate, AssertStmt, AttrStmt, BufferStore, DeclBuffer, For, IfThenElse, LetStmt, SeqStmt, While,
)  # fmt: skip
from ..csource.access import access_of
from ..csource.kernel import KernelFacts, device_functions, kernel_facts
from ..csource.sizes import array_size
from .dialect import Dialect
from .expressions import ExpressionWriter
from .types import llvm_type, memory_type

__all__ = ["device_text"]


class _Kernel(ExpressionWriter):
    def __init__(self, name: str, func: PrimFunc, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.name = name
        self.func = func
        self.facts: KernelFacts = kernel_facts(func)
        self.globals: list[str] = []
        self.arrays: list[str] = []

    def text(self) -> str:
        """The whole kernel."""
        params = [self._parameter(p) for p in self.func.params]
        for var, tag in self.facts.threads:
            index = self.dialect.thread_index(self, tag)
            self.values[var] = self.convert(index, "int32", var.dtype)
        for stmt in self.facts.shared:
            self._shared(stmt)
        self.visit(self.func.body)
        self.line("ret void")
        head = f"define {self.dialect.convention} void @{self.name}({', '.join(params)}) #0 {{"
        return "\n".join([*self.globals, head, "entry:", *self.arrays, *self.lines, "}", ""])

    def _parameter(self, param: Var) -> str:
        name = self.values[param] = self.register("arg")
        if isinstance(param.type_annotation, PointerType):
            space = self.spaces[param] = self.dialect.spaces["global"]
            noalias = "noalias " if (self.func.attrs or {}).get("tir.noalias") else ""
            return f"ptr addrspace({space}) {noalias}align 64 {name}"
        if dt.is_bool(param.dtype):
            self.values[param] = self.convert(name, "uint8", "bool")
            return f"i8 {name}"
        return f"{llvm_type(param.dtype)} {name}"

    # -- memory --------------------------------------------------------------------------------------------

    def _shared(self, stmt: Allocate) -> None:
        name = f"@{self.name}.{stmt.buffer_var.name}.{len(self.globals)}"
        space = self.dialect.spaces["shared"]
        kind = f"[{array_size(stmt, self.analyzer)} x {memory_type(dt.element_of(stmt.dtype))}]"
        self.globals.append(f"{name} = internal unnamed_addr addrspace({space}) global {kind} undef, align 64")
        self.values[stmt.buffer_var], self.spaces[stmt.buffer_var] = name, space

    def visit_Allocate(self, stmt: Allocate) -> None:
        if stmt.buffer_var not in self.values:
            scope = getattr(stmt.buffer_var.type_annotation, "storage_scope", "") or "global"
            if scope != "local":
                raise RelaxishError(f"{self.dialect.name} kernels have no memory of scope {scope!r}")
            space, name = self.dialect.spaces["local"], self.register("array")
            where = f", addrspace({space})" if space else ""
            kind = f"[{array_size(stmt, self.analyzer)} x {memory_type(dt.element_of(stmt.dtype))}]"
            self.arrays.append(f"  {name} = alloca {kind}, align 64{where}")
            self.values[stmt.buffer_var], self.spaces[stmt.buffer_var] = name, space
        self.visit(stmt.body)

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        if stmt.predicate is not None:
            raise RelaxishError(f"{self.dialect.name} code generation has no predicated stores")
        value = self.visit(stmt.value)
        access = access_of(stmt.buffer, stmt.indices, self.analyzer)
        if access.base is not None:
            self.store(stmt.buffer.data, access.element, access.count, access.base, value)
            return
        for i, place in enumerate(access.places):
            self.store(stmt.buffer.data, access.element, 1, place, self.lane(value, stmt.value.dtype, i))

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self.visit(stmt.body)

    # -- control -------------------------------------------------------------------------------------------

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        for item in stmt.seq:
            self.visit(item)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        self.visit(stmt.body)

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        self.visit(stmt.body)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self.values[stmt.var] = self.visit(stmt.value)
        self.visit(stmt.body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        then, other, end = self.label("then"), self.label("else"), self.label("end")
        has_else = stmt.else_case is not None
        self.line(f"br i1 {self.visit(stmt.condition)}, label %{then}, label %{other if has_else else end}")
        self.start_block(then)
        self.visit(stmt.then_case)
        self.line(f"br label %{end}")
        if has_else:
            self.start_block(other)
            self.visit(stmt.else_case)
            self.line(f"br label %{end}")
        self.start_block(end)

    def visit_For(self, loop: For) -> None:
        kind = llvm_type(loop.loop_var.dtype)
        first = self.visit(loop.min)
        stop = self.visit(self.analyzer.simplify(loop.min + loop.extent))
        head, body, end = self.label("loop"), self.label("body"), self.label("end")
        before = self.current
        self.line(f"br label %{head}")
        self.start_block(head)
        counter, following = self.register("i"), self.register("next")
        at = len(self.lines)
        self.values[loop.loop_var] = counter
        inside = self.value(f"icmp slt {kind} {counter}, {stop}")
        self.line(f"br i1 {inside}, label %{body}, label %{end}")
        self.start_block(body)
        self.visit(loop.body)
        self.line(f"{following} = add nsw {kind} {counter}, 1")
        self.lines.insert(at, f"  {counter} = phi {kind} [ {first}, %{before} ], [ {following}, %{self.current} ]")
        self.line(f"br label %{head}")
        self.start_block(end)

    def visit_While(self, loop: While) -> None:
        head, body, end = self.label("while"), self.label("body"), self.label("end")
        self.line(f"br label %{head}")
        self.start_block(head)
        self.line(f"br i1 {self.visit(loop.condition)}, label %{body}, label %{end}")
        self.start_block(body)
        self.visit(loop.body)
        self.line(f"br label %{head}")
        self.start_block(end)

    def visit_Evaluate(self, stmt: Any) -> None:
        value = stmt.value
        name = op_name_of(value)
        if name == "tir.tvm_storage_sync":
            self.dialect.barrier(self, value.args[0].value)
        elif isinstance(value, Call):
            self.visit(value)


def device_text(mod: IRModule, dialect: Dialect) -> str:
    """The LLVM text of all device functions of a module."""
    parts, declared = [f'target triple = "{dialect.triple}"'], {}
    threads = 1
    for name, func in device_functions(mod):
        kernel = _Kernel(name, func, dialect)
        parts.append(kernel.text())
        declared.update(kernel.declared)
        x, y, z = kernel.facts.block_size() or (1024, 1, 1)
        threads = max(threads, x * y * z)
    parts += declared.values()
    parts.append(f"attributes #0 = {{ nounwind {dialect.kernel_attributes(threads)} }}")
    return "\n".join(parts)
