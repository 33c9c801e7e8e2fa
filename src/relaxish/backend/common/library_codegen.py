"""From functions of composite calls to programs of library calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...relax.analysis import get_var2val
from ...relax.expr import Call, Constant, Expr, Function, Var
from ...relax.struct_info import TensorStructInfo, fields_of
from ...runtime.kernels.external import LibraryModule, Program, Step
from ...runtime.arrays.ndarray import NDArray
from ...support.errors import RelaxishError
from ..pattern_registry import patterns_named

__all__ = ["Composite", "library_module"]


@dataclass(frozen=True)
class Composite:
    """A composite function and what its pattern's annotations stand for in it.

    Annotated values are parameters, constants or calls inside.
    """

    name: str
    func: Function
    found: Mapping[str, Expr]
    options: Mapping[str, Any]

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        info = self.func.ret_struct_info
        assert isinstance(info, TensorStructInfo)
        return str(info.dtype)

    def has(self, name: str) -> bool:
        """Whether the pattern has an annotation of that name."""
        return name in self.found


#: A composite to (library call, annotations that are its operands, attributes).
Translate = Callable[[Composite], tuple[str, Sequence[str], Mapping[str, Any]]]


def _composite(func: Function, options: Mapping[str, Any]) -> Composite:
    name = str(func.attrs["Composite"])
    values = get_var2val(func)
    for pattern in patterns_named(name):
        matches = pattern.pattern.extract_matched_expr(func.body.body, values)
        if matches is not None:
            found = {key: matches[p] for key, p in pattern.annotation_patterns.items() if p in matches}
            return Composite(name, func, found, options)
    raise RelaxishError(f"the composite function {name} has no registered pattern that it matches")


class _Builder:
    """Collects the programs of a module and the constants they share."""

    def __init__(self, translate: Translate, options: Mapping[str, Any]) -> None:
        self.translate = translate
        self.options = options
        self.constants: dict[str, NDArray] = {}
        self._names: dict[Constant, str] = {}

    def program(self, func: Function) -> Program:
        """The steps of one function."""
        composites: dict[Any, Composite] = {}
        names: dict[Any, str] = {param: f"p{i}" for i, param in enumerate(func.params)}
        steps: list[Step] = []
        for block in func.body.blocks:
            for binding in block.bindings:
                value = binding.value
                match value:
                    case Function():
                        composites[binding.var] = _composite(value, self.options)
                    case Call() if value.op in composites:
                        names[binding.var] = f"v{len(steps)}"
                        steps.append(self._step(composites[value.op], value, names))
                    case Var():
                        names[binding.var] = names[value]
                    case _:
                        raise RelaxishError(f"a library function holds something else than composite calls: {value}")
        body = func.body.body
        results = fields_of(body)
        return Program(len(func.params), tuple(steps), tuple(names[r] for r in results))

    def _step(self, composite: Composite, call: Call, names: Mapping[Any, str]) -> Step:
        kernel, operands, attrs = self.translate(composite)
        given: dict[Any, Any] = dict(zip(composite.func.params, call.args, strict=True))
        inputs = [self._name(given.get(composite.found[o], composite.found[o]), names) for o in operands]
        return Step(kernel, tuple(inputs), composite.dtype, dict(attrs))

    def _name(self, value: Expr, names: Mapping[Any, str]) -> str:
        if not isinstance(value, Constant):
            return names[value]
        if value not in self._names:
            self._names[value] = f"c{len(self._names)}"
            self.constants[self._names[value]] = value.data
        return self._names[value]


def library_module(
    type_key: str, functions: Sequence[Function], translate: Translate, options: Mapping[str, Any]
) -> LibraryModule:
    """One runtime module with all functions."""
    builder = _Builder(translate, options)
    programs = {str(f.attrs["global_symbol"]): builder.program(f) for f in functions}
    return LibraryModule(type_key, programs, builder.constants)
