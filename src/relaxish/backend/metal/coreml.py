"""Patterns of the operators for Apple's Core ML. Partitioning only: relaxish has no code generator for it.

``RunCodegen`` then says that ``relax.ext.coreml`` is missing, unless somebody registers it.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import Sequential
from ...relax.dpl import is_op, wildcard
from ...transform import CanonicalizeBindings, FuseOpsByPattern, FusionPattern, MergeCompositeFunctions
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..patterns import make_matmul_pattern

__all__ = ["partition_for_coreml"]

_OPERANDS = {
    1: ("nn.softmax", "nn.relu", "expand_dims", "nn.avg_pool2d", "nn.batch_flatten"),
    2: ("add", "multiply", "nn.conv2d"),
}
_NAMES = {1: ("lhs",), 2: ("lhs", "rhs"), 3: ("arg0", "arg1", "arg2")}


def _call(operator: str, arity: int) -> FusionPattern:
    operands = [wildcard() for _ in range(arity)]
    root = is_op(f"relax.{operator}")(*operands)
    return FusionPattern(f"coreml.{operator}", root, {**dict(zip(_NAMES[arity], operands, strict=True)), "root": root})


def _known() -> list[str]:
    """Operators of the table that exist here."""
    from ...ir.op import Op

    names = set(Op.list_op_names())
    return [name for row in _OPERANDS.values() for name in row if f"relax.{name}" in names]


register_patterns(
    [
        *(_call(name, arity) for arity, row in _OPERANDS.items() for name in row if name in _known()),
        _call("clip", 3),
        FusionPattern("coreml.matmul", *make_matmul_pattern()),
    ]
)


def partition_for_coreml(mod: IRModule) -> IRModule:
    """Give the operators that Core ML has to functions with ``Codegen="coreml"``."""
    passes = [
        CanonicalizeBindings(),
        FuseOpsByPattern(get_patterns_with_prefix("coreml"), bind_constants=True, annotate_codegen=False),
        MergeCompositeFunctions(),
    ]
    out: IRModule = Sequential(passes)(mod)
    return out
