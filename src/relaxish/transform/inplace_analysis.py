"""Analysis of in-place calls: live ranges, aliases, and arguments that are dead after a call.

Memory is numbered: every value that is made anew gets the next number, and an alias set holds the numbers a variable
may stand for; -1 is memory nothing is known about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arith.analyzer import Analyzer
from ..ir.op import op_name_of
from ..relax.analysis.variables import all_vars, free_vars
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, DataflowBlock, Expr, Function, Tuple, TupleGetItem, Var, is_call_of
from ..relax.scalars import product
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..tir import GE

__all__ = ["AliasAnalyzer", "InplaceOpportunity", "find_inplace_opportunities", "live_ranges"]

SUPPORTED = frozenset(f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "nn.silu", "nn.relu"))

# Operators whose result may share the memory of their first argument.
_VIEWS = frozenset(
    f"relax.{name}"
    for name in (
        "expand_dims",
        "squeeze",
        "reshape",
        "permute_dims",
        "flatten",
        "nn.batch_flatten",
        "memory.view",
        "memory.ensure_zero_offset",
    )  # fmt: skip
)
_FOREIGN = frozenset({"relax.call_pure_packed", "relax.invoke_pure_closure", "relax.call_inplace_packed"})

#: ``(binding index, indices of the arguments that may be written over)``, the argument to choose first.
InplaceOpportunity = tuple[int, tuple[int, ...]]


def live_ranges(block: DataflowBlock) -> dict[Var, tuple[int, int]]:
    """From each variable to the bindings between which its value is needed.

    Values from outside start at -1; those that leave the block, or come from outside, end after its last binding.
    Reading a field of a tuple does not count as a use of the tuple.
    """
    ranges: dict[Var, tuple[int, int]] = {}
    last = len(block.bindings)
    for index in range(last - 1, -1, -1):
        binding = block.bindings[index]
        value = binding.value
        if isinstance(value, TupleGetItem):
            used: list[Var] = []
        else:
            used = free_vars(value) if isinstance(value, Function) else all_vars(value)
        for var in used:
            ranges.setdefault(var, (-1, index if var.is_dataflow else last))
        leaves = not binding.var.is_dataflow
        end = ranges[binding.var][1] if binding.var in ranges else last if leaves else index
        ranges[binding.var] = (index, end)
    return ranges


class AliasAnalyzer:
    """Alias sets of the variables of a block (``sets``), and the fields of tuples in memory (``tuples``)."""

    def __init__(self) -> None:
        self.sets: dict[Var, set[int]] = {}
        self.tuples: dict[int, list[set[int]]] = {}
        self._next = 0

    def analyze(self, block: DataflowBlock, inputs: Sequence[Var]) -> AliasAnalyzer:
        """Analyse a block; ``inputs`` are variables from outside known not to be aliased."""
        for var in inputs:
            self.sets[var] = {self._fresh(var.struct_info_)}
        for binding in block.bindings:
            self.sets[binding.var] = self._set_of(binding.value, binding.var)
        return self

    def _fresh(self, info: StructInfo | None = None) -> int:
        """New memory; a tuple's fields are new memory too."""
        made, self._next = self._next, self._next + 1
        if isinstance(info, TupleStructInfo):
            self.tuples[made] = [{self._fresh(f)} for f in info.fields]
        return made

    def _set_of(self, value: Expr, bound: Var) -> set[int]:
        match value:
            case Var():
                return set(self.sets.get(value, {-1}))
            case Tuple():
                made = self._fresh()
                self.tuples[made] = [self._set_of(f, bound) for f in value.fields]
                return {made}
            case TupleGetItem():
                return self._field(value, bound)
        if not isinstance(value, Call):
            return {self._fresh()}
        if not op_name_of(value):
            return self._anything(value.args, bound)
        if value.op.name in _FOREIGN:
            return self._anything(value.args[1:], bound)
        if value.op.name in _VIEWS:
            return self._set_of(value.args[0], bound)
        return {self._fresh(bound.struct_info_)}

    def _field(self, item: TupleGetItem, bound: Var) -> set[int]:
        whole = self._set_of(item.tuple_value, bound)
        if -1 in whole:
            return {-1}
        fields = (self.tuples[m] for m in whole if m in self.tuples)
        return {index for parts in fields if len(parts) > item.index for index in parts[item.index]}

    def _anything(self, args: Sequence[Any], bound: Var) -> set[int]:
        """A call of unknown code: the result, and each of its fields, may be new or any argument."""
        made = self._fresh(bound.struct_info_)
        found = self._captured(made)
        for arg in args:
            for index in self._set_of(arg, bound):
                found |= self._captured(index)
        self._widen(made, found)
        return found

    def _captured(self, index: int) -> set[int]:
        out = {index}
        for part in self.tuples.get(index, ()):
            for inner in part:
                out |= self._captured(inner)
        return out

    def _widen(self, index: int, found: set[int]) -> None:
        for part in self.tuples.get(index, ()):
            for inner in list(part):
                self._widen(inner, found)
            part |= found

    def reachable(self, index: int) -> list[set[int]] | None:
        """The alias sets of all fields of the tuple at ``index``, at any depth; None if one of them is unknown."""
        out: list[set[int]] = []
        for part in self.tuples.get(index, ()):
            if -1 in part:
                return None
            out.append(part)
            for inner in part:
                deeper = self.reachable(inner)
                if deeper is None:
                    return None
                out += deeper
        return out


