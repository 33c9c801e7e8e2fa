"""Frames of tensor programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar
from typing_extensions import Self

from .... import tir
from ....ir.attrs import DictAttrs
from ....ir.expr import PrimExpr, Range
from ....ir.prim import IterVar, Var as TirVar
from ....support.errors import InternalError
from ....tir.buffer import Buffer
from ....tir.stmt import Stmt
from ..base import IRBuilder, IRBuilderFrame
from .complete import DETECT_ACCESS, complete

__all__ = [
    "AllocateConstFrame", "AllocateFrame", "AssertFrame", "AttrFrame", "BlockFrame", "BlockInitFrame",
    "DeclBufferFrame", "ElseFrame", "ForFrame", "IfFrame", "LaunchThreadFrame", "LetFrame", "PrimFuncFrame",
    "RealizeFrame", "TIRFrame", "ThenFrame", "WhileFrame", "add_to_parent",
]  # fmt: skip

_Value = TypeVar("_Value")


def as_stmt(stmts: list[Any]) -> Stmt:
    """Several statements as one, without no-ops among them."""
    made = tir.SeqStmt.flatten(*stmts)
    if stmts and made.span is None:
        made.span = stmts[0].span
    return made


def add_to_parent(stmt: Stmt) -> None:
    """Hand a statement to the innermost frame, or to the builder when there is none."""
    builder = IRBuilder.current()
    if builder.span is not None and stmt.span is None:
        stmt.span = builder.span
    if not builder.frames:
        if builder.result is not None:
            raise ValueError("IRBuilder.result is already set")
        builder.result = stmt
        return
    frame = builder.frames[-1]
    if not isinstance(frame, TIRFrame):
        raise TypeError(f"Unsupported frame type: {type(frame).__name__}")
    frame.stmts.append(stmt)


class TIRFrame(IRBuilderFrame):
    """A frame that collects statements."""

    def __init__(self) -> None:
        super().__init__()
        self.stmts: list[Any] = []


class PrimFuncFrame(TIRFrame):
    """A function being written."""

    def __init__(self, is_private: bool = False) -> None:
        super().__init__()
        self.name: str | None = None
        self.is_private = is_private
        self.args: list[Any] = []
        self.ret_type: Any = None
        self.buffer_map: dict[Any, Any] = {}
        self.attrs: dict[str, Any] = {}
        self.env_threads: dict[int, IterVar] = {}
        self.root_alloc_buffers: list[Any] = []

    def finish(self) -> None:
        attrs = dict(self.attrs)
        if not self.is_private and self.name is not None and "global_symbol" not in attrs:
            attrs["global_symbol"] = self.name
        func = tir.PrimFunc(
            self.args, as_stmt(self.stmts), self.ret_type, self.buffer_map, DictAttrs(attrs), self.entry_span
        )
        func = complete(func, self.root_alloc_buffers)
        builder = IRBuilder.current()
        if not builder.frames:
            if builder.result is not None:
                raise ValueError("IRBuilder.result is already set")
            builder.result = func
            return
        from ..ir import IRModuleFrame, decl_function, def_function

        frame = builder.find(IRModuleFrame)
        if frame is None:
            raise ValueError(f"Cannot find where to insert PrimFunc {self.name}")
        if self.name is None:
            raise ValueError("Global function must have a name, but self.name is not defined")
        if self.name not in frame.global_vars:
            decl_function(self.name, func)
        def_function(self.name, func)


class BlockFrame(TIRFrame):
    """A block being written."""

    def __init__(self, name: str, no_realize: bool = False) -> None:
        super().__init__()
        self.name = name
        self.no_realize = no_realize
        self.iter_vars: list[IterVar] = []
        self.iter_values: list[Any] = []
        self.reads: list[Any] | None = None
        self.writes: list[Any] | None = None
        self.init: Any = None
        self.alloc_buffers: list[Any] = []
        self.match_buffers: list[Any] = []
        self.annotations: dict[str, Any] | None = None
        self.predicate: Any = None

    def finish(self) -> None:
        attrs = dict(self.annotations or {})
        missing = (1 if self.reads is None else 0) | (2 if self.writes is None else 0)
        if missing:
            attrs[DETECT_ACCESS] = tir.IntImm("int64", missing)
        block = tir.Block(
            self.iter_vars, self.reads or (), self.writes or (), self.name, as_stmt(self.stmts), self.init,
            self.alloc_buffers, self.match_buffers, attrs, span=self.entry_span,
        )  # fmt: skip
        if self.no_realize:
            if self.iter_values:
                raise ValueError("Block bindings are not allowed when `no_realize=True`")
            if self.predicate is not None:
                raise ValueError("`T.where` is not allowed when `no_realize=True`")
            add_to_parent(block)
        else:
            predicate = True if self.predicate is None else self.predicate
            add_to_parent(tir.BlockRealize(self.iter_values, predicate, block, span=self.entry_span))


class BlockInitFrame(TIRFrame):
    """The initialisation of a block's reduction."""

    def __enter__(self) -> Self:
        frame = IRBuilder.current().find(BlockFrame)
        if frame is None or IRBuilder.current().frames[-1] is not frame:
            raise ValueError("T.init() must be called directly under T.block()")
        if frame.init is not None:
            raise ValueError("Duplicate block init declaration")
        return super().__enter__()

    def finish(self) -> None:
        frame = IRBuilder.current().last(BlockFrame)
        assert frame is not None
        frame.init = as_stmt(self.stmts)


