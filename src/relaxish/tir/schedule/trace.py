"""Traces: a schedule as data, replayable from memory, JSON and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TYPE_CHECKING, TypeAlias

from ...ir.prim import is_call_of
from ...ir.expr import PrimExpr
from ...support.errors import MalformedDataError, RelaxishError
from ...support.untrusted import malformed, parse_json
from ..expr import FloatImm, IntImm, StringImm, Var
from ..index_map import IndexMap
from .identity import Identity
from .instruction import Argument, Decision, Instruction, InstructionKind, Raw, map_rvs, plain, python_text
from .rv import BlockRV, LoopRV, RAND_VAR_TYPE

if TYPE_CHECKING:
    from .protocol import Schedule

__all__ = ["Trace"]

# What primitives raise for inputs that the checks of their methods would have refused.
_MISFITS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError)
#: What JSON writes.
Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
DecisionProvider = Callable[[Instruction, Sequence[Any], Sequence[Any], Any], Any]


class Trace(Identity):
    """The instructions of a schedule and the decisions its sampling instructions took.

    ``insts`` is a list of :class:`Instruction`; ``decisions`` maps an instruction to its decision.  A sampling
    instruction without decision is sampled anew on replay.
    """

    __slots__ = ("decisions", "insts")

    def __init__(
        self, insts: Sequence[Instruction] | None = None, decisions: Mapping[Instruction, Any] | None = None
    ) -> None:
        self.insts: list[Instruction] = list(insts or ())
        self.decisions: dict[Instruction, Any] = {k: plain(v) for k, v in (decisions or {}).items()}

    # -- building ------------------------------------------------------------------------------------------

    def get_decision(self, inst: Instruction) -> Decision:
        """The decision recorded for ``inst``, None if there is none."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: Decision = None) -> None:
        """Add an instruction, with its decision if it is a sampling one."""
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = plain(decision)

    def pop(self) -> Instruction | None:
        """Remove the last instruction with its decision; None if there is none."""
        if not self.insts:
            return None
        inst = self.insts.pop()
        self.decisions.pop(inst, None)
        return inst

    def with_decision(self, inst: Instruction, decision: Decision, remove_postproc: bool) -> Trace:
        """A copy with the decision of one instruction changed."""
        insts = self._kept(remove_postproc)
        known = set(insts)
        made = Trace(insts, {k: v for k, v in self.decisions.items() if k in known})
        made.decisions[inst] = plain(decision)
        return made

    def simplified(self, remove_postproc: bool) -> Trace:
        """A copy without queries and samples whose results nobody uses."""
        used: set[Any] = set()
        insts: list[Instruction] = []
        for inst in reversed(self._kept(remove_postproc)):
            if inst.kind.is_pure and not any(out in used for out in inst.outputs):
                continue
            insts.append(inst)
            _mark_used(inst.inputs, used)
        insts.reverse()
        known = set(insts)
        return Trace(insts, {k: v for k, v in self.decisions.items() if k in known})

    def _kept(self, remove_postproc: bool) -> list[Instruction]:
        if remove_postproc:
            for index, inst in enumerate(self.insts):
                if inst.kind.is_postproc:
                    return self.insts[:index]
        return list(self.insts)

    # -- replay --------------------------------------------------------------------------------------------

    def apply_to_schedule(
        self,
        sch: Schedule,
        remove_postproc: bool = False,
        decision_provider: DecisionProvider | None = None,
    ) -> None:
        """Repeat the trace on ``sch``.

        ``decision_provider(inst, inputs, attrs, decision)`` may change each sampling decision on the way; the
        decision it gives (None: sample anew) is the one taken. What cannot be replayed raises RelaxishError: traces come
        from files, too, and their instructions may have inputs and attributes that no primitive was made for.
        """
        rv_map: dict[Any, Any] = {}

        def lookup(rv: BlockRV | LoopRV | PrimExpr) -> BlockRV | LoopRV | PrimExpr:
            return rv_map.get(rv, rv)

        for inst in self._kept(remove_postproc):
            inputs = [map_rvs(x, lookup) for x in inst.inputs]
            decision = self.decisions.get(inst)
            if decision_provider is not None:
                decision = decision_provider(inst, inputs, inst.attrs, decision)
            try:
                outputs = sch._run(inst.kind, inputs, inst.attrs, decision)
            except RelaxishError:
                raise
            except _MISFITS as err:
                problem = f"{type(err).__name__}: {err}"
                raise MalformedDataError(f"{inst.kind.name} of the trace cannot be replayed ({problem})") from err
            if len(outputs) != len(inst.outputs):
                raise MalformedDataError(
                    f"{inst.kind.name} gave {len(outputs)} results on replay where the trace has {len(inst.outputs)}"
                )
            for old, new in zip(inst.outputs, outputs, strict=True):
                rv_map[old] = new

    # -- JSON ----------------------------------------------------------------------------------------------

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """``[instructions, decisions]`` of plain values; an instruction is ``[kind, inputs, attrs, outputs]``."""
        names: dict[Any, str] = {}
        insts, decisions = [], []
        for index, inst in enumerate(self._kept(remove_postproc)):
            inputs = [_input_to_json(x, names) for x in inst.inputs]
            outputs = [_name_output(x, names) for x in inst.outputs]
            insts.append([inst.kind.name, inputs, inst.kind.attrs_to_json(inst.attrs), outputs])
            decision = self.decisions.get(inst)
            if decision is not None:
                decisions.append([index, plain(decision)])
        return [insts, decisions]

    @staticmethod
    def from_json(json_obj: str | bytes | bytearray | Sequence[Any]) -> Trace:
        """A trace from what :meth:`as_json` gave (also as a string).

        Raises MalformedDataError, which is a ValueError, for anything else.
        """
        with malformed("a trace in JSON"):
            if isinstance(json_obj, (str, bytes, bytearray)):
                return _trace_from_json(parse_json(json_obj, "a trace in JSON"))
            return _trace_from_json(plain(json_obj))

    @staticmethod
    def apply_json_to_schedule(json_obj: str | bytes | bytearray | Sequence[Any], sch: Schedule) -> None:
        """Replay a trace in JSON form on ``sch``."""
        trace = Trace.from_json(json_obj)
        with malformed("a trace in JSON"):
            trace.apply_to_schedule(sch, remove_postproc=False)

    # -- text ----------------------------------------------------------------------------------------------

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """One line of Python per instruction."""
        names: dict[Any, str] = {}
        lines = []
        for inst in self._kept(remove_postproc):
            inputs = [_input_to_python(x, names) for x in inst.inputs]
            outputs = [_name_output(x, names) for x in inst.outputs]
            lines.append(inst.kind.as_python(inputs, inst.attrs, self.decisions.get(inst), outputs))
        return lines

    @staticmethod
    def apply_python_to_schedule(text: str | Sequence[str], sch: Schedule) -> None:
        """Replay the text form; only calls of schedule methods on literals and earlier results are obeyed."""
        from .trace_text import apply_text

        with malformed("the text of a trace"):
            apply_text(text if isinstance(text, str) else "\n".join(text), sch)

    def script(self) -> str:
        """The text form as a function definition."""
        body = "\n".join("  " + line for line in self.as_python()) or "  pass"
        return f"# from relaxish import tir\ndef apply_trace(sch: tir.Schedule) -> None:\n{body}"

    def show(self, style: str | None = None, black_format: bool = False) -> None:
        """Print the text form."""
        print(self.script())

    __str__ = script

    def __repr__(self) -> str:
        return f"Trace({len(self.insts)} instructions, {len(self.decisions)} decisions)"


