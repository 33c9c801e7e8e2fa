"""AnnotateTIROpPattern: notes on each PrimFunc what kind of operator it computes."""

from __future__ import annotations

from ..ir.module import IRModule, functions_of
from ..relax.analysis.tir_pattern import detect_op_pattern
from ..tir import PrimFunc
from ..ir.declared_pass import ModuleRewrite

__all__ = ["AnnotateTIROpPattern"]


class AnnotateTIROpPattern(ModuleRewrite):
    """Set the attribute ``op_pattern`` of every PrimFunc: 0 elementwise, 1 broadcast, 2 injective, 3 reduction,
    4 fusable on the output (matmul, conv), 8 opaque. ``FuseOps`` decides by it.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        changed = {}
        for var, func in functions_of(mod, PrimFunc):
            if "op_pattern" not in (func.attrs or ()):
                changed[var] = func.with_attr("op_pattern", int(detect_op_pattern(func)))
        if not changed:
            return mod
        out = mod.clone()
        out.update(changed)
        return out
