"""Recurrent layers: RNN, GRU and LSTM, in either direction and both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int
from ....support.errors import OpAttributeInvalid
from ....topi.recurrent import Activation, Cell, lanes_of, padded, recurrence
from ..context import Context, convert, Dim


def _scaled(x: PrimExpr, alpha: float, beta: float) -> PrimExpr:
    return x * tir.const(alpha, x.dtype) + tir.const(beta, x.dtype)


def _clipped(x: PrimExpr, low: float, high: float) -> PrimExpr:
    return tir.max(tir.min(x, tir.const(high, x.dtype)), tir.const(low, x.dtype))


def _elu(x: PrimExpr, alpha: float) -> PrimExpr:
    below = tir.const(alpha, x.dtype) * (tir.exp(x) - tir.const(1, x.dtype))
    return tir.Select(x < tir.const(0, x.dtype), below, x)


def _softplus(x: PrimExpr) -> PrimExpr:
    # log(1 + e^x) without overflow.
    zero, one = tir.const(0, x.dtype), tir.const(1, x.dtype)
    return tir.max(x, zero) + tir.log(one + tir.exp(-tir.abs(x)))


#: The functions of the standard: name to (alpha, beta) -> function, and the default alpha and beta.
_FUNCTIONS: dict[str, tuple[Callable[[float, float], Activation], float, float]] = {
    "sigmoid": (lambda a, b: tir.sigmoid, 0, 0),
    "tanh": (lambda a, b: tir.tanh, 0, 0),
    "relu": (lambda a, b: lambda x: tir.max(x, tir.const(0, x.dtype)), 0, 0),
    "affine": (lambda a, b: lambda x: _scaled(x, a, b), 1, 0),
    "leakyrelu": (lambda a, b: lambda x: tir.Select(x < tir.const(0, x.dtype), _scaled(x, a, 0), x), 0.01, 0),
    "thresholdedrelu": (
        lambda a, b: lambda x: tir.Select(x > tir.const(a, x.dtype), x, tir.const(0, x.dtype)),
        1,
        0,
    ),
    "scaledtanh": (lambda a, b: lambda x: _scaled(tir.tanh(_scaled(x, b, 0)), a, 0), 1, 1),
    "hardsigmoid": (lambda a, b: lambda x: _clipped(_scaled(x, a, b), 0, 1), 0.2, 0.5),
    "elu": (lambda a, b: lambda x: _elu(x, a), 1, 0),
    "softsign": (lambda a, b: lambda x: x / (tir.const(1, x.dtype) + tir.abs(x)), 0, 0),
    "softplus": (lambda a, b: _softplus, 0, 0),
}
#: The functions of a cell that says nothing.
_DEFAULTS = {"rnn": ["Tanh"], "gru": ["Sigmoid", "Tanh"], "lstm": ["Sigmoid", "Tanh", "Tanh"]}
#: Functions that take alpha, and those that take beta as well: they share the lists of the attributes in order.
_TAKE_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
_TAKE_BETA = {"affine", "scaledtanh", "hardsigmoid"}


def _functions(kind: str, attrs: dict[str, Any], directions: int) -> list[list[Activation]]:
    """The functions of each direction."""
    names = [n.lower() for n in attrs.get("activations", _DEFAULTS[kind] * directions)]
    alphas, betas = list(attrs.get("activation_alpha", [])), list(attrs.get("activation_beta", []))
    count = len(_DEFAULTS[kind])
    if len(names) != count * directions:
        raise OpAttributeInvalid(f"{kind.upper()} needs {count} activations for each of {directions} directions")
    made = []
    for name in names:
        if name not in _FUNCTIONS:
            raise OpAttributeInvalid(f"activation {name!r} is not one of {', '.join(_FUNCTIONS)}")
        make, alpha, beta = _FUNCTIONS[name]
        alpha = alphas.pop(0) if name in _TAKE_ALPHA and alphas else alpha
        beta = betas.pop(0) if name in _TAKE_BETA and betas else beta
        made.append(make(float(alpha), float(beta)))
    return [made[k * count : (k + 1) * count] for k in range(directions)]


class _Layer:
    """One node: its weights by direction, brought into the forms of the kernel."""

    def __init__(self, ctx: Context, kind: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
        self.ctx, self.kind, self.attrs = ctx, kind, attrs
        given = [*inputs, *[None] * (8 - len(inputs))]
        self.x, self.w, self.r, self.b, self.lengths, self.h0, self.c0, self.peepholes = given
        for name, value in (("input", self.x), ("initial state", self.h0), ("initial cell", self.c0)):
            if value is not None and ctx.ndim(value) != 3:
                raise OpAttributeInvalid(f"the {name} of {kind.upper()} has three axes, not {ctx.ndim(value)}")
        found = const_int(ctx.dims(self.r)[2])
        if found is None:
            raise OpAttributeInvalid(f"{kind.upper()} needs recurrent weights of known shape")
        self.hidden = found
        self.batch_first = bool(attrs.get("layout", 0))
        self.x = ctx.tensor(self.x)
        if self.batch_first:
            self.x = ctx.emit(op.permute_dims(self.x, [1, 0, 2]))
        self.dtype = ctx.dtype(self.x)
        batch, directions = ctx.dims(self.x)[1], 2 if "bidirectional" in str(attrs.get("direction", "")).lower() else 1
        state: list[Dim] = [batch, directions, found] if self.batch_first else [directions, batch, found]
        self.h0, self.c0 = (v if v is None else ctx.fitted(v, state) for v in (self.h0, self.c0))
        if self.lengths is not None:
            self.lengths = ctx.fitted(ctx.tensor(self.lengths), [batch])
        direction = str(attrs.get("direction", "forward")).lower()
        if direction not in ("forward", "reverse", "bidirectional"):
            raise OpAttributeInvalid(f"direction {direction!r} is not forward, reverse or bidirectional")
        self.reversed = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]

    @property
    def gates(self) -> int:
        return {"rnn": 1, "gru": 3, "lstm": 4}[self.kind]

    def part(self, x: Expr, direction: int) -> Expr:
        """Slice of a stacked operand for one direction, without the axis of directions."""
        known = self.ctx.constant(x)
        if known is not None:
            return self.ctx.const(known[direction], str(known.dtype))
        return self.ctx.emit(op.take(self.ctx.tensor(x), self.ctx.const(direction, "int64"), 0))

    def by_gate(self, x: Expr, tail: list[int | PrimExpr]) -> Expr:
        """(gates * units, ...) as (gates, padded units, ...)."""
        ctx, extra = self.ctx, padded(self.hidden) - self.hidden
        x = ctx.emit(ctx.reshape(x, [self.gates, self.hidden, *tail]))
        if not extra:
            return x
        return ctx.emit(op.nn.pad(x, [0, 0, 0, extra] + [0, 0] * len(tail)))

    def settled(self, x: Expr, form: Callable[[Expr], Expr], fold: Callable[[Any], Any]) -> Expr:
        """Weights in another form: now if they are constants."""
        known = self.ctx.constant(x)
        return form(x) if known is None else self.ctx.const(np.ascontiguousarray(fold(known)), str(known.dtype))

    def padded_array(self, x: Any) -> np.ndarray[Any, Any]:
        split = x.reshape(self.gates, self.hidden, *x.shape[1:])
        return np.pad(split, [(0, 0), (0, padded(self.hidden) - self.hidden)] + [(0, 0)] * (x.ndim - 1))

    def input_weights(self, direction: int) -> Expr:
        """(inputs, gates * padded units)."""
        ctx, columns = self.ctx, self.gates * padded(self.hidden)

        def form(x: Expr) -> Expr:
            wide = self.by_gate(x, [ctx.dims(x)[1]])
            return ctx.emit(op.permute_dims(ctx.emit(ctx.reshape(wide, [columns, ctx.dims(x)[1]])), [1, 0]))

        return self.settled(
            self.part(self.w, direction), form, lambda a: self.padded_array(a).reshape(columns, a.shape[1]).T
        )

    def state_weights(self, direction: int) -> Expr:
        """(gates * padded units / lanes, units, lanes)."""
        ctx, lanes = self.ctx, lanes_of(self.hidden)
        shape = [self.gates * padded(self.hidden) // lanes, lanes, self.hidden]

        def form(x: Expr) -> Expr:
            return ctx.emit(op.permute_dims(ctx.emit(ctx.reshape(self.by_gate(x, [self.hidden]), [*shape])), [0, 2, 1]))

        return self.settled(
            self.part(self.r, direction), form, lambda a: self.padded_array(a).reshape(shape).transpose(0, 2, 1)
        )

    def biases(self, direction: int, after: bool) -> tuple[Expr, Expr | None]:
        """Biases of the products with the inputs, and the bias of the product with the state below a reset gate."""
        ctx, width = self.ctx, self.gates * self.hidden
        both = ctx.emit(ctx.reshape(self.part(self.b, direction), [2, width]))
        inner, outer = (self.part(both, k) for k in (0, 1))
        apart = None
        if after:
            rows = ctx.emit(ctx.reshape(outer, [3, self.hidden]))
            apart = self.part(rows, 2)
            mask = np.repeat([1, 1, 0], self.hidden)
            outer = ctx.emit(op.multiply(outer, ctx.const(mask, self.dtype)))
        total = ctx.emit(op.add(inner, outer))
        return ctx.emit(ctx.reshape(self.by_gate(total, []), [self.gates * padded(self.hidden)])), apart

    def begin(self, x: Expr | None, direction: int) -> Expr:
        """The state before the first step, (batch, units)."""
        ctx = self.ctx
        if x is None:
            return ctx.emit(op.zeros([ctx.dims(self.x)[1], self.hidden], self.dtype))
        x = ctx.tensor(x)
        if self.batch_first:
            x = ctx.emit(op.permute_dims(x, [1, 0, 2]))
        return self.part(x, direction)

    def run(self, direction: int, functions: list[Activation]) -> list[Expr]:
        """One direction: all hidden states (steps, batch, units), the last one, and the last cell of an LSTM."""
        ctx = self.ctx
        clip = self.attrs.get("clip")
        after = self.kind == "gru" and bool(self.attrs.get("linear_before_reset", 0))
        cell = Cell(
            self.kind,
            tuple(functions),
            None if clip is None else float(clip),
            bool(self.attrs.get("input_forget", 0)),
            after,
        )
        products = ctx.emit(op.matmul(self.x, self.input_weights(direction)))
        apart = None
        if self.b is not None:
            bias, apart = self.biases(direction, after)
            products = ctx.emit(op.add(products, bias))
        states = [self.begin(self.h0, direction)]
        if self.kind == "lstm":
            states.append(self.begin(self.c0, direction))
        optional = {
            "bias": apart,
            "peepholes": None if self.peepholes is None else self.part(self.peepholes, direction),
            "lengths": None if self.lengths is None else ctx.tensor(self.lengths),
        }
        there = {name: value for name, value in optional.items() if value is not None}
        reverse = self.reversed[direction]

        def kernel(
            gates: te.Tensor, weights: te.Tensor, initial: list[te.Tensor], *extra: te.Tensor
        ) -> list[te.Tensor]:
            return recurrence(cell, gates, weights, initial, reverse=reverse, **dict(zip(there, extra)))

        made = ctx.builder.emit_te(
            kernel, products, self.state_weights(direction), states, *there.values(), primfunc_name_hint=self.kind
        )
        return [ctx.builder.emit(made[k]) for k in range(3 if self.kind == "lstm" else 2)]

    def results(self) -> list[Expr]:
        """The outputs of the node."""
        ctx, count = self.ctx, len(self.reversed)
        functions = _functions(self.kind, self.attrs, count)
        parts = [self.run(k, functions[k]) for k in range(count)]
        joined = []
        for number, rows in enumerate(zip(*parts)):
            axis = 1 if number == 0 else 0
            wide = [ctx.emit(op.expand_dims(row, axis)) for row in rows]
            out = wide[0] if count == 1 else ctx.emit(op.concat(wide, axis))
            if self.batch_first:
                out = ctx.emit(op.permute_dims(out, [2, 0, 1, 3] if number == 0 else [1, 0, 2]))
            joined.append(out)
        return joined


@convert("RNN")
def _rnn(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    return _Layer(ctx, "rnn", inputs, attrs).results()


@convert("GRU")
def _gru(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    return _Layer(ctx, "gru", inputs, attrs).results()


@convert("LSTM")
def _lstm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    return _Layer(ctx, "lstm", inputs, attrs).results()


@convert("DynamicQuantizeLSTM", domain="com.microsoft")
def _quantised_lstm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    """An LSTM whose weights are bytes, inputs before gates. It computes with the numbers that they stand for, and so is
    closer to the model before it was quantised than one that rounds states to bytes."""

    def weights(at: int, settings: int) -> Expr:
        value, scale, zero = (
            ctx.need_constant(inputs[k], "weights of DynamicQuantizeLSTM, their scales and zero points")
            for k in (at, settings, settings + 1)
        )
        scale, zero = (x.reshape(value.shape[0], 1, -1) for x in (scale, zero))
        numbers = (value.astype("float32") - zero.astype("float32")) * scale
        return ctx.const(np.ascontiguousarray(numbers.transpose(0, 2, 1)), "float32")

    if len(inputs) < 12:
        raise OpAttributeInvalid("DynamicQuantizeLSTM needs scales and zero points of both weights")
    return _Layer(ctx, "lstm", [inputs[0], weights(1, 8), weights(2, 10), *inputs[3:8]], attrs).results()
