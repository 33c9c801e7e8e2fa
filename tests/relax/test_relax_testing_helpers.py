"""Helpers that tests of graph programs use."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import IRModule, relax, tir
from relaxish.ir import assert_structural_equal, load_json, save_json
from relaxish.relax.testing import dump_ast, get_relax_matmul_module, nn
from relaxish.relax.testing.transform import dataflow_inplace_analysis, dataflow_liveness_analysis
from relaxish.relax.testing.vm import check_saved_func
from relaxish.script import ir as I
from relaxish.script import relax as R


def test_layers_build_a_function():
    bb = relax.BlockBuilder()
    with bb.function("main"):
        model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3, bias=False), nn.LogSoftmax())
        data = nn.Placeholder((2, 8), name="data")
        output = model(data)
        params = [data, *model.parameters()]
        bb.emit_func_output(output, params=params)
    mod = bb.finalize()
    assert len(params) == 4
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    args = nn.init_params(mod)
    result = check_saved_func(vm, "main", *args)
    x, w, b, v = (a.numpy() for a in args)
    logits = np.maximum(x @ w + b, 0) @ v
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_expressions_are_emitted_into_a_function():
    weight = nn.Parameter((2, 2), name="w")
    assert weight.name_hint == "w"
    with pytest.raises(RuntimeError):
        nn.emit(weight + weight)


@pytest.mark.parametrize(
    ("segments", "last", "marks"),
    # Three functions in two segments: pieces of one function each, and what is left over.
    [
        (2, False, 2),
        (2, True, 3),
        (1, False, 0),
        (1, True, 1),
        ([1, 3], True, 2),
        ([0, 1, 3], False, 1),
        ([1], True, 2),
    ],
)
def test_checkpoints_in_sequence(segments, last, marks):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = nn.emit_checkpoint_sequential([lambda v: nn.emit(R.exp(v))] * 3, segments, x, checkpoint_last=last)
            gv = bb.emit_output(R.sum(out))
        bb.emit_func_output(gv)
    assert bb.get()["main"].script().count("end_checkpoint") == marks


def test_matmul_module():
    mod = get_relax_matmul_module((2, 3), (4, 3), "float32", "float32", True, (4,), R.nn.relu)
    assert [b.value.op.name for b in mod["main"].body.blocks[0].bindings[:4]] == [
        "relax.permute_dims", "relax.matmul", "relax.add", "relax.nn.relu",
    ]  # fmt: skip


def test_liveness():
    @R.function(private=True)
    def func(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.add(a, a)
            c = R.nn.relu(b)
            R.output(c)
        return c

    (block,) = func.body.blocks
    ranges = {v.name_hint: r for v, r in dataflow_liveness_analysis(block).items()}
    assert ranges == {"x": (-1, 3), "a": (0, 1), "b": (1, 2), "c": (2, 3)}
    assert dataflow_inplace_analysis(block, [], IRModule({"func": func}))[1] == [(1, {0, 1}), (2, {0})]


def test_dump_ast():
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    bare = {"include_struct_info_annotations": False}
    assert dump_ast(x, **bare) == 'Var(name_hint="x")'
    assert dump_ast(relax.ExternFunc("f")) == 'ExternFunc(global_symbol="f")'
    assert dump_ast(relax.const(1, "int32"), **bare) == "Constant(data=1)"
    assert (
        dump_ast(relax.TensorStructInfo(dtype="float32", ndim=2))
        == "TensorStructInfo(\n    dtype=float32,\n    ndim=2\n)"
    )
    text = dump_ast(R.add(x, x), **bare)
    assert (
        text
        == 'Call(\n    op=Op(name="relax.add"),\n    args=[\n        Var(name_hint="x"),\n        Var(name_hint="x")\n    ]\n)'
    )

    @R.function
    def func(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.permute_dims(x, axes=[0])
            R.output(y)
        return y

    text = dump_ast(func)
    assert "DataflowBlock(bindings=[" in text and '"axes": [0]' in text and '"global_symbol": "func"' in text
    assert "attrs" not in dump_ast(func.body, include_call_attrs=False)
    assert "checked_type_=DynTensorType" in dump_ast(func, include_type_annotations=True)
    with pytest.raises(ValueError, match="Invalid node"):
        dump_ast(object())


def test_attention_modules():
    from relaxish.relax.testing import get_relax_attention_module, get_relax_stacked_attention_module

    shape = (2, 8, 4, 16)
    mod = get_relax_attention_module(
        shape, shape, shape, dtype="float16", bias_shape=(2, 4, 8, 8), causal_mask="TopLeft"
    )
    assert [p.name_hint for p in mod["main"].params] == ["q", "k", "v", "bias"]
    assert str(mod["main"].ret_struct_info) == 'R.Tensor((2, 8, 4, 16), dtype="float16")'
    stacked = np.zeros((2, 8, 4 * (16 + 16 + 8)), "float32")
    for op in ("split", "strided_slice"):
        made = get_relax_stacked_attention_module(stacked, 2, 8, 4, 16, 8, op)
        assert str(made["main"].ret_struct_info) == 'R.Tensor((2, 8, 4, 8), dtype="float32")'
    with pytest.raises(NotImplementedError):
        get_relax_stacked_attention_module(stacked, 2, 8, 4, 16, 8, "take")


class SiluLayer(nn.Module):
    define_subroutine = True

    def forward(self, state):
        return nn.emit(relax.op.nn.silu(state))


class Layer(nn.Module):
    define_subroutine = True

    def __init__(self, size):
        self.weights = nn.Parameter((size, size), name="weights")
        self.parts = [SiluLayer()]

    def forward(self, input):
        return self.parts[0](nn.emit(relax.op.matmul(input, self.weights)))


@I.ir_module
class _Layers:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"), a: R.Tensor((8, 8), "float32"), b: R.Tensor((8, 8), "float32")
    ) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            first = _Layers.layer(x, a)
            second = _Layers.layer(first, b)
            out = second
            R.output(out)
        return out

    @R.function(private=True)
    def layer(x: R.Tensor(("m", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(("m", 8), "float32"):
        with R.dataflow():
            y = R.matmul(x, w)
            z = _Layers.silu_layer(y)
            out = z
            R.output(out)
        return out

    @R.function(private=True)
    def silu_layer(x: R.Tensor(("k", 8), "float32")) -> R.Tensor(("k", 8), "float32"):
        with R.dataflow():
            y = R.nn.silu(x)
            out = y
            R.output(out)
        return out


def test_layers_as_subroutines():
    """Calls of a layer are calls of one function, whose dimensions are its own; its weights stay those of the caller."""
    layers = [Layer(8), Layer(8)]
    builder = relax.BlockBuilder()
    data = nn.Placeholder((tir.Var("n", "int64"), 8), name="x")
    with builder.function("main", [data, *layers[0].parameters(), *layers[1].parameters()]):
        with builder.dataflow():
            out = builder.emit_output(layers[1](layers[0](data)))
        builder.emit_func_output(out)
    mod = builder.get()
    assert_structural_equal(mod, _Layers)
    assert_structural_equal(load_json(save_json(mod)), _Layers)
    rng = np.random.default_rng(2)
    x, a, b = (rng.standard_normal(s).astype("float32") for s in ((5, 8), (8, 8), (8, 8)))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), relaxish.cpu())
    found = vm["main"](*[relaxish.nd.array(v) for v in (x, a, b)]).numpy()

    def silu(v):
        return v / (1 + np.exp(-v))

    np.testing.assert_allclose(found, silu(silu(x @ a) @ b), rtol=1e-5, atol=1e-5)
