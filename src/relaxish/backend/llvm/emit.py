"""Writing one LLVM function as text: scopes, value numbering and hoisting while writing.

Every pure instruction is placed in the outermost scope where its operands exist, and written once. So address
arithmetic leaves loops by itself and no optimisation pass is needed to find common subexpressions. Loads follow the
same rule as far as nothing on the way may write their buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...ir.expr import PrimExpr
from .module_writer import ModuleWriter

Lines = list[Any]  # strings and nested Lines

# More hoisted vector loads than this would only be spilled again.
_MAX_HOISTED_LOADS = 12


@dataclass
class Scope:
    """One nesting level: a loop body or a branch, with the place just before it where hoisted code goes."""

    pre: Lines
    writes: frozenset[Any] = frozenset()
    certain: bool = False
    values: dict[str, str] = field(default_factory=dict)
    loads: dict[Hashable, str] = field(default_factory=dict)
    hoisted_loads: int = 0
    # The block that ends the hoisted code, if that has blocks of its own.
    entry: str = ""


class FunctionWriter:
    """Builds the body of one LLVM function."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.allocas: Lines = []
        self.lines: Lines = []
        self.scopes: list[Scope] = [Scope([])]
        self.depth_of: dict[str, int] = {}
        self.counter = 0
        self.block = "entry"
        self.versions: dict[Any, int] = {}
        self.version_counter = 0
        # Blocks for what hardly ever happens, after all others.
        self.cold: Lines = []
        # Set where what is written may not be reached although no branch is around it.
        self.pinned = False

    # ---- names and blocks

    def name(self, hint: str = "v") -> str:
        """A fresh register name."""
        self.counter += 1
        return f"%{hint}{self.counter}"

    def label(self, hint: str) -> str:
        """A fresh block label."""
        self.counter += 1
        return f"{hint}{self.counter}"

    def start_block(self, label: str) -> None:
        """Begin a new basic block."""
        self.lines.append(f"{label}:")
        self.block = label

    def line(self, text: str) -> None:
        """Write an instruction that has side effects or ends a block."""
        self.lines.append("  " + text)

    @property
    def depth(self) -> int:
        """Index of the innermost scope."""
        return len(self.scopes) - 1

    def define(self, name: str) -> None:
        """Note that ``name`` (a phi, for example) belongs to the innermost scope."""
        self.depth_of[name] = self.depth

    def open(self, writes: frozenset[Any] = frozenset(), certain: bool = False, share: Lines | None = None) -> Lines:
        """Enter a scope; call before writing the branch into it.

        Returns the place for hoisted code; the second branch of a conditional shares that of the first.
        """
        if share is None:
            share = []
            self.lines.append(share)
        self.scopes.append(Scope(share, writes, certain))
        return share

    def close(self) -> None:
        """Leave the innermost scope."""
        self.scopes.pop()

    # ---- pure instructions

    def operand_depth(self, operands: Iterable[str]) -> int:
        """The innermost scope any operand belongs to."""
        depth_of = self.depth_of
        depth = 0
        for operand in operands:
            d = depth_of.get(operand, 0)
            if d > depth:
                depth = d
        return depth

    def pure(self, text: str, *operands: str, hint: str = "v") -> str:
        """The value of a pure instruction that may run anywhere; written once, as far out as possible."""
        depth = self.operand_depth(operands)
        values = self.scopes[depth].values
        known = values.get(text)
        if known is not None:
            return known
        name = self.name(hint)
        values[text] = name
        self.depth_of[name] = depth
        if depth == self.depth:
            self.lines.append(f"  {name} = {text}")
        else:
            self.scopes[depth + 1].pre.append(f"  {name} = {text}")
        return name

    def local(self, text: str, hint: str = "v") -> str:
        """The value of a pure instruction that must stay here because it may trap."""
        values = self.scopes[-1].values
        known = values.get(text)
        if known is None:
            known = values[text] = self.effect(text, hint)
        return known

    def effect(self, text: str, hint: str = "v") -> str:
        """The value of an instruction that must be executed exactly here."""
        name = self.name(hint)
        self.depth_of[name] = self.depth
        self.lines.append(f"  {name} = {text}")
        return name

    # ---- conditions to go on

    def guard(self, bad: str, result: str, failed: Callable[[int], Lines], operand: str) -> str:
        """A value that exists only where the ``i1`` ``bad`` is false; the function is left where it is true.

        ``result`` is the instruction that makes the value of ``operand``, ``failed(depth)`` gives the lines that
        leave the function, for a guard written in the scope of that depth. Like a load, the guard goes as far out as
        its condition allows and it is certain to be reached.
        """
        key = f"guard {bad}: {result}"
        for scope in reversed(self.scopes):
            known = scope.values.get(key)
            if known is not None:
                return known
        lowest = self.operand_depth((bad, operand))
        depth = self.depth
        while depth > lowest and self.scopes[depth].certain and not self.pinned:
            depth -= 1
        ok, out, name = self.label("ok"), self.label("bad"), self.name("k")
        lines = [f"  br i1 {bad}, label %{out}, label %{ok}", f"{ok}:", f"  {name} = {result}"]
        self.cold += [f"{out}:", *failed(depth)]
        self.scopes[depth].values[key] = name
        self.depth_of[name] = depth
        if depth == self.depth:
            self.lines += lines
            self.block = ok
        else:
            inner = self.scopes[depth + 1]
            inner.pre += lines
            inner.entry = ok
        return name

    # ---- memory

    def touch(self, buffer: PrimExpr | str) -> None:
        """Forget what is known of the contents of ``buffer``."""
        self.version_counter += 1
        self.versions[buffer] = self.version_counter

    def touch_all(self) -> None:
        """Forget the contents of all memory."""
        self.version_counter += 1
        for key in self.versions:
            self.versions[key] = self.version_counter
        self.versions[None] = self.version_counter

    def load(self, buffer: PrimExpr | str, text: str, pointer: str) -> str:
        """The value of a load from ``buffer``; an equal earlier load is used again when nothing was stored since."""
        version = self.versions.get(buffer, self.versions.get(None, 0))
        key = (text, version)
        for scope in reversed(self.scopes):
            known = scope.loads.get(key)
            if known is not None:
                return known
        depth = self.depth
        lowest = self.depth_of.get(pointer, 0)
        while depth > lowest:
            scope = self.scopes[depth]
            if not scope.certain or buffer in scope.writes or None in scope.writes:
                break
            if scope.hoisted_loads >= _MAX_HOISTED_LOADS:
                break
            depth -= 1
        name = self.name("l")
        self.depth_of[name] = depth
        self.scopes[depth].loads[key] = name
        if depth == self.depth:
            self.lines.append(f"  {name} = {text}")
        else:
            inner = self.scopes[depth + 1]
            inner.hoisted_loads += 1
            inner.pre.append(f"  {name} = {text}")
        return name

    def alloca(self, text: str, hint: str = "stack") -> str:
        """A stack slot, placed in the entry block."""
        name = self.name(hint)
        self.allocas.append(f"  {name} = alloca {text}")
        return name

    def text(self) -> str:
        """The finished body."""
        out: list[str] = ["entry:"]
        _flatten(self.allocas, out)
        _flatten(self.lines, out)
        _flatten(self.cold, out)
        return "\n".join(out)


def _flatten(lines: Lines, out: list[str]) -> None:
    for item in lines:
        if isinstance(item, str):
            out.append(item)
        else:
            _flatten(item, out)