def _mark_used(value: Argument, used: set[Any]) -> None:
    match value:
        case BlockRV() | LoopRV() | Var():
            used.add(value)
        case list() | tuple():
            for item in value:
                _mark_used(item, used)
        case dict():
            _mark_used(list(value.values()), used)
        case PrimExpr():
            from .walk import vars_in

            used.update(vars_in(value))


def _name_output(rv: RAND_VAR_TYPE | None, names: dict[Any, str]) -> str:
    if rv is None:
        return "_"
    letter = "b" if isinstance(rv, BlockRV) else "l" if isinstance(rv, LoopRV) else "v"
    names[rv] = f"{letter}{len(names)}"
    return names[rv]


def _expr_text(expr: PrimExpr, names: dict[Any, str]) -> str:
    """An expression over sampled integers, as Python text."""
    from ...ir.prim import Add, FloorDiv, FloorMod, Max, Min, Mul, Sub

    symbols: dict[type[PrimExpr], str] = {Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%"}
    match expr:
        case Var():
            return names.get(expr, expr.name)
        case IntImm() | FloatImm():
            return repr(expr.value)
        case Add() | Sub() | Mul() | FloorDiv() | FloorMod():
            return f"({_expr_text(expr.a, names)} {symbols[type(expr)]} {_expr_text(expr.b, names)})"
        case Min() | Max():
            return f"{type(expr).__name__.lower()}({_expr_text(expr.a, names)}, {_expr_text(expr.b, names)})"
    if is_call_of(expr, "tir.vscale"):
        return "T.vscale()"
    raise TypeError(f"a trace cannot hold the expression {expr}")


def _input_to_json(value: Argument, names: dict[Any, str]) -> Json:
    value = plain(value)
    match value:
        case None:
            return "None"
        case str():
            return f'"{value}"'
        case list() | tuple():
            return [_input_to_json(x, names) for x in value]
        case dict():
            return _dict_to_json(value)
        case bool() | int() | float():
            return value
        case IndexMap():
            from ...ir.serial import save_json

            return save_json(
                value.substitute_free({v: Var(names[v], v.dtype) for v in value.free_vars() if v in names})
            )
    if isinstance(value, Var) or not isinstance(value, PrimExpr):
        return names[value]
    return "=" + _expr_text(value, names)


def _dict_to_json(value: object) -> Json:
    """Dictionaries hold plain values only, and these are written as they are."""
    match value:
        case dict():
            return {k: _dict_to_json(v) for k, v in value.items()}
        case list():
            return [_dict_to_json(x) for x in value]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"a dictionary in a trace holds plain values, not {value!r}")


