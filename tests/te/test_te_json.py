"""Tensor expressions are stored as JSON with all that they are computed from, and brought back."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish as rx
from relaxish import te, tir
from relaxish.ir import assert_structural_equal, load_json, save_json


def _run(tensors: list[te.Tensor], *given: np.ndarray) -> np.ndarray:
    kernel = rx.tir.build(te.create_prim_func(tensors).with_attr("global_symbol", "main"), target="llvm")["main"]
    out = rx.nd.empty([int(d) for d in tensors[-1].shape], tensors[-1].dtype)
    kernel(*(rx.nd.array(g) for g in given), out)
    return out.numpy()


def test_compute_and_reduction() -> None:
    a = te.placeholder((4, 5), name="A")
    b = te.compute((4, 5), lambda i, j: a[i, j] * 2 + a[i, 0], name="B")
    k = te.reduce_axis((0, 5), name="k")
    c = te.compute((4,), lambda i: te.sum(b[i, k] * b[i, k], axis=k), name="C", tag="mine", attrs={"x": 1})
    inputs, out = load_json(save_json([[a], c]))
    assert isinstance(out, te.Tensor) and isinstance(out.op, te.ComputeOp)
    assert (out.op.name, out.op.tag, out.op.attrs) == ("C", "mine", {"x": 1})
    (middle,) = out.op.input_tensors
    # What is shared stays shared.
    assert set(middle.op.input_tensors) == {inputs[0]} and isinstance(inputs[0].op, te.PlaceholderOp)
    assert_structural_equal(te.create_prim_func([*inputs, out]), te.create_prim_func([a, c]))
    x = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
    np.testing.assert_allclose(_run([*inputs, out], x), ((2 * x + x[:, :1]) ** 2).sum(1), rtol=1e-5)


def test_symbolic_shapes() -> None:
    n = te.var("n")
    a = te.placeholder((n, 2), "int32", "A")
    b = te.compute((n, 2), lambda i, j: a[i, j] + i, name="B")
    made = load_json(save_json(b.op))
    assert isinstance(made, te.ComputeOp)
    (source,) = made.input_tensors
    assert source.shape[0].same_as(made.output(0).shape[0])


def test_several_outputs_are_of_one_operation() -> None:
    a = te.placeholder((6,), name="A")
    b, c = te.compute((6,), lambda i: (a[i] + 1, a[i] * 2), name="B")
    first, second = load_json(save_json([b, c]))
    assert first.op is second.op and (first.value_index, second.value_index) == (0, 1)


def test_extern_and_scan() -> None:
    a = te.placeholder((4,), name="A")

    def double(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        i = tir.Var("i", "int32")
        return tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(outs[0], tir.BufferLoad(ins[0], [i]) * 2, [i]))

    b = te.extern((4,), [a], double, name="B", dtype="float32")
    (source, made) = load_json(save_json([a, b]))
    assert isinstance(made.op, te.ExternOp)
    x = np.random.default_rng(1).standard_normal(4).astype("float32")
    np.testing.assert_array_equal(_run([source, made], x), 2 * x)

    m, n = te.var("m"), te.var("n")
    rows, state = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="S")
    init = te.compute((1, n), lambda _, i: rows[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + rows[t, i])
    scan = load_json(save_json(te.scan(init, update, state, inputs=[rows])))
    assert isinstance(scan.op, te.ScanOp) and len(scan.op.update) == 1


@pytest.mark.parametrize("change", ['"k": "te.Nothing"', '"k": "te.Tensor"'])
def test_malformed(change: str) -> None:
    text = save_json(te.placeholder((2,), name="A"))
    assert '"k": "te.PlaceholderOp"' in text
    with pytest.raises(ValueError):
        load_json(text.replace('"k": "te.PlaceholderOp"', change))
