"""CPULayoutPacking: convolutions keep channels contiguous through the whole graph.

Before::

    y = nn.conv2d(x, w)                 # NCHW, OIHW
    z = nn.relu(add(y, bias))           # bias: (1, C, 1, 1)

After (permutations that meet have cancelled, weights are permuted at compile time)::

    y = nn.conv2d(permute_dims(x, [0, 2, 3, 1]), w_hwio, data_layout="NHWC", kernel_layout="HWIO")
    z = permute_dims(nn.relu(add(y, bias_nhwc)), [0, 3, 1, 2])

With channels innermost, vectors of output channels are contiguous in weights and outputs, one input element serves a
whole vector, and neither strides nor odd image sizes get in the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op import concat, mean, permute_dims, reshape
from ..op.kinds import BROADCAST, ELEMENTWISE
from ..op.nn import conv2d
from ..relax.expr import BindingBlock, Call, Constant, DataflowBlock, Expr, Function, Var, const, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..relax.scalars import const_int
from ..relax.struct_info import TensorStructInfo
from ..target import Target
from .base import map_relax_functions
from ..ir.plain import plain_bool, plain_int
from ..ir.declared_pass import ModuleRewrite

__all__ = ["CPULayoutPacking"]

_TO = (0, 2, 3, 1)
_FROM = (0, 3, 1, 2)
_POOL = {"nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"}


def _shape(expr: Expr) -> tuple[int | None, ...] | None:
    """The extents of a tensor, None for each that is known only at run time; None where not even their number is."""
    info = expr.struct_info_
    dims = info.dims() if isinstance(info, TensorStructInfo) else None
    return None if dims is None else tuple(const_int(extent) for extent in dims)


class _Layout(PyExprMutator):
    """Rebuilds a function, remembering for each variable its channels-last twin."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.twins: dict[Any, Any] = {}

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        """Twins are variables of the block and mean nothing outside it."""
        before, self.twins = self.twins, {}
        made = super().visit_dataflow_block_(block)
        self.twins = before
        return made

    def visit_call_(self, op: Call) -> Expr:
        """Convert a call whose operator has a channels-last form."""
        call = super().visit_call_(op)
        if not op_name_of(call):
            return call
        name = call.op.name.removeprefix("relax.")
        if name == "nn.conv2d":
            return self._conv(call)
        if name in _POOL:
            return self._pool(call)
        record = op_record_of(call.op)
        kind = None if record is None else record.kind
        if kind is ELEMENTWISE:
            twin = self._twin(call.args[0])
            return call if twin is None else self._back(Call(call.op, (twin, *call.args[1:]), call.attrs))
        if kind is BROADCAST:
            return self._binary(call)
        if name == "concat":
            return self._concat(call)
        if name == "mean":
            return self._mean(call)
        return call

    # ---- twins

    def _resolve(self, expr: Expr) -> Expr:
        while isinstance(expr, Var):
            if expr in self.twins:
                return expr
            bound = self.builder_.lookup_binding(expr)
            if not isinstance(bound, Var):
                return expr
            expr = bound
        return expr

    def _twin(self, expr: Expr) -> Any | None:
        resolved = self._resolve(expr)
        return self.twins.get(resolved) if isinstance(resolved, Var) else None

    def _forced(self, expr: Expr) -> Expr:
        """The channels-last twin, made by a permutation when there is none yet."""
        twin = self._twin(expr)
        if twin is not None:
            return twin
        if isinstance(expr, Constant):
            return const(np.ascontiguousarray(expr.data.numpy().transpose(_TO)))
        twin = self.builder_.emit(permute_dims(expr, list(_TO)))
        resolved = self._resolve(expr)
        if isinstance(resolved, Var):
            self.twins[resolved] = twin
        return twin

    def _back(self, call: Expr) -> Expr:
        """Emit a channels-last result and its channels-first alias, which dies when nobody needs it."""
        twin = self.builder_.emit(call)
        alias = self.builder_.emit(permute_dims(twin, list(_FROM)))
        self.twins[alias] = twin
        return alias

    # ---- operators

    def _conv(self, call: Call) -> Expr:
        data, weight = call.args
        a = call.attrs
        shape = _shape(data)
        if a.data_layout != "NCHW" or a.kernel_layout != "OIHW" or shape is None or not isinstance(weight, Constant):
            return call
        if a.get("out_layout") not in (None, "", "NCHW"):
            return call
        groups = plain_int(a.groups)
        kernel = weight.data.numpy()
        if groups != 1 and (kernel.shape[1] != 1 or kernel.shape[0] != groups):
            return call
        packed = const(np.ascontiguousarray(kernel.transpose(2, 3, 1, 0)))
        data, padding = self._without_pad(data, [int(n) for n in a.padding])
        made = conv2d(
            self._forced(data), packed, list(a.strides), padding, list(a.dilation), groups, "NHWC", "HWIO",
            "NHWC", a.get("out_dtype") or None,
        )  # fmt: skip
        return self._back(made)

    def _without_pad(self, data: Expr, padding: list[int]) -> tuple[Any, list[int]]:
        """A border of zeros around the image becomes padding of the convolution (top, left, bottom, right)."""
        source = self._resolve(data)
        bound = self.builder_.lookup_binding(source)
        if not is_call_of(bound, "relax.nn.pad"):
            return data, padding
        widths = [int(n) for n in bound.attrs.pad_width]
        if bound.attrs.pad_mode != "constant" or float(bound.attrs.pad_value) != 0.0 or any(widths[:4]):
            return data, padding
        if min(widths) < 0:
            return data, padding
        border = (widths[4], widths[6], widths[5], widths[7])
        return bound.args[0], [a + b for a, b in zip(padding, border, strict=True)]

    def _pool(self, call: Call) -> Expr:
        twin = self._twin(call.args[0])
        a = call.attrs
        if twin is None or a.layout != "NCHW" or a.get("out_layout") not in (None, "", "NCHW"):
            return call
        values = dict(a.items())
        values["layout"] = "NHWC"
        values["out_layout"] = "NHWC"
        return self._back(Call(call.op, (twin, *call.args[1:]), type(a)(values, a.type_name)))

    def _binary(self, call: Call) -> Expr:
        twins = [self._twin(arg) for arg in call.args]
        if all(twin is None for twin in twins):
            return call
        out = []
        for arg, twin in zip(call.args, twins, strict=True):
            shape = _shape(arg)
            if twin is not None:
                out.append(twin)
            elif shape is None:
                return call
            elif len(shape) == 4:
                if shape[2:] != (1, 1) and not isinstance(arg, Constant):
                    return call
                out.append(self._forced(arg))
            elif all(extent == 1 for extent in shape):
                out.append(arg)
            elif len(shape) == 3 and shape[1:] == (1, 1) and shape[0] is not None:
                out.append(self.builder_.emit(reshape(arg, (1, 1, shape[0]))))
            else:
                return call
        return self._back(Call(call.op, tuple(out), call.attrs))

    def _concat(self, call: Call) -> Expr:
        from ..relax.expr import Tuple

        parts = call.args[0]
        if isinstance(parts, Var):
            parts = self.builder_.lookup_binding(parts)
        axis = plain_int(call.attrs.axis)
        if not isinstance(parts, Tuple) or axis != 1:
            return call
        twins = [twin for twin in map(self._twin, parts.fields) if twin is not None]
        return self._back(concat(twins, 3)) if len(twins) == len(parts.fields) else call

    def _mean(self, call: Call) -> Expr:
        twin = self._twin(call.args[0])
        axes = call.attrs.get("axis")
        if twin is None or axes is None:
            return call
        wanted = sorted(plain_int(x) % 4 for x in axes)
        keepdims = plain_bool(call.attrs.keepdims)
        if wanted != [2, 3]:
            return call
        made = mean(twin, [1, 2], keepdims)
        return self._back(made) if keepdims else made


class CPULayoutPacking(ModuleRewrite):
    """Keep activations channels-last around convolutions and permute constant weights to match; see the module."""

    target: Target | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        layout = _Layout(mod)

        def convert(_: GlobalVar, func: Function) -> Function:
            made: Function = layout.visit_expr(func)
            return made

        from .canonicalize_bindings import CanonicalizeBindings
        from .dead_code_elimination import DeadCodeElimination

        changed = map_relax_functions(mod, convert)
        if changed is mod:
            return mod
        return DeadCodeElimination()(CanonicalizeBindings()(changed))
