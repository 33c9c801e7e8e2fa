"""Whether variables are defined before use and once, and blocks do not look through to the loops around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...ir.prim import Let, Reduce
from ...support.sequences import of_kind
from ..buffer import Buffer
from ..expr import IterVar, Var
from ..function import PrimFunc
from ..stmt import Allocate, AllocateConst, AttrStmt, Block, BufferRealize, For, LetStmt

__all__ = ["verify_well_formed"]

_THREAD_ATTRS = ("thread_extent", "virtual_thread")


class _IllFormed(Exception):
    """Carries the first breach found to the entry point."""


class _OuterLoops(Visitor):
    """A block with axes of its own must not mention loops outside of it."""

    def __init__(self) -> None:
        self.depth_of: dict[Any, int] = {}
        self.blocks: list[Any] = []

    def visit_For(self, node: For) -> None:
        self.visit(node.min)
        self.visit(node.extent)
        self.depth_of[node.loop_var] = len(self.blocks)
        self.visit(node.body)
        self.depth_of.pop(node.loop_var, None)  # nested definitions are the other check's business

    def visit_Block(self, node: Block) -> None:
        if node.iter_vars:
            self.blocks.append(node)
        for part in (node.reads, node.writes, *(m.source for m in node.match_buffers), node.init, node.body):
            if part is not None:
                self.visit(part)
        if node.iter_vars:
            self.blocks.pop()

    def visit_Var(self, node: Var) -> None:
        depth = self.depth_of.get(node)
        if depth is None or depth >= len(self.blocks):
            return
        where = f'in block "{self.blocks[depth - 1].name_hint}"' if depth else "outside of any block"
        raise _IllFormed(
            f"Well-formedness check failed: Loop iterator var {node.name} is defined {where}, but is used inside the "
            f'non-opaque current block "{self.blocks[-1].name_hint}".'
        )

    def visit_Buffer(self, node: Buffer) -> None:
        """The variables of a buffer belong to its declaration."""


def _parts(buffer: Buffer) -> tuple[PrimExpr, ...]:
    """The expressions a buffer is declared with."""
    return (buffer.data, *buffer.shape, *buffer.strides, buffer.elem_offset)


class _Scopes(Visitor):
    """Follows definitions: what is in scope at every use, and what was in scope before."""

    def __init__(self) -> None:
        self.live: set[Any] = set()
        self.gone: set[Any] = set()
        self.threads: set[Any] = set()  # thread variables may be defined again within one function
        self.thread_of: dict[str, Any] = {}

    @contextmanager
    def _scope(self) -> Iterator[set[Any]]:
        """Definitions noted in the set go out of scope at the end."""
        own: set[Any] = set()
        yield own
        self.live -= own
        self.gone |= own
        # Launches side by side may each have variables of their own.
        for tag in [tag for tag, var in self.thread_of.items() if var in own]:
            del self.thread_of[tag]

    def _define(self, var: Var, own: set[Any]) -> None:
        if var not in self.threads:
            if var in self.live:
                raise _IllFormed(f"TIR is ill-formed, due to multiple nested definitions of variable {var.name}.")
            if var in self.gone:
                raise _IllFormed(f"TIR is ill-formed, due to multiple definitions of variable {var.name}.")
        self.live.add(var)
        own.add(var)

    def _define_axis(self, axis: IterVar, own: set[Any]) -> None:
        if axis.dom is not None:
            self.visit(axis.dom)
        if axis.iter_type == IterVar.ThreadIndex:
            known = self.thread_of.setdefault(axis.thread_tag, axis.var)
            if known is not axis.var:
                raise _IllFormed(
                    f'PrimFunc uses multiple distinct TIR variables for the environment thread "{axis.thread_tag}": '
                    f"{known.name} and {axis.var.name}. A launch inside of another one must use its variable."
                )
        self._define(axis.var, own)
        if axis.iter_type == IterVar.ThreadIndex:
            self.threads.add(axis.var)  # from now on, for the rest of this function

    def _define_matched(self, buffer: Buffer, own: set[Any]) -> None:
        """A matched buffer defines those of its variables that are not known yet."""
        for part in _parts(buffer):
            if isinstance(part, Var) and part not in self.live:
                self._define(part, own)

    def visit_PrimFunc(self, func: PrimFunc) -> None:
        with self._scope() as own:
            for param in func.params:
                self._define(param, own)
            buffers = [func.buffer_map[param] for param in func.params if param in func.buffer_map]
            # The shape of one argument may be made of what the shape of a later one is.
            for buffer in buffers:
                self._define_matched(buffer, own)
            for buffer in buffers:
                self.visit(_parts(buffer))
            self.visit(func.body)
        self.threads, self.thread_of = set(), {}

    def visit_Var(self, node: Var) -> None:
        if node in self.live:
            return
        past = " While this variable was previously defined, this definition is no longer in-scope."
        raise _IllFormed(f"Invalid use of undefined variable {node.name}.{past if node in self.gone else ''}")

    def visit_Let(self, node: Let | LetStmt) -> None:
        self.visit(node.value)
        with self._scope() as own:
            self._define(node.var, own)
            self.visit(node.body)

    visit_LetStmt = visit_Let

    def visit_For(self, node: For) -> None:
        self.visit(node.min)
        self.visit(node.extent)
        with self._scope() as own:
            self._define(node.loop_var, own)
            self.visit(node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        self.visit(node.value)
        with self._scope() as own:
            if node.attr_key in _THREAD_ATTRS and isinstance(node.node, IterVar):
                if node.node.var not in self.live:
                    self._define_axis(node.node, own)
            elif node.attr_key == "buffer_bind_scope":
                self._define_matched(node.node[0], own)
                self.visit(_parts(node.node[0]))
            elif isinstance(node.node, Var):
                self.visit(node.node)
            self.visit(node.body)

    def visit_Allocate(self, node: Allocate | AllocateConst) -> None:
        self.visit(node.extents)
        self.visit(getattr(node, "condition", ()))
        with self._scope() as own:
            self._define(node.buffer_var, own)
            self.visit(node.body)

    visit_AllocateConst = visit_Allocate

    def visit_BufferRealize(self, node: BufferRealize) -> None:
        self.visit(node.bounds)
        self.visit(node.condition)
        with self._scope() as own:
            if node.buffer.data not in self.live:
                self._define(node.buffer.data, own)
            self.visit(node.body)

    def visit_Reduce(self, node: Reduce) -> None:
        with self._scope() as own:
            for axis in node.axis:
                self._define_axis(axis, own)
            self.visit((node.source, node.init, node.condition))

    def visit_Block(self, node: Block) -> None:
        with self._scope() as own:
            for axis in node.iter_vars:
                self._define_axis(axis, own)
            self.visit((node.reads, node.writes))
            for buffer in node.alloc_buffers:
                self._define(buffer.data, own)
                if isinstance(buffer.elem_offset, Var) and buffer.elem_offset not in self.live:
                    self._define(buffer.elem_offset, own)
                self.visit(buffer)
            for match in node.match_buffers:
                self.visit(match.source)
                self._define_matched(match.buffer, own)
                self.visit(_parts(match.buffer))
            for part in (node.init, node.body):
                if part is not None:
                    self.visit(part)

    def visit_dict(self, items: Mapping[str, object]) -> None:
        """Annotations are not evaluated."""


def verify_well_formed(obj: PrimFunc | IRModule, assert_mode: bool = True) -> bool:
    """Whether a function, or every function of a module, is well formed.

    A variable is defined before it is used, used only inside its definition and defined once (in a whole module);
    a block with axes does not mention the loops around it; one variable stands for one thread axis.  With
    ``assert_mode`` a breach raises ValueError.
    """
    match obj:
        case PrimFunc():
            functions = [obj]
        case IRModule():
            functions = list(of_kind(obj.functions.values(), PrimFunc))
        case _:
            raise TypeError(f"expected an IRModule or a PrimFunc, got {type(obj).__name__}")
    scopes = _Scopes()
    try:
        for func in functions:
            _OuterLoops().visit(func.body)
            scopes.visit(func)
    except _IllFormed as breach:
        if assert_mode:
            raise CheckValueError(str(breach)) from None
        return False
    return True
