"""The codes that calls of ``vm.builtin.match_shape`` and ``vm.builtin.make_shape`` carry."""

from ...runtime.bytecode.builtins import MakeShapeCode, MatchShapeCode

__all__ = ["MakeShapeCode", "MatchShapeCode"]
