"""The node classes arithmetic works on, gathered in one place."""

from __future__ import annotations

from ..ir.expr import PrimExpr, Range
from ..ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    CommReducer,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    Reduce,
    Select,
    SizeVar,
    Sub,
    Var,
)

__all__ = [
    "EQ", "GE", "GT", "LE", "LT", "NE", "Add", "And", "Broadcast", "Call", "Cast", "CommReducer", "Div", "FloatImm", "FloorDiv",
    "FloorMod", "IntImm", "IterVar", "Let", "Max", "Min", "Mod", "Mul", "Not", "Or", "PrimExpr", "Ramp", "Range",
    "Reduce", "Select", "SizeVar", "Sub", "Var", "binary_classes", "rule_classes",
]  # fmt: skip

binary_classes = frozenset((Add, Sub, Mul, Div, Mod, FloorDiv, FloorMod, Min, Max, EQ, NE, LT, LE, GT, GE, And, Or))
rule_classes = (*binary_classes, Not, Select, Ramp, Broadcast, IntImm, FloatImm, Cast, Var)
