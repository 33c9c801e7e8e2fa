"""Choice, Knob and Trace.

A knob is a point of decision with named choices; a choice is a transformation of the module with a condition; a trace
is a module with the decisions taken so far and the module they lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.errors import CheckValueError
from ...ir.module import IRModule
from ...ir.serial import load_json, save_json
from ...runtime.registry import get_global_func, register_func
from ...support.untrusted import malformed

__all__ = ["Choice", "Knob", "Trace", "deepcopy_irmodule", "get_trace"]


@register_func("relax.tuning_api.Choice.default_transform_func", override=True)
def _same_module(mod: IRModule) -> IRModule:
    return mod


@register_func("relax.tuning_api.Choice.default_constr_func", override=True)
def _always(mod: IRModule) -> bool:
    return True


class Choice:
    """A transformation by the name of a registered function, and a condition by the name of another.

    ``Choice("my.pass", [8])`` applies ``my.pass(mod, 8)``.
    """

    def __init__(
        self,
        transform_func_key: str | None = None,
        transform_func_args: Sequence[Any] | None = None,
        constr_func_key: str | None = None,
        constr_func_args: Sequence[Any] | None = None,
    ) -> None:
        self.transform_func_key = transform_func_key or "relax.tuning_api.Choice.default_transform_func"
        self.transform_func_args = list(transform_func_args or ())
        self.constr_func_key = constr_func_key or "relax.tuning_api.Choice.default_constr_func"
        self.constr_func_args = list(constr_func_args or ())

    def get_transform_func(self) -> Callable[..., IRModule]:
        """The registered transformation. Raises ValueError if there is none of that name."""
        found: Callable[..., IRModule] = get_global_func(self.transform_func_key)
        return found

    def get_constr_func(self) -> Callable[..., bool]:
        """The registered condition. Raises ValueError if there is none of that name."""
        found: Callable[..., bool] = get_global_func(self.constr_func_key)
        return found

    def apply_transform_func(self, mod: IRModule) -> IRModule:
        """The transformed module; the module given is left as it is."""
        return self.get_transform_func()(mod.clone(), *self.transform_func_args)

    def check_constr(self, mod: IRModule) -> bool:
        """Whether the condition holds of the module."""
        return bool(self.get_constr_func()(mod, *self.constr_func_args))

    def as_json(self) -> list[Any]:
        """As plain lists and strings."""
        return [self.transform_func_key, self.transform_func_args, self.constr_func_key, self.constr_func_args]

    @staticmethod
    def from_json(json_obj: Sequence[Any]) -> Choice:
        """The inverse of :meth:`as_json`."""
        return Choice(*json_obj)

    def deepcopy(self) -> Choice:
        """An independent copy."""
        return Choice.from_json(self.as_json())


class Knob:
    """A decision with choices by name: a dict of them, or a list whose names are their positions."""

    def __init__(self, name: str, choices: Mapping[str, Choice] | Sequence[Choice]) -> None:
        self.name = name
        self.choices = dict(choices) if isinstance(choices, Mapping) else {str(i): c for i, c in enumerate(choices)}

    def verify(self, decision: str | int) -> bool:
        """Whether there is such a choice."""
        return str(decision) in self.choices

    def _choice(self, decision: str | int) -> Choice:
        if not self.verify(decision):
            raise CheckValueError(f"knob {self.name} has no choice {decision!r}; it has {sorted(self.choices)}")
        return self.choices[str(decision)]

    def get_choice(self, decision: str | int) -> Choice:
        """A choice by name. Raises ValueError if there is none."""
        return self._choice(decision)

    def apply(self, mod: IRModule, decision: str | int) -> IRModule:
        """The module as that choice transforms it. Raises ValueError if there is none."""
        return self._choice(decision).apply_transform_func(mod)

    def as_json(self) -> list[Any]:
        """As plain lists, dicts and strings."""
        return [self.name, {name: choice.as_json() for name, choice in self.choices.items()}]

    @staticmethod
    def from_json(json_obj: Sequence[Any]) -> Knob:
        """The inverse of :meth:`as_json`."""
        with malformed("a knob in JSON"):
            name, choices = json_obj
            return Knob(name, {key: Choice.from_json(value) for key, value in choices.items()})

    def deepcopy(self) -> Knob:
        """An independent copy."""
        return Knob.from_json(self.as_json())

    def __str__(self) -> str:
        lines = "".join(f"  - {name}: {choice}\n" for name, choice in self.choices.items())
        return f"{self.name} (# of choices: {len(self.choices)})\n{lines}"


class Trace:
    """A module, decisions taken on it, and the module they give."""

    def __init__(
        self, in_mod: IRModule, knobs: Sequence[Knob] | None = None, decisions: Sequence[str | int] | None = None
    ) -> None:
        if len(knobs or ()) != len(decisions or ()):
            raise CheckValueError(f"{len(knobs or ())} knobs need as many decisions, not {len(decisions or ())}")
        self.in_mod = in_mod
        self.out_mod = in_mod
        self.knobs: list[Knob] = []
        self.decisions: list[str] = []
        self.perf: float = -1.0
        for knob, decision in zip(knobs or (), decisions or ()):
            self.add(knob, decision)

    @property
    def size(self) -> int:
        """Number of decisions in the trace."""
        return len(self.decisions)

    def verify(self) -> bool:
        """Whether every decision is one of its knob's choices."""
        if len(self.knobs) != len(self.decisions):
            return False
        return all(knob.verify(decision) for knob, decision in zip(self.knobs, self.decisions))

    def add(self, knob: Knob, decision: str | int) -> IRModule:
        """Take one more decision; returns the new module. Raises ValueError if the knob has no such choice."""
        self.out_mod = knob.apply(self.out_mod, decision)
        self.knobs.append(knob)
        self.decisions.append(str(decision))
        self.perf = -1.0
        return self.out_mod

    def note_pass(self, name: str, mod: IRModule) -> None:
        """Note that a pass was run, which decides nothing, and what it made."""
        self.add(Knob(name, {"Applied": Choice()}), "Applied")
        self.out_mod = mod

    def set_perf(self, perf: float) -> None:
        """Note the measured time."""
        self.perf = perf

    def set_out_mod(self, mod: IRModule) -> None:
        """Replace the resulting module."""
        self.out_mod = mod

    def as_json(self, include_irmod: bool = True) -> list[Any]:
        """As plain lists and strings, with the first module as JSON text unless told otherwise."""
        knobs = [knob.as_json() for knob in self.knobs]
        out: list[Any] = [knobs, list(self.decisions)]
        return [*out, save_json(self.in_mod)] if include_irmod else out

    @staticmethod
    def from_json(json_obj: Sequence[Any], in_mod: IRModule | None = None) -> Trace:
        """The inverse of :meth:`as_json`. Raises ValueError if no module is in it and none is given."""
        with malformed("a trace of choices in JSON"):
            knobs, decisions, *rest = json_obj
            mod = load_json(rest[0]) if rest else in_mod
            if mod is None:
                raise ValueError("the trace was saved without its module, so the module must be given")
            return Trace(mod, [Knob.from_json(k) for k in knobs], list(decisions))

    def deepcopy(self) -> Trace:
        """A copy that may grow independently."""
        made = Trace(self.in_mod)
        made.knobs = [knob.deepcopy() for knob in self.knobs]
        made.decisions = list(self.decisions)
        made.out_mod = self.out_mod
        return made

    def __str__(self) -> str:
        steps = zip(self.knobs, self.decisions)
        lines = "".join(f"[{n}] {knob.name}: {decision}\n" for n, (knob, decision) in enumerate(steps, 1))
        return f"Trace length: {self.size}\n{lines}"


def get_trace(in_: Trace | IRModule | Any) -> Trace:
    """A trace of a module or a function, or the trace itself.

    Raises ValueError for anything else.
    """
    match in_:
        case Trace():
            return in_
        case IRModule():
            return Trace(in_)
    from ...ir.expr import BaseFunc

    if isinstance(in_, BaseFunc):
        symbol = in_.attrs.get("global_symbol") if in_.attrs is not None else None
        return Trace(IRModule({str(symbol) if symbol is not None else "main": in_}))
    raise ValueError(f"Invalid input type for trace: {type(in_)}")


@register_func("relax.tuning_api.deepcopy_irmodule", override=True)
def deepcopy_irmodule(mod: IRModule) -> IRModule:
    """An independent copy of a module; compiled external modules are shared."""
    external = mod.attrs.get("external_mods")
    if external is None:
        copied: IRModule = load_json(save_json(mod))
        return copied
    rest: IRModule = load_json(save_json(mod.without_attr("external_mods")))
    return rest.with_attr("external_mods", external)
