"""Operators of three tensors: fused multiply-add."""

from __future__ import annotations

import numpy as np

from .. import topi
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr
from ..relax.layout import InferLayoutOutput, LayoutMap, initial_layout_decision
from ..relax.scalars import prove_equal
from ..relax.struct_info import StructInfo
from .inference import agreed_vdevice, as_expr, common_dtype, fail, input_tensors, make_call, tensor, written_dims
from .kinds import Desired, rank_of
from .lowering import by_te
from .record import define

__all__ = ["ewise_fma"]


def ewise_fma(x1: Expr, x2: Expr, x3: Expr) -> Expr:
    """``x1 * x2 + x3``, element by element."""
    return make_call("ewise_fma", [as_expr(v) for v in (x1, x2, x3)])


def _infer_fma(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = input_tensors(call, 3)
    ranks = {i.ndim for i in infos if i.ndim >= 0}
    if len(ranks) > 1:
        raise fail(call, f"the 3 arguments must have the same number of dimensions, not {sorted(ranks)}")
    dtype = common_dtype(call, infos)
    device = agreed_vdevice(infos)
    shapes = [written_dims(i) for i in infos]
    if all(s is not None for s in shapes):
        for first, *rest in zip(*shapes):
            if not all(prove_equal(first, other) for other in rest):
                raise fail(call, f"the 3 arguments must have the same shape, but {first} and {rest} may differ")
        return tensor(shapes[0], dtype, vdevice=device)
    if infos[0].shape is not None and all(i.shape is infos[0].shape for i in infos):
        return tensor(infos[0].shape, dtype, vdevice=device)
    return tensor(None, dtype, ranks.pop() if ranks else -1, device)


def _fma_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    found = [layouts.of(a) for a in call.args]
    layout = found[0] if found[0] == found[1] == found[2] else initial_layout_decision(rank_of(call))
    return InferLayoutOutput([layout] * 3, [layout])


_X = np.random.default_rng(31).uniform(-1, 1, (3, 4)).astype("float32")
define(
    "ewise_fma",
    _infer_fma,
    legalize=by_te("ewise_fma", lambda a, b, c: topi.add(topi.multiply(a, b), c)),
    layout=_fma_layout,
    precision="follow",
    reference=lambda a, b, c: a * b + c,
    samples=lambda: [((_X, _X + 1, _X * 2), {})],
)