class ForFrame(TIRFrame):
    """One loop, or several made by ``T.grid``."""

    def __init__(
        self, variables: list[TirVar], doms: list[Range], make: Callable[[list[TirVar], list[Range], Stmt], Stmt]
    ) -> None:
        super().__init__()
        self.vars = variables
        self.doms = doms
        self.make = make

    def __enter__(self) -> TirVar | list[TirVar]:
        super().__enter__()
        return self.vars[0] if len(self.vars) == 1 else self.vars

    def __iter__(self) -> Iterator[int]:
        """The values of a constant loop, for comprehensions: ``[A[i] for i in range(4)]``."""
        low, extent = self.doms[0].min, self.doms[0].extent
        if len(self.doms) != 1 or not isinstance(low, tir.IntImm) or not isinstance(extent, tir.IntImm):
            raise TypeError("a comprehension needs a loop whose bounds are constant")
        return iter(range(low.value, low.value + extent.value))

    def finish(self) -> None:
        add_to_parent(self.make(self.vars, self.doms, as_stmt(self.stmts)))


class LoopFrame(ForFrame):
    """One loop."""

    def __enter__(self) -> TirVar:
        super().__enter__()
        return self.vars[0]


class SimpleFrame(TIRFrame, Generic[_Value]):
    """A frame whose node is one function of its body."""

    def __init__(self, make: Callable[[Stmt], Stmt], value: _Value) -> None:
        super().__init__()
        self.make = make
        self.value = value

    def __enter__(self) -> _Value:
        super().__enter__()
        return self.value

    def finish(self) -> None:
        add_to_parent(self.make(as_stmt(self.stmts)))


class AssertFrame(SimpleFrame[None]):
    """``T.Assert``"""


class LetFrame(SimpleFrame[TirVar]):
    """``T.LetStmt``"""

    @property
    def var(self) -> TirVar:
        """The variable being defined."""
        return self.value


class RealizeFrame(SimpleFrame[None]):
    """``T.realize``"""


class AllocateFrame(SimpleFrame[TirVar]):
    """``T.allocate``"""

    @property
    def buffer_var(self) -> TirVar:
        """The pointer to what is allocated."""
        return self.value


class AllocateConstFrame(AllocateFrame):
    """``T.allocate_const``"""


class AttrFrame(SimpleFrame[None]):
    """``T.attr``"""


class WhileFrame(SimpleFrame[None]):
    """``T.While``"""


class DeclBufferFrame(SimpleFrame[Buffer]):
    """``T.decl_buffer``"""

    @property
    def buffer(self) -> Buffer:
        """The buffer being declared."""
        return self.value


class LaunchThreadFrame(TIRFrame):
    """``T.launch_thread``"""

    def __init__(self, iter_var: IterVar, extent: PrimExpr) -> None:
        super().__init__()
        self.iter_var = iter_var
        self.extent = extent

    def __enter__(self) -> TirVar:
        super().__enter__()
        return self.iter_var.var

    def finish(self) -> None:
        key = "virtual_thread" if self.iter_var.thread_tag.startswith("vthread") else "thread_extent"
        add_to_parent(tir.AttrStmt(self.iter_var, key, self.extent, as_stmt(self.stmts)))


class IfFrame(TIRFrame):
    """``T.If`` with ``T.Then`` and ``T.Else`` inside."""

    def __init__(self, condition: PrimExpr) -> None:
        super().__init__()
        self.condition = condition
        self.then_stmts: list[Any] | None = None
        self.else_stmts: list[Any] | None = None

    def finish(self) -> None:
        if self.stmts:
            raise InternalError("stmt within IfThenElse frame should be either in ThenFrame or ElseFrame")
        if self.then_stmts is None:
            raise InternalError("IfThenElse frame should have at least one then branch")
        other = None if self.else_stmts is None else as_stmt(self.else_stmts)
        add_to_parent(tir.IfThenElse(self.condition, as_stmt(self.then_stmts), other))


class ThenFrame(TIRFrame):
    """The branch taken."""

    def __enter__(self) -> Self:
        frame = IRBuilder.current().last(IfFrame)
        if frame is None:
            raise ValueError("IfThenElse frame not found. Please ensure 'T.Then' is called under T.If")
        if frame.then_stmts is not None:
            raise ValueError("Duplicate then branch declaration")
        return super().__enter__()

    def finish(self) -> None:
        frame = IRBuilder.current().last(IfFrame)
        assert frame is not None
        frame.then_stmts = self.stmts


class ElseFrame(TIRFrame):
    """The branch not taken."""

    def __enter__(self) -> Self:
        frame = IRBuilder.current().last(IfFrame)
        if frame is None:
            raise ValueError("IfThenElse frame not found. Please ensure 'T.Else' is called under T.If")
        if frame.then_stmts is None:
            raise InternalError("The else branch should follow then branch")
        if frame.else_stmts is not None:
            raise ValueError("Duplicate else branch declaration")
        return super().__enter__()

    def finish(self) -> None:
        frame = IRBuilder.current().last(IfFrame)
        assert frame is not None
        frame.else_stmts = self.stmts
