"""PadFewChannels: an image of three channels gets eight, so that a pixel is 16 bytes."""

from __future__ import annotations


from ....ir.declared_pass import ModuleRewrite
from ....ir.expr import RelaxExpr
from ....ir.module import IRModule
from ....op import nn
from ....relax.expr import Call, Expr, Function, is_call_of
from ....relax.expr_functor import PyExprMutator
from ....relax.scalars import const_int
from ....transform.base import map_relax_functions
from ..codegen.hoist_split import known_at_compile_time
from ....ir.plain import plain_int

__all__ = ["PadFewChannels"]

_CHANNELS = 8
_DTYPES = ("float16", "bfloat16")


class _Pad(PyExprMutator):
    def __init__(self, mod: IRModule, func: Function) -> None:
        super().__init__(mod)
        self.values = {b.var: b.value for block in func.body.blocks for b in block.bindings}

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.nn.conv2d") or not self._wants(op):
            return call
        data, weight = (self.builder_.emit(self._padded(e)) for e in call.args)
        return Call(call.op, (data, weight), call.attrs)

    def _wants(self, call: Call) -> bool:
        a, (data, weight) = call.attrs, call.args
        if a.data_layout != "NHWC" or a.kernel_layout != "OHWI" or data.struct_info.dtype not in _DTYPES:
            return False
        if plain_int(a.groups) != 1 or data.struct_info.dims() is None:
            return False
        channels = const_int(data.struct_info.dims()[-1])
        return channels is not None and channels < _CHANNELS and known_at_compile_time(weight, self.values)

    @staticmethod
    def _padded(expr: RelaxExpr) -> Expr:
        more = _CHANNELS - (const_int(expr.struct_info.dims()[-1]) or 0)
        return nn.pad(expr, [0] * 7 + [more])


class PadFewChannels(ModuleRewrite):
    """Convolutions with channels last, known weights and fewer than eight channels get zeros for the missing ones.

    Before and after::

        y = R.nn.conv2d(x, w, ...)      # 3 channels    ->    x8 = R.nn.pad(x, (0, 0, 0, 0, 0, 0, 0, 5))
                                                              y = R.nn.conv2d(x8, w8, ...)

    The first layer of an image network reads its image by pixels: 16 bytes each are copied to shared memory without
    waiting, while 6 are loaded and stored two at a time. Whatever brought the image to this layout pads it, too.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: _Pad(mod, func).visit_expr(func))
