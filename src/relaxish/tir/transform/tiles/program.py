"""Reading tile programs: kernels, the nests of their operators, and a walk over a kernel's statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.functor import Mutator, all_nodes, post_order_visit
from ....ir.node import Node
from ....ir.prim import IntImm, Var, is_one
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt
from ..base import LoweringError
from .names import ATOMIC, KERNEL, LAYOUT, LOOPS, OP, OPTIONS, PARALLEL
from .shared import Order
from ....ir.plain import plain_int, plain_str

__all__ = [
    "Kernel", "accesses", "Nest", "TileLoweringError", "Walk", "as_int", "has_kernels", "loads_of", "nest_of", "opened", "options_of",
    "rewrite_kernels",
    "stores_of", "written_for_threads",
]  # fmt: skip


class TileLoweringError(LoweringError):
    """A tile program that a target cannot run; the message names the operator and says what to do."""


@dataclass(frozen=True)
class Nest:
    """An operator: independent loops (reduced and ordered ones last come to ``kinds``) around one statement.

    ``op`` is copy, fill, gemm, gemm_sp, reduce, scan, atomic, finalize, print or parallel. In ``body`` and ``init`` all names
    are loop variables.
    """

    op: str
    loops: tuple[tuple[Var, PrimExpr], ...]
    body: Stmt
    init: Stmt | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    kinds: str = ""

    @property
    def extents(self) -> list[int]:
        """The loops' extents. Raises TileLoweringError where one is not constant."""
        return [as_int(e, f"an extent of T.{self.op}") for _, e in self.loops]

    @property
    def store(self) -> BufferStore:
        """The body of an operator that is one store."""
        assert isinstance(self.body, BufferStore)
        return self.body

    @property
    def variables(self) -> list[Var]:
        """The loops' variables."""
        return [v for v, _ in self.loops]


@dataclass(frozen=True)
class Kernel:
    """A kernel: its grid (variable and extent along x, y, z), threads, and the block of its program."""

    grid: tuple[tuple[Var, PrimExpr], ...]
    threads: tuple[int, int, int]
    block: Block
    stmt: Stmt

    @cached_property
    def orders(self) -> dict[Buffer, Order]:
        """Layouts that the program asked for. Raises TileLoweringError for what is none of its tile."""
        made = {}
        for number, index_map in self.annotations.get(LAYOUT, ()):
            buffer = self.block.alloc_buffers[plain_int(number)]
            shape = tuple(as_int(e, f"a size of {buffer.name}") for e in buffer.shape)
            try:
                made[buffer] = Order(index_map, shape)
            except ValueError as error:
                raise TileLoweringError(f"T.annotate_layout: the layout of {buffer.name} is none: {error}") from None
        return made

    @property
    def annotations(self) -> dict[str, Any]:
        """Annotations of the program."""
        return dict(self.block.annotations)


def as_int(e: PrimExpr, what: str) -> int:
    """A constant. Raises TileLoweringError."""
    match e:
        case int():
            return e
        case IntImm():
            return int(e.value)
    raise TileLoweringError(f"{what} is {e}; it must be constant for tiles in registers and shared memory")


def options_of(nest: Nest) -> set[str]:
    """The words that a copy was asked for with."""
    return {plain_str(word) for word in nest.attrs.get(OPTIONS, ())}


def has_kernels(func: PrimFunc) -> bool:
    """Whether a function has tile kernels."""
    return any(isinstance(node, BlockRealize) and KERNEL in node.block.annotations for node in all_nodes(func.body))


def written_for_threads(kernel: Kernel) -> bool:
    """Whether a kernel's program is that of one thread."""
    return any(isinstance(node, For) and node.thread_binding is not None for node in all_nodes(kernel.block.body))


def rewrite_kernels(func: PrimFunc, lower: Callable[[Kernel], Stmt]) -> PrimFunc:
    """The function with each of its kernels replaced by what ``lower`` makes of it."""
    body = _Kernels(lower).visit(func.body)
    return func if body is func.body else func.with_body(body)


