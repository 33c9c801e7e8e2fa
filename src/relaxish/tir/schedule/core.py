"""Core of schedules: a state, a symbol table of random variables, a random generator, a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.module import IRModule
from ..expr import FloatImm, IntImm, StringImm, Var
from ..function import PrimFunc
from ..index_map import IndexMap
from ..stmt import Block, For
from .errors import PrimitiveError, render_error
from .instruction import Argument, Decision, Instruction, InstructionKind, Step, plain
from .pieces import declare_pieces
from .rv import BlockRV, LoopRV, RAND_VAR_TYPE
from .sampling import LinearCongruentialEngine
from .sref import StmtSRef
from .state import ScheduleState
from .trace import Trace


__all__ = ["ScheduleCore"]

_LEVELS = ("detail", "fast", "none")
_S = TypeVar("_S", bound="ScheduleCore")


class ScheduleCore:
    """State, symbols and trace of a schedule; :class:`Schedule` adds the primitives."""

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        if error_render_level not in _LEVELS:
            raise ValueError(f"error_render_level is one of {_LEVELS}, not {error_render_level!r}")
        if not isinstance(enable_check, bool):
            raise TypeError(f"enable_check only accepts bool value, got {type(enable_check)} instead.")
        self.error_render_level = error_render_level
        self._state = ScheduleState(mod, debug_mask=debug_mask, enable_check=enable_check)
        self._symbols: dict[Any, Any] = {}
        self._trace: Trace | None = Trace()
        _check_seed(seed)
        self.rng = LinearCongruentialEngine(seed)
        self._func_working_on: GlobalVar | None = None
        functions = self._state.mod.functions
        prims = [gv for gv in functions if gv in set(self._state.roots.values())]
        if len(prims) == 1:
            self._func_working_on = prims[0]
        else:
            for gv in prims:
                if gv.name_hint == "main":
                    self._func_working_on = gv

    @classmethod
    def _create_non_traced(cls: type[_S], mod: IRModule, **options: Any) -> _S:
        """A schedule that keeps no trace."""
        made = cls(mod, **options)
        made._trace = None
        return made

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        return self._state.mod

    @property
    def state(self) -> ScheduleState:
        """The state with its reference tree."""
        return self._state

    def replace_state(self, state: ScheduleState) -> None:
        """Go on from another program; blocks and loops taken before are forgotten."""
        self._state = state
        self._symbols = {rv: value for rv, value in self._symbols.items() if not isinstance(value, StmtSRef)}

    @property
    def trace(self) -> Trace | None:
        """Trace of the steps so far, None for an untraced schedule."""
        return self._trace

    @property
    def func_working_on(self) -> GlobalVar | None:
        """The function in which names are looked up by default."""
        return self._func_working_on

    def work_on(self, func_name: str) -> None:
        """Look names up in ``func_name`` from now on."""
        self._func_working_on = self._state.mod.get_global_var(func_name)

    def copy(self: _S) -> _S:
        """An independent schedule with the same program, symbols and trace."""
        made = type(self).__new__(type(self))
        made.error_render_level = self.error_render_level
        made._state, mapping = self._state.copy()
        made._symbols = {
            rv: mapping.get(value, StmtSRef() if value.stmt is None and not _is_mark(value) else value)
            if isinstance(value, StmtSRef)
            else value
            for rv, value in self._symbols.items()
        }
        made._trace = None if self._trace is None else Trace(self._trace.insts, self._trace.decisions)
        made.rng = LinearCongruentialEngine(self.fork_seed())
        made._func_working_on = self._func_working_on
        return made

    def seed(self, seed: int) -> None:
        """Start the random generator anew."""
        self.rng = LinearCongruentialEngine(seed)

    def fork_seed(self) -> int:
        """A seed for an independent generator."""
        return self.rng.fork()

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print the program, then the trace."""
        self.mod.show(*args, **kwargs)
        if self._trace is not None:
            self._trace.show()

    # -- random variables ----------------------------------------------------------------------------------

    def get(self, rand_var_or_sref: RAND_VAR_TYPE | StmtSRef | PrimExpr) -> Any:
        """A block or loop random variable's statement; a sampled integer's value."""
        match rand_var_or_sref:
            case StmtSRef():
                return rand_var_or_sref.stmt
            case PrimExpr():
                value = self.value_of(rand_var_or_sref)
                return int(value.value) if isinstance(value, IntImm) else value
            case BlockRV() | LoopRV():
                return self.sref(rand_var_or_sref).stmt
        raise TypeError(f"not a random variable: {rand_var_or_sref!r}")

    @overload
    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV) -> StmtSRef: ...
    @overload
    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV | Block | For) -> StmtSRef | None: ...
    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV | Block | For) -> StmtSRef | None:
        """The reference behind a random variable or a statement of the current program."""
        match rand_var_or_stmt:
            case Block() | For():
                return self._state.get_sref(rand_var_or_stmt)
            case BlockRV() | LoopRV():
                return self.sref(rand_var_or_stmt)
        raise TypeError(f"not a block or loop: {rand_var_or_stmt!r}")

    def remove_rv(self, rand_var: RAND_VAR_TYPE) -> None:
        """Forget a random variable."""
        if rand_var not in self._symbols:
            raise IndexError(f"Cannot find the random variable in the symbol table: {rand_var!r}")
        del self._symbols[rand_var]

    def sref(self, rv: BlockRV | LoopRV | StmtSRef) -> StmtSRef:
        """The live reference of a block or loop variable; raises what ``_run`` turns into a ScheduleError."""
        if isinstance(rv, StmtSRef):
            return rv
        try:
            found = self._symbols[rv]
        except KeyError:
            raise IndexError(f"Cannot find the random variable in the symbol table: {rv!r}") from None
        if found.stmt is None and not _is_mark(found):
            kind = "block" if isinstance(rv, BlockRV) else "loop"
            raise ValueError(f"The {kind} no longer exists in the IR: a former primitive removed it.")
        return found

    def value_of(self, expr: Argument) -> Any:
        """An expression over sampled integers with their values filled in, simplified."""
        from .walk import vars_in

        match expr:
            case int():
                return IntImm("int32", expr)
            case Var():
                found = self._symbols.get(expr)
                return expr if found is None else IntImm("int32", found)
        if not isinstance(expr, PrimExpr):
            return expr
        if isinstance(expr, (IntImm, FloatImm, StringImm)):
            return expr
        values = {v: IntImm("int32", self._symbols[v]) for v in vars_in(expr) if v in self._symbols}
        from ...arith import Analyzer
        from ..functor import substitute

        return Analyzer().simplify(substitute(expr, values) if values else expr)

    def map_of(self, index_map: IndexMap) -> IndexMap:
        """An index map with the values of sampled integers filled in."""
        free = [v for v in index_map.free_vars() if v in self._symbols]
        return index_map.substitute_free({v: IntImm("int32", self._symbols[v]) for v in free})

    # -- running instructions ------------------------------------------------------------------------------

    def _run(
        self, kind: InstructionKind | str, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision = None
    ) -> list[Any]:
        """Apply one instruction, record it, give its outputs as random variables."""
        if isinstance(kind, str):
            kind = InstructionKind.get(kind)
        undo = declare_pieces(self._state) if self._state.undeclared and not kind.step.takes_pieces else None
        try:
            results, decision = kind.apply(self, inputs, attrs, decision)
        except BaseException as err:
            if undo is not None:  # what is refused leaves the program as it was
                undo()
            if not isinstance(err, PrimitiveError):
                raise
            step = None if self._trace is None else len(self._trace.insts)
            raise render_error(err, self.mod, _reported_name(kind), step, self.error_render_level) from None
        outputs = [self._new_rv(value) for value in results]
        if self._trace is not None:
            self._trace.append(Instruction(kind, inputs, attrs, outputs), decision)
        return outputs

    def _do(self, step: Step) -> list[Any]:
        """Apply a step, record it, give its outputs as random variables."""
        return self._run(step.kind, *step.parts())

    def _new_rv(self, value: StmtSRef | int | None) -> RAND_VAR_TYPE | None:
        if value is None:
            return None
        rv: Any
        if isinstance(value, StmtSRef):
            rv = BlockRV() if value.is_block else LoopRV()
        else:
            rv = Var(f"v{len(self._symbols) + 1}", "int32")
            value = int(plain(value))
        self._symbols[rv] = value
        return rv

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a schedule is not picklable; send its module and trace instead")

    def trace_json(self) -> str:
        """The trace as a JSON string."""
        return json.dumps(self._trace.as_json() if self._trace is not None else None)


def _check_seed(seed: int | None) -> None:
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"Expected `seed` to be int or None, but gets: {seed}")
    if not 1 <= seed <= 2147483647:
        raise ValueError(f"seed must be in the range [1, 2147483647], but gets: {seed}")


def _is_mark(sref: StmtSRef) -> bool:
    return sref is StmtSRef.inline_mark() or sref is StmtSRef.root_mark()


# Primitives that a report calls by another name than the method's with dashes.
_REPORTED_AS = {
    "loop_partition": "loop_partition",
    "reorder_block_iter_var": "reorder_block_iter_var",
    "transform_layout": "transform_layout",
    "transform_block_layout": "transform_block_layout",
    "reindex_cache_read": "reverse-cache-read",
    "reindex_cache_write": "reverse-cache-write",
    "cache_inplace": "cache-buffer",
    "unsafe_set_dtype": "set-dtype",
    "unsafe_hide_buffer_access": "hide-buffer-access",
}


def _reported_name(kind: InstructionKind) -> str:
    return _REPORTED_AS.get(kind.method) or kind.method.replace("_", "-")
