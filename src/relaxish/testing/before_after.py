"""Test classes that compare a program before and after a pass, written as the three parts they are."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from ..ir import BaseFunc, IRModule, assert_structural_equal
from ..ir.transform import Pass, _FunctionModulePass
from ..script import from_source
from ..tir import PrimFunc

__all__ = ["CompareBeforeAfter"]


def _is_fixture(value: object) -> bool:
    return hasattr(value, "_pytestfixturefunction") or type(value).__name__ == "FixtureFunctionDefinition"


def _takes_self(function: Callable[..., Any]) -> bool:
    return "self" in inspect.signature(function).parameters


def _parse(function: Callable[..., Any], check_well_formed: bool) -> PrimFunc:
    """The PrimFunc that a plain function of a test class spells out."""
    source = "@T.prim_func\n" + textwrap.dedent(inspect.getsource(function))
    return from_source(source, dict(function.__globals__), check_well_formed=check_well_formed, trusted=True)


def _parse_class(namespace: type, check_well_formed: bool) -> IRModule:
    functions: dict[str, Any] = {}
    for name, item in vars(namespace).items():
        if not name.startswith("_"):
            func = item if isinstance(item, BaseFunc) else _parse(item, check_well_formed)
            functions[name] = func.with_attr("global_symbol", name)
    return IRModule(functions)


def _on_function_or_module(transform: Callable[[IRModule], IRModule]) -> Callable[[Any], Any]:
    """A module transform that takes a lone function as a module too."""

    def apply(program: IRModule | PrimFunc) -> IRModule | BaseFunc:
        match program:
            case IRModule():
                return transform(program)
            case PrimFunc():
                return transform(IRModule({"main": program.with_attr("global_symbol", "main")}))["main"]
        raise TypeError(f"Expected IRModule or PrimFunc, but received {type(program).__name__}")

    return apply


def _named_main(program: IRModule | PrimFunc) -> IRModule | PrimFunc:
    return program.with_attr("global_symbol", "main") if isinstance(program, PrimFunc) else program


class CompareBeforeAfter:
    """Base of test classes with ``transform``, ``before`` and ``expected``.

    ``before`` and ``expected`` are functions in TVMScript syntax (without decorator), PrimFuncs, modules, classes of
    such functions, methods taking ``self``, properties, or fixtures; ``expected`` may be an exception class.
    ``transform`` is a pass, a method or property that returns one, or a fixture::

        class TestDropsUnitLoop(relaxish.testing.CompareBeforeAfter):
            transform = relaxish.tir.transform.Simplify()

            def before(A: T.Buffer((4,), "int32")):
                A[0] = 1 + 2

            def expected(A: T.Buffer((4,), "int32")):
                A[0] = 3
    """

    check_well_formed: bool = True
    transform: Any
    _transform_orig: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for part, normalize in (("before", cls._program), ("expected", cls._outcome)):
            given = [name for name in (part, part.capitalize()) if name in vars(cls)]
            if len(given) > 1:
                raise AssertionError(f"{cls.__name__} defines both {given[0]} and {given[1]}")
            if given:
                setattr(cls, part, normalize(vars(cls)[given[0]]))
        if "transform" in vars(cls):
            cls.transform = cls._transform(vars(cls)["transform"])

    @classmethod
    def _program(cls, given: Any) -> Any:
        import pytest

        if _is_fixture(given):
            return given
        if isinstance(given, staticmethod):
            given = given.__func__
        if isinstance(given, property):
            given = given.fget
        if isinstance(given, (BaseFunc, IRModule)):
            return pytest.fixture(lambda self: given)
        if inspect.isclass(given):
            return pytest.fixture(lambda self: _parse_class(given, self.check_well_formed))
        if _takes_self(given):
            return pytest.fixture(given)
        return pytest.fixture(lambda self: _parse(given, self.check_well_formed))

    @classmethod
    def _outcome(cls, given: Any) -> Any:
        import pytest

        if inspect.isclass(given) and issubclass(given, Exception):
            return pytest.fixture(lambda self: given)
        return cls._program(given)

    @classmethod
    def _transform(cls, given: Any) -> Any:
        import pytest

        if _is_fixture(given):
            cls._transform_orig = given

            def from_fixture(self: Any, _transform_orig: _FunctionModulePass) -> Any:
                return _on_function_or_module(_transform_orig)

            return pytest.fixture(from_fixture)
        if isinstance(given, property):
            given = given.fget
        if isinstance(given, Pass):
            return pytest.fixture(lambda self: _on_function_or_module(given))
        if _takes_self(given):
            return pytest.fixture(lambda self: _on_function_or_module(given(self)))
        raise TypeError("Expected transform to be a Pass, or a method returning a Pass")

    def test_compare(self, before: IRModule | PrimFunc, expected: Any, transform: Callable[..., Any]) -> None:
        """Apply the transform and compare, names of functions aside."""
        import pytest

        if inspect.isclass(expected) and issubclass(expected, Exception):
            with pytest.raises(expected):
                transform(before)
            return
        after = transform(before)
        try:
            assert_structural_equal(_named_main(after), _named_main(expected))
        except ValueError as error:
            text = f"TIR after the transform did not match the expected output:\n{error}\n\n"
            raise ValueError(f"{text}Before:\n{before}\n\nExpected:\n{expected}\n\nAfter:\n{after}") from error
