"""The pass that replaces attention by kernels: what it finds, what it reads through, and whole models with it."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from attention_problems import expected

import relaxish
from relaxish import relax
from relaxish.backend.cuda.attention import DispatchAttention
from relaxish.ir import VDevice
from relaxish.relax import op
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

A100 = Target("nvidia/nvidia-a100", host="llvm")


def tensor(shape, dtype="float16"):
    return relax.TensorStructInfo(shape, dtype)


def graph(infos, emit):
    """A module whose ``main`` computes ``emit(builder, *params)``."""
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(emit(bb, *params))
        bb.emit_func_output(out)
    return bb.get()


def operators(mod):
    """How often each operator is called in ``main``."""
    text = mod["main"].script(show_meta=False)
    return Counter(
        name
        for name in re.findall(r"R\.([\w.]+)\(", text)
        if name not in ("Tensor", "shape", "output", "dataflow", "const")
    )


def kernels(mod):
    return sorted(g.name_hint for g in mod.functions if g.name_hint != "main")


def heads_forward(bb, *tensors):
    return [bb.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in tensors]


def run(mod, *arrays):
    with use_cuda_provider("emulator"):
        vm = relaxish.VirtualMachine(relaxish.compile(mod, A100), relaxish.cuda())
        return vm["main"](*[relaxish.nd.array(a, relaxish.cuda()) for a in arrays]).numpy()


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float16")


def projected(bb, x, parts=3):
    """Queries, keys and values of two heads of 32 from one tensor."""
    whole = bb.emit(op.split(x, parts, axis=2))
    found = []
    for i in range(parts):
        four = bb.emit(op.reshape(bb.emit(relax.TupleGetItem(whole, i)), [1, 24, 2, 32]))
        found.append(bb.emit(op.permute_dims(four, [0, 2, 1, 3])))
    return found


def test_transposes_and_splits_are_read_through():
    def emit(bb, x, mask):
        q, k, v = heads_forward(bb, *projected(bb, x))
        bias = bb.emit(op.broadcast_to(mask, [1, 2, 24, 24]))
        out = bb.emit(op.nn.attention(q, k, v, bias))
        [forward] = heads_forward(bb, out)
        [back] = heads_forward(bb, forward)
        return op.reshape(back, [1, 24, 64])

    mod = graph([tensor((1, 24, 192)), tensor((1, 1, 1, 24))], emit)
    made = DispatchAttention(A100)(mod)
    assert operators(made) == {"call_tir": 1, "reshape": 1}
    x, mask = normal(1, 24, 192), normal(1, 1, 1, 24, seed=1)
    right = expected(*(x[..., i * 64 : i * 64 + 64].reshape(1, 24, 2, 32) for i in range(3)), 32**-0.5, mask)
    assert np.abs(run(mod, x, mask) - right.reshape(1, 24, 64)).max() < 3e-3


def test_results_lie_as_their_users_want_them():
    shapes = [tensor((1, 2, 20, 32))] * 3

    def emit(bb, *qkv):
        return op.permute_dims(bb.emit(op.nn.attention(*heads_forward(bb, *qkv), causal_mask="TopLeft")), [0, 2, 1, 3])

    mod = graph(shapes, emit)
    made = DispatchAttention(A100)(mod)
    assert operators(made) == {"call_tir": 1}
    arrays = [normal(1, 2, 20, 32, seed=i) for i in range(3)]
    right = expected(*(a.transpose(0, 2, 1, 3) for a in arrays), 32**-0.5, None, "TopLeft").transpose(0, 2, 1, 3)
    assert np.abs(run(mod, *arrays) - right).max() < 3e-3


@pytest.mark.parametrize("how", ["repeat", "broadcast"])
def test_repeated_key_heads_are_not_written_out(how):
    def repeated(bb, x):
        if how == "repeat":
            return bb.emit(op.repeat(x, 2, 1))
        five = bb.emit(op.broadcast_to(bb.emit(op.expand_dims(x, 2)), [1, 2, 2, 40, 32]))
        return bb.emit(op.reshape(five, [1, 4, 40, 32]))

    def emit(bb, q, k, v):
        return op.nn.attention(*heads_forward(bb, q, repeated(bb, k), repeated(bb, v)))

    mod = graph([tensor((1, 4, 20, 32)), tensor((1, 2, 40, 32)), tensor((1, 2, 40, 32))], emit)
    made = DispatchAttention(A100)(mod)
    assert operators(made) == {"call_tir": 1}
    [kernel] = [f for g, f in made.functions.items() if g.name_hint == "attention"]
    assert [int(d) for d in kernel.buffer_map[kernel.params[1]].shape] == [1, 2, 40, 32]


@pytest.mark.parametrize("masked", ["added", "chosen", None])
def test_written_out_attention(masked):
    def emit(bb, q, k, v, mask):
        keys = bb.emit(op.permute_dims(k, [0, 1, 3, 2]))
        s = bb.emit(op.divide(bb.emit(op.matmul(q, keys)), relax.const(5.0, "float16")))
        if masked == "added":
            s = bb.emit(op.add(s, mask))
        elif masked == "chosen":
            s = bb.emit(
                op.where(bb.emit(op.greater(mask, relax.const(0, "float16"))), s, relax.const(-60000, "float16"))
            )
        s = bb.emit(op.astype(bb.emit(op.nn.softmax(bb.emit(op.astype(s, "float32")))), "float16"))
        return op.reshape(bb.emit(op.permute_dims(bb.emit(op.matmul(s, v)), [0, 2, 1, 3])), [1, 20, 64])

    shapes = [tensor(s) for s in ((1, 2, 20, 32), (1, 2, 40, 32), (1, 2, 40, 32), (1, 1, 20, 40))]
    mod = graph(shapes, emit)
    made = DispatchAttention(A100)(mod)
    assert kernels(made) == ["attention"]
    assert not {"matmul", "nn.softmax", "permute_dims"} & set(operators(made))
    q, k, v, mask = (normal(*[int(d) for d in s.shape], seed=i) for i, s in enumerate(shapes))
    bias = {"added": mask, "chosen": np.where(mask > 0, 0, -60000.0), None: None}[masked]
    right = expected(*(a.transpose(0, 2, 1, 3) for a in (q, k, v)), 0.2, bias).reshape(1, 20, 64)
    assert np.abs(run(mod, q, k, v, mask) - right).max() < 3e-3


def lowest_where_not(bb, visible, shape):
    mask = bb.emit(op.where(visible, relax.const(0, "float32"), relax.const(-3.4e38, "float32")))
    return bb.emit(op.astype(bb.emit(op.broadcast_to(mask, shape)), "float16"))


@pytest.mark.parametrize(("kind", "inputs"), [("all", 3), ("earlier", 3), ("near", 3), ("others", 4)])
def test_masks_known_when_compiling(kind, inputs):
    """``inputs``: of the kernel; a mask that hides nothing, or what is later, is none of them."""

    def emit(bb, q, k, v):
        at = bb.emit(op.arange(0, 20, 1, "int64"))
        rows, keys = bb.emit(op.expand_dims(at, [0, 1, 3])), bb.emit(op.expand_dims(at, [0, 1, 2]))
        zero = relax.const(0, "int64")
        visible = {
            "all": lambda: op.greater_equal(rows, zero), "earlier": lambda: op.less_equal(keys, rows),
            "others": lambda: op.not_equal(keys, rows),
            "near": lambda: op.logical_and(
                bb.emit(op.less_equal(keys, rows)),
                bb.emit(op.greater(keys, bb.emit(op.subtract(rows, relax.const(6, "int64"))))),
            ),
        }[kind]()  # fmt: skip
        visible = bb.emit(op.broadcast_to(bb.emit(visible), [1, 1, 20, 20]))
        return op.nn.attention(q, k, v, lowest_where_not(bb, visible, [1, 2, 20, 20]))

    mod = graph([tensor((1, 20, 2, 32))] * 3, emit)
    made = DispatchAttention(A100)(mod)
    [kernel] = [f for g, f in made.functions.items() if g.name_hint == "attention"]
    assert len(kernel.params) == inputs + 1
    assert set(operators(made)) == ({"call_tir"} if inputs == 3 else set(operators(made)))
    arrays = [normal(1, 20, 2, 32, seed=i) for i in range(3)]
    seen = {
        "all": np.ones((20, 20), bool), "earlier": np.tri(20, dtype=bool), "others": ~np.eye(20, dtype=bool),
        "near": np.triu(np.tri(20, dtype=bool), -5),
    }[kind]  # fmt: skip
    right = expected(*arrays, 32**-0.5, np.where(seen, 0.0, -np.inf))
    assert np.abs(run(mod, *arrays) - right).max() < 3e-3


def test_symbolic_sizes():
    @I.ir_module
    class Model:
        @R.function
        def main(
            q: R.Tensor(("b", "n", 2, 32), "float16"), k: R.Tensor(("b", "m", 2, 32), "float16"),
            v: R.Tensor(("b", "m", 2, 32), "float16"),
        ) -> R.Tensor(("b", "n", 2, 32), "float16"):  # fmt: skip
            with R.dataflow():
                out = R.nn.attention(q, k, v, causal_mask="BottomRight")
                R.output(out)
            return out

    assert kernels(DispatchAttention(A100)(Model)) == ["attention"]
    with use_cuda_provider("emulator"):
        vm = relaxish.VirtualMachine(relaxish.compile(Model, A100), relaxish.cuda())
        arrays = [normal(2, 33, 2, 32), normal(2, 70, 2, 32, seed=1), normal(2, 70, 2, 32, seed=2)]
        out = vm["main"](*[relaxish.nd.array(a, relaxish.cuda()) for a in arrays]).numpy()
    assert np.abs(out - expected(*arrays, 32**-0.5, None, "BottomRight")).max() < 3e-3


def test_sequences_of_different_lengths():
    lengths = [5, 40, 1, 20]
    starts = np.cumsum([0, *lengths]).astype("int32")

    def emit(bb, q, k, v, starts, longest):
        return op.nn.attention_var_len(q, k, v, starts, longest, causal_mask="TopLeft")

    rows = tensor((1, 66, 2, 32))
    mod = graph([rows, rows, rows, tensor((5,), "int32"), tensor((1,), "int32")], emit)
    assert kernels(DispatchAttention(A100)(mod)) == ["attention"]
    q, k, v = (normal(1, 66, 2, 32, seed=i) for i in range(3))
    out = run(mod, q, k, v, starts, np.array([40], "int32"))
    for a, b in zip(starts[:-1], starts[1:], strict=True):
        right = expected(q[:, a:b], k[:, a:b], v[:, a:b], 32**-0.5, None, "TopLeft")
        assert np.abs(out[:, a:b] - right).max() < 3e-3


def test_few_rows_of_many_keys_are_computed_in_parts():
    mod = graph([tensor((1, 1, 2, 64)), *[tensor((1, 1100, 2, 64))] * 2], lambda bb, q, k, v: op.nn.attention(q, k, v))
    assert kernels(DispatchAttention(A100)(mod)) == ["attention", "combine_attention"]
    q, k, v = normal(1, 1, 2, 64), normal(1, 1100, 2, 64, seed=1), normal(1, 1100, 2, 64, seed=2)
    assert np.abs(run(mod, q, k, v) - expected(q, k, v, 0.125)).max() < 1e-3


def test_equal_attentions_share_a_kernel():
    def emit(bb, q, k, v):
        return op.nn.attention(bb.emit(op.nn.attention(q, k, v)), k, v)

    assert kernels(DispatchAttention(A100)(graph([tensor((1, 16, 2, 32))] * 3, emit))) == ["attention"]


OUT_OF_REACH = {
    "float32": (A100, (1, 16, 2, 32), "float32", {}),
    "odd columns": (A100, (1, 16, 2, 33), "float16", {}),
    "very wide heads": (A100, (1, 16, 2, 1024), "float16", {}),
    "negative scale": (A100, (1, 16, 2, 32), "float16", {"scale": -1.0}),
    "windows": (A100, (1, 16, 2, 32), "float16", {"window_size": 4}),
    "older device": (Target("nvidia/nvidia-v100", host="llvm"), (1, 16, 2, 32), "float16", {}),
    "other device": (Target("llvm"), (1, 16, 2, 32), "float16", {}),
}


@pytest.mark.parametrize("why", OUT_OF_REACH)
def test_what_no_kernel_fits_stays(why):
    target, shape, dtype, options = OUT_OF_REACH[why]
    mod = graph([tensor(shape, dtype)] * 3, lambda bb, q, k, v: op.nn.attention(q, k, v, **options))
    assert DispatchAttention(target)(mod) is mod


def test_scores_that_others_use_are_not_taken_away():
    def emit(bb, q, k, v):
        weights = bb.emit(op.nn.softmax(bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, [0, 1, 3, 2]))))))
        return relax.Tuple([bb.emit(op.matmul(weights, v)), weights])

    mod = graph([tensor((1, 2, 16, 32))] * 3, emit)
    assert DispatchAttention(A100)(mod) is mod


def test_target_of_the_pass_the_scope_and_the_device():
    mod = graph([tensor((1, 16, 2, 32))] * 3, lambda bb, q, k, v: op.nn.attention(q, k, v))
    assert DispatchAttention()(mod) is mod
    with A100:
        assert kernels(DispatchAttention()(mod)) == ["attention"]
    host = relax.TensorStructInfo((1, 16, 2, 32), "float16", VDevice("llvm"))
    on_host = graph([host] * 3, lambda bb, q, k, v: op.nn.attention(q, k, v))
    assert DispatchAttention(A100)(on_host) is on_host


def test_default_pipelines_have_the_pass():
    mod = graph([tensor((1, 16, 2, 32))] * 3, lambda bb, q, k, v: op.nn.attention(q, k, v))
    for pipeline in ("default", relax.get_default_pipeline(A100)):
        module = relaxish.compile(mod, A100, relax_pipeline=pipeline)
        assert "mma.sync.aligned.m16n8k16" in module.device_modules[0].inspect_source()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["split", "unbind"])
def test_torch_models(kind):
    torch = pytest.importorskip("torch")
    from relaxish.frontend.torch import from_exported_program

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(64, 192)

        def forward(self, x):
            rows = x.shape[1]
            if kind == "split":
                q, k, v = (t.view(1, rows, 2, 32).transpose(1, 2) for t in self.inner(x).split(64, dim=2))
            else:
                q, k, v = self.inner(x).reshape(1, rows, 3, 2, 32).permute(2, 0, 3, 1, 4).unbind(0)
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=kind == "split")
            return out.transpose(1, 2).reshape(1, rows, 64)

    torch.manual_seed(0)
    model, x = Layer().half().eval(), torch.randn(1, 24, 64).half()
    mod = from_exported_program(torch.export.export(model, (x,)), unwrap_unit_return_tuple=True)
    made = DispatchAttention(A100)(mod)
    assert {k: operators(made)[k] for k in ("call_tir", "permute_dims")} == {"call_tir": 1, "permute_dims": 1}  # weight
    with torch.no_grad():
        right = model.float()(x.float()).numpy()
    assert np.abs(run(mod, x.numpy()) - right).max() < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize(("causal", "window"), [(None, None), ("BottomRight", None), ("BottomRight", 7)])
def test_attention_without_kernel_is_written_out(causal, window):
    infos = [tensor((1, 20, 4, 16), "float32"), *[tensor((1, 40, 2, 16), "float32")] * 2]
    mod = graph(infos, lambda bb, q, k, v: op.nn.attention(q, k, v, causal_mask=causal, window_size=window))
    arrays = [normal(*[int(d) for d in i.shape], seed=s).astype("float32") for s, i in enumerate(infos)]
    with use_cuda_provider("emulator"):
        built = relaxish.compile(mod, A100, relax_pipeline=relax.get_default_pipeline(A100))
        vm = relaxish.VirtualMachine(built, relaxish.cuda())
        out = vm["main"](*[relaxish.nd.array(a, relaxish.cuda()) for a in arrays]).numpy()
    assert np.abs(out - expected(*arrays, 0.25, None, causal, window)).max() < 1e-5
    names = " ".join(vm.executable.device_modules[0].programs)
    assert "matmul" in names and "softmax" in names
