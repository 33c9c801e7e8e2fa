"""The older imperative builder of tensor statements: ``ib.for_range``, ``ib.if_scope``, ``A[i] = ...``.

>>> ib = create()
>>> A = ib.pointer("float32", name="A")
>>> with ib.for_range(0, 16, name="i") as i:
...     with ib.if_scope(i < 8):
...         A[i] = A[i] + 1.0
>>> ib.get().loop_var.name
'i'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from ..ir import dtype as dt
from ..ir.expr import ExprLike, PrimExpr, ShapeLike, as_expr
from ..ir.node import Node
from ..ir.object_generic import ObjectGeneric
from ..ir.op import Op
from ..ir.prim import Call, IterVar, StringImm, Var, const
from ..ir.primops import floordiv, floormod, max_
from ..support.sequences import as_list
from .buffer import Buffer, decl_buffer
from .expr import BufferLoad
from .stmt import (
    Allocate, AttrStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, stmt_seq, Stmt, While,
)  # fmt: skip

__all__ = ["BufferVar", "IRBuilder", "create"]

_T = TypeVar("_T")
# A statement, or what makes one around all statements that follow in its scope.
Item = Stmt | Callable[[Any], Any]

_KINDS = {
    "serial": ForKind.SERIAL, "parallel": ForKind.PARALLEL, "vectorize": ForKind.VECTORIZED, "unroll": ForKind.UNROLLED,
}  # fmt: skip


class BufferVar(ObjectGeneric):
    """Memory that is read and written by subscript; writing emits a store."""

    def __init__(self, builder: IRBuilder, buffer: Buffer, content_type: str) -> None:
        self._builder = builder
        self._buffer = buffer
        self._content_type = content_type

    def asobject(self) -> Buffer:
        """The buffer."""
        return self._buffer

    @property
    def dtype(self) -> str:
        """The type of what is read and written."""
        return self._content_type

    @property
    def name(self) -> str:
        """The buffer's name."""
        return self._buffer.name

    def _indices(self, index: ShapeLike) -> list[Any]:
        given = as_list(index)
        out = [i.var if isinstance(i, IterVar) else i for i in given]
        shape = self._buffer.shape
        if len(out) == 1 and len(shape) > 1:
            out = _unflattened(as_expr(out[0]), shape)
        return out

    __iter__ = None  # by index it would not end

    def __getitem__(self, index: ShapeLike) -> BufferLoad:
        return BufferLoad(self._buffer, self._indices(index))

    def __setitem__(self, index: ShapeLike, value: ExprLike) -> None:
        value = as_expr(value)
        if dt.element_of(value.dtype) != dt.element_of(self._content_type):
            raise ValueError(f"data type does not match content type {value.dtype} vs {self._content_type}")
        self._builder.emit(BufferStore(self._buffer, value, self._indices(index)))


def _unflattened(index: PrimExpr, shape: Sequence[Any]) -> list[Any]:
    """A position in row-major order as one index a dimension."""
    out: list[Any] = []
    for extent in reversed(shape[1:]):
        out.insert(0, floormod(index, extent))
        index = floordiv(index, extent)
    return [index, *out]


def _loop_dtype(bound: PrimExpr | int) -> str:
    match bound:
        case PrimExpr():
            if not dt.is_int(bound.dtype):
                raise NotImplementedError(f"a loop cannot run to a bound of type {bound.dtype}")
            return bound.dtype
        case int():
            return "int32"
    raise NotImplementedError(f"a loop cannot run to a bound of type {type(bound).__name__}")