def _input_to_python(value: Argument, names: dict[Any, str]) -> str:
    if isinstance(value, (BlockRV, LoopRV)) or (isinstance(value, Var) and value in names):
        return Raw(names[value])
    match value:
        case list() | tuple():
            return Raw(f"[{', '.join(_input_to_python(x, names) for x in value)}]")
        case dict():
            return Raw("{" + ", ".join(f'"{k}": {_input_to_python(v, names)}' for k, v in value.items()) + "}")
        case PrimExpr() if not isinstance(value, (IntImm, FloatImm, StringImm)):
            return Raw(_expr_text(value, names))
        case IndexMap():
            from .primitives.layout import index_map_text

            return Raw(
                index_map_text(
                    value.substitute_free({v: Var(names[v], v.dtype) for v in value.free_vars() if v in names})
                )
            )
    return Raw(python_text(value))


def _trace_from_json(data: Sequence[Any]) -> Trace:
    try:
        json_insts, json_decisions = data
        decision_of = {int(index): value for index, value in json_decisions}
    except (TypeError, ValueError) as err:
        raise MalformedDataError(f"a trace in JSON is [instructions, decisions]: {err}") from None
    named: dict[str, Any] = {}
    trace = Trace()
    for index, item in enumerate(json_insts):
        try:
            kind_name, json_inputs, json_attrs, json_outputs = item
        except (TypeError, ValueError):
            raise MalformedDataError(f"instruction {index} is not [kind, inputs, attrs, outputs]") from None
        kind = InstructionKind.get(kind_name)
        if not all(isinstance(part, list) for part in (json_inputs, json_attrs, json_outputs)):
            raise MalformedDataError(f"instruction {index} has inputs, attributes or outputs that are no list")
        inputs = [_input_from_json(x, named) for x in json_inputs]
        outputs = [_output_from_json(name, named) for name in json_outputs]
        trace.append(Instruction(kind, inputs, kind.attrs_from_json(json_attrs), outputs), decision_of.get(index))
    return trace


def _input_from_json(value: Json, named: dict[str, Any]) -> Argument:
    if isinstance(value, list):
        return [_input_from_json(x, named) for x in value]
    if not isinstance(value, str):
        return value
    if value == "None":
        return None
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1]
    if value in named:
        return named[value]
    if value.startswith("="):
        from .trace_text import evaluate_expr

        return evaluate_expr(value[1:], named)
    if value.startswith("{"):
        from ...ir.serial import load_json

        index_map: IndexMap = load_json(value)
        return index_map.substitute_free({v: named[v.name] for v in index_map.free_vars() if v.name in named})
    raise ValueError(f"the trace uses {value!r} before it is defined")


def _output_from_json(name: str, named: dict[str, Any]) -> RAND_VAR_TYPE | None:
    if name == "_":
        return None
    if not isinstance(name, str) or name[:1] not in ("b", "l", "v"):
        raise ValueError(f"{name!r} is not the name of a random variable")
    rv: Any = BlockRV() if name[0] == "b" else LoopRV() if name[0] == "l" else Var(name, "int32")
    named[name] = rv
    return rv
