"""Statements of lowered tensor programs as text of a C-like language."""

from __future__ import annotations

from typing import Any

from ....arith.functor import uses_var
from ....ir.node import Node
from ....ir.op import op_name_of
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import all_nodes, pre_order_visit
from ....ir.prim import Call, CmpOp, LogicalOp, Not, Select, Var, is_zero
from ....support.errors import RelaxishError
from ....tir import ForKind
from ....tir.buffer import Buffer
from ....tir.expr import BufferLoad
from ....tir.stmt import (
    Allocate, AssertStmt, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt, While,
)  # fmt: skip
from .access import access_of
from .expressions import ExpressionPrinter
from .lanes import lane, part
from .pieces import ADD, Piece, infix, wrapped
from .sizes import array_size

__all__ = ["StatementPrinter"]


class StatementPrinter(ExpressionPrinter):
    """Visits statements and appends lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lane_variables: dict[Any, list[Any]] = {}

    def block(self, head: str, body: Stmt) -> None:
        """A braced statement."""
        self.line(head + " {")
        self.depth += 1
        self.visit(body)
        self.depth -= 1
        self.line("}")

    def bind(self, var: Var) -> str:
        """A new name for a variable."""
        name = self.supply.fresh(var.name)
        self.names[var] = Piece(name)
        return name

    # -- control -------------------------------------------------------------------------------------------

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        for item in stmt.seq:
            self.visit(item)

    def visit_For(self, loop: For) -> None:
        first, extent = self.expr(loop.min), self.expr(loop.extent)
        stop = extent if is_zero(loop.min) else self.loop_end(loop, first, extent)
        name = self.bind(loop.loop_var)
        self.hint(loop)
        self.block(self.for_head(loop.loop_var.dtype, name, first, stop), loop.body)

    def loop_end(self, loop: For, first: Piece, extent: Piece) -> Piece:
        """The end of a loop that does not begin with zero."""
        return self.expr(self.analyzer.simplify(loop.min + loop.extent))

    def hint(self, loop: For) -> None:
        """Print the pragma of the loop that follows: full unrolling of unrolled loops."""
        if loop.kind == ForKind.UNROLLED:
            self.unroll_hint()

    def for_head(self, dtype: str, name: str, first: str, stop: str) -> str:
        """The head of a counting loop."""
        kind = self.type_name(dtype)
        return f"for ({kind} {name} = {first}; {name} < {wrapped(stop, ADD)}; ++{name})"

    def unroll_hint(self) -> None:
        """Ask the compiler to unroll the loop that follows."""
        self.line("#pragma unroll")

    def visit_While(self, loop: While) -> None:
        self.guards += 1
        condition = self.expr(loop.condition)
        self.guards -= 1
        self.block(f"while ({condition})", loop.body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self.block(f"if ({self.expr(self._scalars(stmt.condition))})", stmt.then_case)
        if stmt.else_case is not None:
            self.lines.pop()
            self.block("} else", stmt.else_case)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        if dt.lanes(stmt.var.dtype) != 1 and not self._whole(stmt.value):
            self._let_lanes(stmt)
        elif dt.is_handle(stmt.var.dtype):
            raise RelaxishError(f"{self.language} code generation has no pointer variables ({stmt.var.name})")
        else:
            value = self.expr(self._scalars(stmt.value))
            self.line(self.declaration(stmt.value.dtype, self.bind(stmt.var), value))
        self.visit(stmt.body)

    def _let_lanes(self, stmt: LetStmt) -> None:
        element = dt.element_of(stmt.var.dtype)
        made = []
        for i in range(dt.lanes(stmt.var.dtype)):
            value = self.expr(lane(stmt.value, i, self.lane_variables))
            made.append(Var(f"{stmt.var.name}_{i}", element))
            self.line(self.declaration(element, self.bind(made[-1]), value))
        self.lane_variables[stmt.var] = made

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        # Device code has nobody to tell; the host checked what could be checked.
        self.visit(stmt.body)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        self.visit(stmt.body)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self.visit(stmt.body)

    # -- memory --------------------------------------------------------------------------------------------

    def visit_Allocate(self, stmt: Allocate) -> None:
        if stmt.buffer_var not in self.names:
            self.allocate(stmt, self.scope_of(stmt.buffer_var))
        self.visit(stmt.body)

    def scope_of(self, data: Var) -> str:
        """The storage scope of a buffer variable."""
        return getattr(data.type_annotation, "storage_scope", "") or "global"

    def allocate(self, stmt: Allocate, scope: str) -> None:
        """Declare an array."""
        element, count = self.array_facts(stmt)
        name = self.bind(stmt.buffer_var)
        self.memory_types[stmt.buffer_var] = element
        self.line(f"{self.memory_type(element)} {name}[{count}];")

    def array_facts(self, stmt: Allocate) -> tuple[str, int]:
        """(element type, number of elements) of an allocation."""
        return dt.element_of(stmt.dtype), array_size(stmt, self.analyzer)

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        if stmt.predicate is not None:
            raise RelaxishError(f"{self.language} code generation has no predicated stores")
        if not self._whole(stmt.value):
            narrower = self._narrower(stmt)
            if narrower:
                for piece in narrower:
                    self.visit(piece)
            else:
                self._store_lanes(stmt)
            return
        access = access_of(stmt.buffer, [self._scalars(i) for i in stmt.indices], self.analyzer)
        value = self.expr(self._scalars(stmt.value))
        if access.count == 1:
            self.store(stmt.buffer, access.element, self.index(access.base), value)
        elif access.base is not None:
            self.store_vector(stmt.buffer, access.element, access.count, self.index(access.base), value)
        else:
            name = Piece(self.supply.fresh("lanes"))
            self.line(self.declaration(stmt.value.dtype, name, value))
            for i, place in enumerate(access.places):
                self.store(stmt.buffer, access.element, self.index(place), self.lane(name, i))

    def store(self, buffer: Buffer, element: str, index: Piece, value: Piece) -> None:
        """One element."""
        self.line(f"{wrapped(self.pointer(buffer.data, element), 8)}[{index}] = {value};")

    def store_vector(self, buffer: Buffer, element: str, count: int, index: Piece, value: Piece) -> None:
        """Consecutive elements."""
        raise RelaxishError(f"{self.language} code generation has no vectors ({element}x{count})")

    def _narrower(self, stmt: BufferStore) -> list[Any]:
        """The store as stores of narrower vectors that the language has; none if there is no such width."""
        lanes = dt.lanes(stmt.value.dtype)
        if dt.lanes(stmt.buffer.dtype) != 1 or _reads(stmt.value, stmt.buffer):
            return []
        for width in (8, 4, 2):
            if width < lanes and lanes % width == 0 and self.has_vectors(dt.with_lanes(stmt.value.dtype, width)):
                values = [part(stmt.value, i, width, self.lane_variables) for i in range(0, lanes, width)]
                if not self._whole(values[0]):
                    return []
                places = [part(stmt.indices[0], i, width, self.lane_variables) for i in range(0, lanes, width)]
                return [type(stmt)(stmt.buffer, value, [at]) for value, at in zip(values, places, strict=True)]
        return []

    def _store_lanes(self, stmt: BufferStore) -> None:
        access = access_of(stmt.buffer, stmt.indices, self.analyzer)
        element = dt.element_of(stmt.value.dtype)
        values = [self.expr(lane(stmt.value, i, self.lane_variables)) for i in range(access.count)]
        if _reads(stmt.value, stmt.buffer):  # all lanes are read before the first is written
            kept = [self.supply.fresh("lane") for _ in values]
            for name, value in zip(kept, values, strict=True):
                self.line(self.declaration(element, name, value))
            values = [Piece(name) for name in kept]
        for i, value in enumerate(values):
            place = access.places[i] if access.base is None else self.analyzer.simplify(access.base + i)
            self.store(stmt.buffer, access.element, self.index(place), value)

    def _whole(self, value: PrimExpr) -> bool:
        """Whether an expression can be computed with the language's own vectors."""
        return not uses_var(value, self.lane_variables.__contains__) and all(
            self.vector_form(e) for e in _vector_parts(value)
        )

    def vector_form(self, e: PrimExpr) -> bool:
        """Whether this node, a vector, has a form in the language; comparisons and choices go lane by lane."""
        if isinstance(e, CmpOp | LogicalOp | Not | Select) or dt.is_bool(e.dtype):
            return False
        if isinstance(e, Call) and not self.vector_function(e):
            return False
        return self.has_vectors(e.dtype)

    def vector_function(self, e: Call) -> bool:
        """Whether an intrinsic works on vectors."""
        return False

    def _scalars(self, value: PrimExpr) -> PrimExpr:
        """Lanes of vectors that were bound lane by lane become their variables."""
        return lane(value, 0, self.lane_variables) if self.lane_variables and dt.lanes(value.dtype) == 1 else value

    # -- calls ---------------------------------------------------------------------------------------------

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        value = stmt.value
        name = op_name_of(value).removeprefix("tir.")
        special = getattr(self, f"do_{name}", None)
        if special is not None:
            special(value)
        elif isinstance(value, Call):
            self.line(f"{self.expr(value)};")

    def do_assume(self, call: Call) -> None:
        return None

    def do_thread_return(self, call: Call) -> None:
        self.line("return;")

    def offset(self, pointer: Piece, index: Piece) -> Piece:
        """A pointer some elements on."""
        return pointer if index == "0" else infix("+", pointer, index, ADD)


def _vector_parts(value: PrimExpr) -> list[Any]:
    found: list[Any] = []

    def look(node: Node) -> bool:
        match node:
            case BufferLoad():
                if dt.lanes(node.dtype) != 1:
                    found.append(node)
                return False
            case PrimExpr() if dt.lanes(node.dtype) != 1:
                found.append(node)
        return isinstance(node, PrimExpr | tuple)

    pre_order_visit(value, look)
    return found


def _reads(value: PrimExpr, buffer: Buffer) -> bool:
    return any(isinstance(node, BufferLoad) and node.buffer.data.same_as(buffer.data) for node in all_nodes(value))