class IRBuilder:
    """Builds one statement; the scopes are ``with`` blocks."""

    def __init__(self) -> None:
        self._stack: list[list[Item]] = [[]]
        self.nidx = 0

    def emit(self, stmt: Item | PrimExpr) -> None:
        """Append a statement, a call, or a function from the statements that follow to the one around them."""
        if isinstance(stmt, Call):
            stmt = Evaluate(stmt)
        if not isinstance(stmt, Stmt) and not callable(stmt):
            raise TypeError(f"cannot emit a {type(stmt).__name__}")
        self._stack[-1].append(stmt)

    def _close(self) -> Stmt:
        items = self._stack.pop()
        if not items or not isinstance(items[-1], Stmt):
            items.append(Evaluate(0))
        body: list[Any] = []
        for item in reversed(items):
            if isinstance(item, Stmt):
                body.insert(0, item)
            else:
                body = [item(stmt_seq(*body))]
        return stmt_seq(*body)

    @contextmanager
    def _scope(self, value: _T, make: Callable[[Stmt], Stmt]) -> Iterator[_T]:
        self._stack.append([])
        yield value
        self.emit(make(self._close()))

    def scope_attr(self, node: IterVar | BufferVar | Node | str, attr_key: str, value: ExprLike) -> None:
        """Annotate the statements that follow in this scope."""
        node = StringImm(node) if isinstance(node, str) else node
        if isinstance(node, BufferVar):
            node = node.asobject()
        value = StringImm(value) if isinstance(value, str) else as_expr(value)
        if attr_key == "thread_extent":
            # With dynamic shapes it may be zero.
            value = max_(const(1, value.dtype), value)
        self.emit(lambda body: AttrStmt(node, attr_key, value, body))

    def for_range(
        self,
        begin: PrimExpr | int,
        end: PrimExpr | int,
        name: str = "i",
        dtype: str | None = None,
        kind: str = "serial",
    ) -> AbstractContextManager[Var]:
        """A loop; unnamed ones are ``i``, ``j``, ``k``, ``i_0``, ``i_1``, ..."""
        if kind not in _KINDS:
            raise ValueError("Unknown kind")
        if name == "i":
            name = chr(ord(name) + self.nidx) if self.nidx < 3 else f"{name}_{self.nidx - 3}"
            self.nidx += 1
        if dtype is None:
            dtype = max(_loop_dtype(begin), _loop_dtype(end), key=dt.bits)
        var = Var(name, dtype)
        extent = end if isinstance(begin, int) and begin == 0 else end - begin
        return self._scope(var, lambda body: For(var, begin, extent, _KINDS[kind], body))

    def while_loop(self, condition: ExprLike) -> AbstractContextManager[None]:
        """A loop that runs as long as the condition holds."""
        return self._scope(None, lambda body: While(condition, body))

    def if_scope(self, cond: ExprLike) -> AbstractContextManager[None]:
        """Scope of the statements under a condition."""
        return self._scope(None, lambda body: IfThenElse(cond, body, None))

    def else_scope(self) -> AbstractContextManager[None]:
        """Scope of the statements otherwise. Raises RuntimeError unless an ``if_scope`` has just ended."""
        previous = self._stack[-1][-1] if self._stack[-1] else None
        if not isinstance(previous, IfThenElse) or previous.else_case is not None:
            raise RuntimeError("else_scope can only follow an if_scope")
        self._stack[-1].pop()
        return self._scope(None, lambda body: IfThenElse(previous.condition, previous.then_case, body))

    def new_scope(self) -> AbstractContextManager[None]:
        """A scope that ends what attributes, allocations and lets inside it cover."""
        return self._scope(None, lambda body: body)

    def let(self, var_name: str, value: ExprLike) -> Var:
        """Name a value for the statements that follow."""
        value = as_expr(value)
        var = Var(var_name, value.dtype)
        self.emit(lambda body: LetStmt(var, value, body))
        return var

    def allocate(
        self,
        dtype: str,
        shape: ShapeLike,
        name: str = "buf",
        axis_separators: Sequence[int] | None = None,
        scope: str = "",
    ) -> BufferVar:
        """Memory for the statements that follow."""
        extents = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
        buffer = decl_buffer(extents, dtype, name, scope=scope, axis_separators=axis_separators)
        self.emit(lambda body: Allocate(buffer.data, dtype, extents, const(1, "bool"), body))
        return BufferVar(self, buffer, dtype)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """Memory that is given from outside."""
        return BufferVar(self, decl_buffer((0,), content_type, name, scope=scope), content_type)

    def buffer_ptr(self, buf: Buffer) -> BufferVar:
        """A buffer that is given from outside."""
        return BufferVar(self, buf, buf.dtype)

    def likely(self, expr: ExprLike) -> Call:
        """Tell that a condition usually holds."""
        expr = as_expr(expr)
        return Call(expr.dtype, Op.get("tir.likely"), (expr,))

    def get(self) -> Stmt:
        """Statement built so far. Raises RuntimeError inside a scope."""
        made = self._close()
        if self._stack:
            raise RuntimeError("cannot call get inside construction scope")
        return made


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
