"""CanonicalizeBindings: copies, redundant casts and projections of known tuples disappear."""

from __future__ import annotations

from ..ir.module import IRModule
from ..relax.canonicalize import canonicalize_bindings, canonicalize_symbols
from ..relax.expr import Function
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["CanonicalizeBindings", "canonicalize_function"]


def canonicalize_function(func: Function) -> Function:
    """The function without trivial bindings."""
    return canonicalize_bindings(canonicalize_symbols(func))


class CanonicalizeBindings(ModuleRewrite, opt_level=1):
    """Remove bindings that only rename.

    ::

        y = x                       ->   (uses of y become uses of x)
        z = R.match_cast(x, same)   ->   (uses of z become uses of x)
        t = (a, b); c = t[0]        ->   (uses of c become uses of a)

    An output of a dataflow block that nothing outside uses becomes a dataflow variable.  A symbolic variable that a
    cast defines is replaced by what the cast value's shape says it is.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: canonicalize_function(func))
