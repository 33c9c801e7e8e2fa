"""Recurrent layers: all steps of one direction as one kernel.

The products with the inputs of all steps are one dense product outside. What follows one after the other is the product
of the state with the recurrent weights and the cell itself; rows of a batch are independent of each other. Weights of the
state come packed by :func:`packed_shape`, so that a step reads them once, from front to back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from .. import te, tir
from ..ir.prim import const_int
from ..tir import Buffer, const, For, ForKind, IfThenElse, IntImm, PrimExpr, Stmt, Var
from .loops import in_parallel, loop, loops, read, seq, write

__all__ = ["Activation", "Cell", "lanes_of", "padded", "recurrence"]

#: A function of the cell, of one element.
Activation = Callable[[PrimExpr], PrimExpr]

#: Rows of a batch that share one reading of the weights.
_ROWS = 4
#: Units that the functions of a cell are applied to at once.
_UNITS = 16


@dataclasses.dataclass(frozen=True)
class Cell:
    """The kind of a recurrent layer: ``"rnn"`` (one gate), ``"gru"`` (update, reset, hidden) or ``"lstm"`` (input,
    output, forget, cell), with its functions in the order of the ONNX standard.

    ``clip`` bounds the gates, the inputs of the functions, on both sides (None leaves them). ``coupled`` makes the forget gate of an
    LSTM one less the input gate. ``reset_after`` applies the reset gate of a GRU to the product of the state with the
    weights rather than to the state.
    """

    kind: str
    functions: tuple[Activation, ...]
    clip: float | None = None
    coupled: bool = False
    reset_after: bool = False

    @property
    def gates(self) -> int:
        """Products a step makes of the state."""
        return {"rnn": 1, "gru": 3, "lstm": 4}[self.kind]

    def function(self, which: int, x: PrimExpr) -> PrimExpr:
        """The ``which``-th function of the clipped ``x``."""
        if self.clip is not None:
            bound = const(self.clip, x.dtype)
            x = tir.max(tir.min(x, bound), -bound)
        return self.functions[which](x)


def lanes_of(hidden: int) -> int:
    """Columns of a gate that are computed at once: many registers hide the latency of a sum, but not padding."""
    return next((w for w in (64, 32) if 10 * (-(-hidden // w) * w) <= 13 * hidden), 16)


def padded(hidden: int) -> int:
    """Columns that a gate of ``hidden`` units takes: whole groups of :func:`lanes_of`."""
    lanes = lanes_of(hidden)
    return -(-hidden // lanes) * lanes


def _vectorized(lanes: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    lane = Var("lane", "int64")
    return For(lane, const(0, "int64"), const(lanes, "int64"), ForKind.VECTORIZED, body(lane))


class _Steps:
    """The statements of the steps of some rows of a batch."""

    def __init__(
        self, cell: Cell, ins: dict[str, Buffer], outs: dict[str, Buffer], hidden: int, rows: int, reverse: bool
    ) -> None:
        self.cell, self.ins, self.outs, self.hidden, self.rows, self.reverse = cell, ins, outs, hidden, rows, reverse
        self.lanes, self.width = lanes_of(hidden), padded(hidden)
        self.dtype = outs["sums"].dtype

    def at(self, batch: PrimExpr, row: int) -> PrimExpr:
        return batch * self.rows + row if self.rows > 1 else batch

    def of_rows(self, body: Callable[[int], Stmt]) -> Stmt:
        return seq(*(body(row) for row in range(self.rows)))

    def of_units(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """All units, the most of them by vectors."""
        whole = self.hidden // _UNITS
        rest = whole * _UNITS
        parts = []

        def vector(j: PrimExpr) -> Stmt:
            return _vectorized(_UNITS, lambda lane: body(j * _UNITS + lane))

        if whole:
            parts.append(loop("j", const(whole, "int64"), vector))
        if rest < self.hidden:
            parts.append(loop("j", const(self.hidden - rest, "int64"), lambda j: body(j + rest)))
        return seq(*parts)

    def begin(self, batch: PrimExpr) -> Stmt:
        """The state before the first step."""

        def one(row: int) -> Stmt:
            at = self.at(batch, row)
            names = ["hidden", "cell"] if self.cell.kind == "lstm" else ["hidden"]
            return self.of_units(lambda j: seq(*(write(self.outs[n], read(self.ins[n], at, j), at, j) for n in names)))

        return self.of_rows(one)

    def product(self, batch: PrimExpr, step: PrimExpr, state: Buffer, first: int, gates: int, given: bool) -> Stmt:
        """``sums`` of some gates: the product of the state, added to what the inputs gave if ``given``."""
        blocks, lanes, sums = self.width // self.lanes, self.lanes, self.outs["sums"]

        def block(number: PrimExpr) -> Stmt:
            group = number + first * blocks
            column = group * lanes

            def start(row: int) -> Stmt:
                at = self.at(batch, row)
                zero = const(0, self.dtype)

                def begin(lane: PrimExpr) -> Stmt:
                    value = read(self.ins["gates"], step, at, column + lane).astype(self.dtype) if given else zero
                    return write(sums, value, at, column + lane)

                return _vectorized(lanes, begin)

            def add(k: PrimExpr) -> Stmt:
                def one(row: int) -> Stmt:
                    at = self.at(batch, row)
                    value = read(state, at, k).astype(self.dtype)

                    def term(lane: PrimExpr) -> Stmt:
                        weight = read(self.ins["weights"], group, k, lane).astype(self.dtype)
                        return write(sums, read(sums, at, column + lane) + value * weight, at, column + lane)

                    return _vectorized(lanes, term)

                return self.of_rows(one)

            return seq(self.of_rows(start), loop("k", const(self.hidden, "int64"), add))

        return loop("group", const(gates * blocks, "int64"), block)

    def gate(self, at: PrimExpr, number: int, j: PrimExpr) -> PrimExpr:
        return read(self.outs["sums"], at, j + number * self.width)

    def peeped(self, x: PrimExpr, which: int, cell: PrimExpr, j: PrimExpr) -> PrimExpr:
        """A gate of an LSTM that sees the cell."""
        if "peepholes" not in self.ins:
            return x
        return x + read(self.ins["peepholes"], j + which * self.hidden).astype(self.dtype) * cell

    def put(self, value: PrimExpr, at: PrimExpr, step: PrimExpr, j: PrimExpr) -> Stmt:
        """A new element of the state, which is a result as well."""
        new = Var("new", self.dtype)
        made = new.astype(self.outs["all"].dtype)
        return tir.LetStmt(
            new, value, seq(write(self.outs["hidden"], made, at, j), write(self.outs["all"], made, step, at, j))
        )

    def lstm(self, batch: PrimExpr, step: PrimExpr) -> Stmt:
        cell = self.cell

        def one(row: int) -> Stmt:
            at = self.at(batch, row)

            def unit(j: PrimExpr) -> Stmt:
                before = read(self.outs["cell"], at, j).astype(self.dtype)
                keep, after = Var("keep", self.dtype), Var("after", self.dtype)
                enter = cell.function(0, self.peeped(self.gate(at, 0, j), 0, before, j))
                forget = cell.function(0, self.peeped(self.gate(at, 2, j), 2, before, j))
                new = cell.function(1, self.gate(at, 3, j))
                leave = cell.function(0, self.peeped(self.gate(at, 1, j), 1, after, j))
                entered = Var("entered", self.dtype)
                kept = const(1, self.dtype) - entered if cell.coupled else forget
                body = seq(
                    write(self.outs["cell"], after.astype(self.outs["cell"].dtype), at, j),
                    self.put(leave * cell.functions[2](after), at, step, j),
                )
                body = tir.LetStmt(after, keep * before + entered * new, body)
                return tir.LetStmt(entered, enter, tir.LetStmt(keep, kept, body))

            return self.of_units(unit)

        return seq(self.product(batch, step, self.outs["hidden"], 0, 4, True), self.of_rows(one))

    def rnn(self, batch: PrimExpr, step: PrimExpr) -> Stmt:
        def one(row: int) -> Stmt:
            at = self.at(batch, row)
            return self.of_units(lambda j: self.put(self.cell.function(0, self.gate(at, 0, j)), at, step, j))

        return seq(self.product(batch, step, self.outs["hidden"], 0, 1, True), self.of_rows(one))

    def gru(self, batch: PrimExpr, step: PrimExpr) -> Stmt:
        cell, hidden = self.cell, self.outs["hidden"]

        def mixed(at: PrimExpr, j: PrimExpr, new: PrimExpr) -> Stmt:
            keep = Var("keep", self.dtype)
            before = read(hidden, at, j).astype(self.dtype)
            value = (const(1, self.dtype) - keep) * cell.function(1, new) + keep * before
            return tir.LetStmt(keep, cell.function(0, self.gate(at, 0, j)), self.put(value, at, step, j))

        def after(row: int) -> Stmt:
            at = self.at(batch, row)

            def unit(j: PrimExpr) -> Stmt:
                given = read(self.ins["gates"], step, at, j + 2 * self.width).astype(self.dtype)
                inner = self.gate(at, 2, j)
                if "bias" in self.ins:
                    inner = inner + read(self.ins["bias"], j).astype(self.dtype)
                return mixed(at, j, given + cell.function(0, self.gate(at, 1, j)) * inner)

            return self.of_units(unit)

        def reset(row: int) -> Stmt:
            at = self.at(batch, row)

            def unit(j: PrimExpr) -> Stmt:
                value = cell.function(0, self.gate(at, 1, j)) * read(hidden, at, j).astype(self.dtype)
                return write(self.outs["reset"], value, at, j)

            return self.of_units(unit)

        def before(row: int) -> Stmt:
            at = self.at(batch, row)
            return self.of_units(lambda j: mixed(at, j, self.gate(at, 2, j)))

        if cell.reset_after:
            return seq(
                self.product(batch, step, hidden, 0, 2, True),
                self.product(batch, step, hidden, 2, 1, False),
                self.of_rows(after),
            )
        return seq(
            self.product(batch, step, hidden, 0, 2, True),
            self.of_rows(reset),
            self.product(batch, step, self.outs["reset"], 2, 1, True),
            self.of_rows(before),
        )

    def whole(self, batch: PrimExpr) -> Stmt:
        """All steps of the rows of group ``batch``."""
        steps = self.ins["gates"].shape[0]
        step: Callable[[PrimExpr, PrimExpr], Stmt] = getattr(self, self.cell.kind)
        if "lengths" not in self.ins:
            last = steps - 1
            body = loop("t", steps, lambda t: step(batch, last - t if self.reverse else t))
        else:
            length = tir.max(
                tir.min(read(self.ins["lengths"], batch).astype(str(steps.dtype)), steps), const(0, str(steps.dtype))
            )
            known = Var("length", str(steps.dtype))

            def one(t: PrimExpr) -> Stmt:
                zero = const(0, self.outs["all"].dtype)
                nothing = self.of_units(lambda j: write(self.outs["all"], zero, t, batch, j))
                return IfThenElse(t < known, step(batch, known - 1 - t if self.reverse else t), nothing)

            body = tir.LetStmt(known, length, loop("t", steps, one))
        return seq(self.begin(batch), body)


def recurrence(
    cell: Cell,
    gates: te.Tensor,
    weights: te.Tensor,
    initial: Sequence[te.Tensor],
    bias: te.Tensor | None = None,
    peepholes: te.Tensor | None = None,
    lengths: te.Tensor | None = None,
    reverse: bool = False,
) -> list[te.Tensor]:
    """All steps of one direction of a recurrent layer.

    ``gates`` (steps, batch, gates * padded units) are the products with the inputs, biases included; ``weights``
    (gates * padded units / lanes, units, lanes) the packed weights of the state; ``initial`` the first hidden state (and
    the first cell of an LSTM), each (batch, units). ``bias`` (units) is that of a GRU's product under its reset gate,
    ``peepholes`` (3 * units) those of the input, output and forget gate. ``lengths`` (batch) are the steps that rows
    have: the rest of the result is 0, and ``reverse`` begins at the last of them.

    Returns the hidden states of all steps (steps, batch, units), the last one (batch, units), of an LSTM the last cell
    (batch, units), and buffers that only the kernel uses. Sums are kept in float32 if the tensors have 16 bits.
    """
    steps, batch = gates.shape[0], gates.shape[1]
    hidden = initial[0].shape[1]
    assert isinstance(hidden, IntImm)
    units, dtype = int(hidden.value), gates.dtype
    sums = "float32" if dtype in ("float16", "bfloat16") else dtype
    named = {"gates": gates, "weights": weights, "hidden": initial[0]}
    if cell.kind == "lstm":
        named["cell"] = initial[1]
    named |= {n: t for n, t in (("bias", bias), ("peepholes", peepholes), ("lengths", lengths)) if t is not None}
    results: dict[str, tuple[list[PrimExpr], str]] = {
        "all": ([steps, batch, hidden], dtype),
        "hidden": ([batch, hidden], dtype),
    }
    if cell.kind == "lstm":
        results["cell"] = ([batch, hidden], dtype)
    results["sums"] = ([batch, const(cell.gates * padded(units), "int64")], sums)
    if cell.kind == "gru" and not cell.reset_after:
        results["reset"] = ([batch, hidden], sums)
    known = const_int(batch, 0)
    rows = 1 if lengths is not None else next((r for r in (_ROWS, 2) if known and known % r == 0), 1)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        steps_of = _Steps(cell, dict(zip(named, ins)), dict(zip(results, outs)), units, rows, reverse)
        groups = [const(known // rows, "int64")] if known else [batch]
        return in_parallel(loops(groups, lambda at: steps_of.whole(at[0]), "b"))

    return list(
        te.extern(
            [tuple(shape) for shape, _ in results.values()],
            list(named.values()),
            body,
            cell.kind,
            [kind for _, kind in results.values()],
        )
    )