class _Kernels(Mutator):
    def __init__(self, lower: Callable[[Kernel], Stmt]) -> None:
        super().__init__()
        self.lower = lower

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_For(self, node: For) -> Stmt:
        kernel = _kernel_of(node)
        return self.default_visit(node) if kernel is None else self.lower(kernel)


def _kernel_of(stmt: Stmt) -> Kernel | None:
    grid: dict[str, tuple[Var, PrimExpr]] = {}
    at = stmt
    while (
        isinstance(at, For) and at.thread_binding is not None and at.thread_binding.thread_tag.startswith("blockIdx.")
    ):
        grid[at.thread_binding.thread_tag] = (at.loop_var, at.extent)
        at = at.body
    if not grid or not isinstance(at, BlockRealize) or KERNEL not in at.block.annotations:
        return None
    x, y, z = (plain_int(t) for t in at.block.annotations[KERNEL])
    return Kernel(tuple(grid[k] for k in sorted(grid)), (x, y, z), at.block, stmt)


def opened(realize: BlockRealize) -> tuple[Any, Any]:
    """(body, init) of a block in the variables around it."""
    block = realize.block
    names = {v.var: value for v, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    body = substitute(block.body, names)
    if not is_one(realize.predicate):
        body = IfThenElse(realize.predicate, body)
    return body, None if block.init is None else substitute(block.init, names)


def nest_of(loop: Any) -> Nest | None:
    """The operator whose outermost loop this is."""
    if not isinstance(loop, For):
        return None
    if PARALLEL in loop.annotations:
        loops: list[tuple[Var, PrimExpr]] = []
        at: Any = loop
        for _ in range(plain_int(loop.annotations[PARALLEL])):
            loops.append((at.loop_var, at.extent))
            at = at.body
        return Nest("parallel", tuple(loops), _Open().visit(at), None, dict(loop.annotations), "S" * len(loops))
    loops, at = [], loop
    while isinstance(at, For) and PARALLEL not in at.annotations:
        loops.append((at.loop_var, at.extent))
        at = at.body
    if not isinstance(at, BlockRealize) or OP not in at.block.annotations:
        return None
    attrs = at.block.annotations
    if plain_int(attrs[LOOPS]) != len(loops):
        return None
    body, init = opened(at)
    kinds = "".join(
        "R" if v.iter_type == 2 else "O" if v.iter_type == 3 else "S" for v in at.block.iter_vars[: len(loops)]
    )
    return Nest(str(attrs[OP]), tuple(loops), body, init, dict(attrs), kinds)


class _Open(Mutator):
    """Names in blocks of atomic updates replaced by what they stand for."""

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        if ATOMIC not in node.block.annotations:
            return self.default_visit(node)
        body, _ = opened(node)
        return node.with_fields(iter_values=(), predicate=True, block=node.block.with_fields(iter_vars=(), body=body))


class Walk(Mutator):
    """Goes through a kernel's statements in order; operators go to :meth:`nest`, the rest stays what it is."""

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_For(self, node: For) -> Stmt:
        found = nest_of(node)
        return self.loop(node) if found is None else self.nest(found)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        if ATOMIC in node.block.annotations:
            body, _ = opened(node)
            return self.atomic(str(node.block.annotations[ATOMIC]), body)
        return self.default_visit(node)

    def loop(self, node: For) -> Stmt:
        """A loop that is run in order."""
        return self.default_visit(node)

    def nest(self, nest: Nest) -> Stmt:
        """An operator."""
        raise NotImplementedError

    def atomic(self, how: str, body: Stmt) -> Stmt:
        """An update of one element that other blocks update, too."""
        raise NotImplementedError


def loads_of(node: Node) -> list[BufferLoad]:
    """All loads in an expression or statement."""
    found: list[Any] = []
    post_order_visit(node, lambda n: found.append(n) if isinstance(n, BufferLoad) else None)
    return found


def accesses(node: Node) -> list[BufferLoad | BufferStore]:
    """All stores in an expression or statement, then all loads."""
    return [*stores_of(node), *loads_of(node)]


def stores_of(node: Node) -> list[BufferStore]:
    """All stores in a statement."""
    found: list[Any] = []
    post_order_visit(node, lambda n: found.append(n) if isinstance(n, BufferStore) else None)
    return found
