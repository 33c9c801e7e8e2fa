"""Passes as frozen dataclasses: the fields of the class are the options of the pass.

    class Peel(ModuleRewrite, opt_level=1):
        '''Take the first iterations off loops.'''

        count: int = 1

        def rewrite(self, mod: IRModule) -> IRModule:
            ...

``Peel(2)`` is the pass, ``Peel(2) == Peel(count=2)``, and ``Peel{count=2}`` its text for command lines and logs
(:func:`pass_text`, :func:`pass_from_text`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import dataclass_transform

from ..support.errors import RelaxishError
from .module import IRModule
from .transform import ModulePass, Pass, PassContext, PassInfo, Sequential

__all__ = ["DeclaredPass", "ModuleRewrite", "StepsPass", "pass_from_text", "pass_text"]


@dataclass_transform(frozen_default=True)
class DeclaredPass(Pass):
    """A pass whose description is in its class statement: ``name`` (the class's, unless said), level, prerequisites."""

    info: ClassVar[PassInfo]  # type: ignore[misc]  # of a pass made from a function it is the instance's
    prefix: ClassVar[str] = ""

    if TYPE_CHECKING:

        def __init__(self) -> None: ...  # where there are fields, checkers make another of them

    def __init_subclass__(cls, name: str = "", opt_level: int = 0, required: Sequence[str] = ()) -> None:
        super().__init_subclass__()
        cls.info = PassInfo(opt_level, name or cls.prefix + cls.__name__, required)
        dataclass(frozen=True, repr=False)(cls)

    def _settle(self, **values: object) -> None:
        """Give options the form in which the pass works with them; for ``__post_init__``."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


class ModuleRewrite(DeclaredPass, ModulePass):
    """A pass from module to module that needs no context."""

    def rewrite(self, mod: IRModule) -> IRModule:
        """The transformed module."""
        raise NotImplementedError(f"{type(self).__name__} defines no rewrite")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self.rewrite(mod)


class StepsPass(DeclaredPass, Sequential):
    """Passes one after another, which follow from the options."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes", self.steps())

    def steps(self) -> list[Pass]:
        """The passes in order."""
        raise NotImplementedError(f"{type(self).__name__} defines no steps")


def pass_text(declared: DeclaredPass) -> str:
    """The name of a pass with the options that are not the defaults, as the command line takes it.

    >>> from relaxish.ir.declared_pass import pass_text
    >>> from relaxish.relax.transform import FuseOps
    >>> pass_text(FuseOps()), pass_text(FuseOps(fuse_opt_level=1))
    ('FuseOps', 'FuseOps{fuse_opt_level=1}')

    Raises RelaxishError for options that are no plain values, such as functions and patterns.
    """
    name = type(declared).__name__
    told = []
    for option in fields(declared):  # type: ignore[arg-type]
        value = getattr(declared, option.name)
        if option.default is MISSING or value != option.default:
            told.append(f"{option.name}={_literal(value, f'{name}: the option {option.name}')}")
    return f"{name}{{{', '.join(told)}}}" if told else name


def _literal(value: object, what: str) -> str:
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise RelaxishError(
            f"{what} is a {type(value).__name__}, which has no text form; make the pass in Python"
        ) from None
    return text


def pass_from_text(text: str, find: Callable[[str], Callable[..., Pass]]) -> Pass:
    """The pass that ``name``, ``name{option=value, ...}`` or ``name(value, option=value, ...)`` stands for.

    ``find`` gives what is called by a name; values are Python literals. Raises RelaxishError for other texts, and for
    options or values that the pass does not take.
    """
    name, brace, rest = text.strip().partition("{")
    written = f"{name}({rest[:-1]})" if brace and rest.endswith("}") else text.strip()
    try:
        node = ast.parse(written, mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        values = [ast.literal_eval(a) for a in call.args]
        options = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise RelaxishError(f"{text!r}: options of a pass are Python literals, as in name{{option=value}}") from None
    made = find(ast.unparse(call.func))
    try:
        return made(*values, **options)
    except (TypeError, ValueError) as error:
        raise RelaxishError(f"{text!r}: {error}") from None
