"""Kernels: functions that many threads run, with memory shared by the threads of a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import pre_order_visit
from ....ir.module import IRModule
from ....ir.node import Node
from ....ir.prim import IntImm, Var, const_ints
from ....ir.types import PointerType, PrimType
from ....tir import PrimFunc
from ....tir.stmt import Allocate, AttrStmt
from .pieces import Piece
from .statements import StatementPrinter

__all__ = ["KernelFacts", "KernelPrinter", "device_functions", "element_of_pointer", "kernel_facts"]


@dataclass
class KernelFacts:
    """Declarations at a kernel's top: thread variables by tag, threads of a block, shared arrays."""

    threads: list[tuple[Any, str]] = field(default_factory=list)
    extents: dict[str, Any] = field(default_factory=dict)
    shared: list[Any] = field(default_factory=list)

    def block_size(self) -> tuple[int, int, int] | None:
        """Threads of a block along x, y, z; None where they are not constant."""
        sizes = [self.extents.get(f"threadIdx.{axis}", IntImm("int32", 1)) for axis in "xyz"]
        if const_ints(sizes) is None:
            return None
        x, y, z = (int(s.value) for s in sizes)
        return x, y, z


def kernel_facts(func: PrimFunc) -> KernelFacts:
    """Look through a kernel for what must be declared at its top."""
    facts = KernelFacts()

    def look(node: Node) -> bool:
        match node:
            case AttrStmt() if node.attr_key == "thread_extent":
                tag = node.node.thread_tag
                if all(node.node.var is not var for var, _ in facts.threads):
                    facts.threads.append((node.node.var, tag))
                known = facts.extents.get(tag)
                if (
                    not isinstance(known, IntImm)
                    or not isinstance(node.value, IntImm)
                    or node.value.value > known.value
                ):
                    facts.extents[tag] = node.value
            case Allocate():
                scope = getattr(node.buffer_var.type_annotation, "storage_scope", "")
                if scope.startswith("shared") and all(node.buffer_var is not a.buffer_var for a in facts.shared):
                    facts.shared.append(node)
        return True

    pre_order_visit(func.body, look)
    return facts


def device_functions(mod: IRModule) -> list[tuple[str, PrimFunc]]:
    """(name, kernel) in order of their names."""
    return [
        (str((func.attrs or {}).get("global_symbol") or var.name_hint), func)
        for var, func in sorted(mod.functions.items(), key=lambda item: item[0].name_hint)
        if isinstance(func, PrimFunc)
    ]


def element_of_pointer(param: Any) -> str:
    """The element type behind a pointer parameter; bytes where it does not say."""
    kind = param.type_annotation
    element = kind.element_type.dtype if isinstance(kind.element_type, PrimType) else ""
    return "uint8" if element in ("void", "", "handle") else dt.element_of(element)


class KernelPrinter(StatementPrinter):
    """One kernel at a time; ``helpers`` and ``features`` grow over all kernels of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = KernelFacts()

    def kernel(self, name: str, func: PrimFunc) -> str:
        """The text of one kernel."""
        fresh = type(self)()
        fresh.helpers, fresh.features = self.helpers, self.features
        return fresh._kernel(name, func)

    def _kernel(self, name: str, func: PrimFunc) -> str:
        self.facts = kernel_facts(func)
        self.supply.reserve(name)
        params = [self.parameter(p) for p in func.params]
        self.start(name, func)
        for var, tag in self.facts.threads:
            self.thread(var, tag)
        for stmt in self.facts.shared:
            self.allocate(stmt, self.scope_of(stmt.buffer_var))
        self.visit(func.body)
        return "\n".join([self.head(name, func, params), *self.lines, "}", ""])

    def start(self, name: str, func: PrimFunc) -> None:
        """Lines before all others."""

    def head(self, name: str, func: PrimFunc, params: list[str]) -> str:
        """The signature and the opening brace."""
        raise NotImplementedError

    def parameter(self, param: Var) -> str:
        """The declaration of a parameter."""
        name = self.bind(param)
        if not isinstance(param.type_annotation, PointerType):
            return self.scalar_parameter(param, name)
        element = element_of_pointer(param)
        self.memory_types[param] = element
        return self.pointer_parameter(param, name, element)

    def scalar_parameter(self, param: PrimExpr, name: str) -> str:
        """The declaration of a scalar parameter."""
        return f"{self.memory_type(param.dtype)} {name}"

    def pointer_parameter(self, param: Var, name: str, element: str) -> str:
        """The declaration of a pointer parameter."""
        raise NotImplementedError

    def thread(self, var: Var, tag: str) -> None:
        """Bind the variable of a thread or block index."""
        self.line(self.declaration(var.dtype, self.bind(var), self.cast(self.thread_index(tag), "", var.dtype)))

    def thread_index(self, tag: str) -> Piece:
        """The index that a tag such as ``threadIdx.x`` names."""
        raise NotImplementedError