def _candidates(info: StructInfo) -> list[StructInfo]:
    """The struct infos inside a result that memory can be given for: tensors of known dtype and rank."""
    match info:
        case TensorStructInfo():
            return [info] if info.dtype and info.dims() is not None else []
        case TupleStructInfo():
            found = [c for f in info.fields for c in _candidates(f)]
            return [*found, info] if found else []
    return []


def _fits(target: StructInfo, arg: TensorStructInfo, analyzer: Analyzer) -> tuple[bool, bool]:
    """Whether the memory of ``arg`` is large enough for ``target``, and whether the shapes are equal."""
    match target:
        case TensorStructInfo() if isinstance(arg, TensorStructInfo):
            want, have = target.dims(), arg.dims()
            if want is None or have is None or target.dtype != arg.dtype:
                return False, False
            if not analyzer.can_prove(GE(product(have), product(want))):
                return False, False
            return True, len(want) == len(have) and all(analyzer.can_prove_equal(a, b) for a, b in zip(want, have))
        case TupleStructInfo() if isinstance(arg, TupleStructInfo):
            if len(target.fields) != len(arg.fields):
                return False, False
            kinds = (TensorStructInfo, TupleStructInfo)
            pairs = [(a, b) for a, b in zip(target.fields, arg.fields) if isinstance(a, kinds) or isinstance(b, kinds)]
            found = [_fits(a, b, analyzer) for a, b in pairs]
            return all(size for size, _ in found), all(size and exact for size, exact in found)
    return False, False


class _Finder:
    def __init__(self, block: DataflowBlock, inputs: Sequence[Var], builder: BlockBuilder) -> None:
        self.block = block
        self.ranges = live_ranges(block)
        self.aliases = AliasAnalyzer().analyze(block, inputs)
        self.analyzer = builder.get_analyzer()
        self._at = -1
        self._needed: list[Var] = []

    def run(self) -> tuple[list[InplaceOpportunity], list[InplaceOpportunity]]:
        sizes: list[InplaceOpportunity] = []
        exacts: list[InplaceOpportunity] = []
        for index, binding in enumerate(self.block.bindings):
            call = binding.value
            if not is_call_of(call, *SUPPORTED):
                continue
            found = self._arguments(call, binding.var.struct_info, index)
            if found:
                sizes.append((index, tuple(found)))
            exact = tuple(i for i, same in found.items() if same)
            if exact:
                exacts.append((index, exact))
        return sizes, exacts

    def _arguments(self, call: Call, info: StructInfo, index: int) -> dict[int, bool]:
        """Arguments that may be written over, the last one first; True where the shapes are equal."""
        targets = _candidates(info)
        out: dict[int, bool] = {}
        for place in range(len(call.args) - 1, -1, -1):
            arg = call.args[place]
            fits = [_fits(t, arg.struct_info_, self.analyzer) for t in targets]
            if any(size for size, _ in fits) and self._free(arg, index) and self._apart(call, place):
                out[place] = any(exact for _, exact in fits)
        return out

    def _free(self, value: Expr, index: int) -> bool:
        """Whether nothing needs the memory of ``value`` after binding ``index``."""
        if isinstance(value, Tuple):
            return all(self._free(f, index) for f in value.fields)
        if not isinstance(value, Var):
            return True
        mine = self.aliases.sets.get(value)
        if self.ranges.get(value, (-1, index))[1] > index or mine is None or -1 in mine:
            return False
        checked = set(mine)
        for memory in mine:
            inner = self.aliases.reachable(memory)
            if inner is None:
                return False
            checked.update(*inner)
        return all(checked.isdisjoint(self.aliases.sets.get(v, ())) for v in self._later(index) if v is not value)

    def _later(self, index: int) -> list[Var]:
        """Variables known at binding ``index`` and needed after it."""
        if self._at != index:
            self._at = index
            self._needed = [v for v, (start, end) in self.ranges.items() if start <= index < end]
        return self._needed

    def _apart(self, call: Call, place: int) -> bool:
        """Whether no other argument may share the memory of this one; the same variable twice does no harm."""
        mine = self.aliases.sets.get(call.args[place], {-1})
        others = [a for i, a in enumerate(call.args) if i != place and a is not call.args[place]]
        return -1 not in mine and all(mine.isdisjoint(self.aliases.sets.get(a, {-1})) for a in others)


def find_inplace_opportunities(
    block: DataflowBlock, inputs: Sequence[Var], builder: BlockBuilder
) -> tuple[list[InplaceOpportunity], list[InplaceOpportunity]]:
    """Calls that may work in place: those with an argument large enough, and those with one of the same shape."""
    return _Finder(block, inputs, builder).run()
