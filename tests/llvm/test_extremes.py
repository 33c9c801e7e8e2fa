"""Largest and smallest elements, their positions and orders, with NaN and infinities in every position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import op, relax, tir
from relaxish.dlight import ApplyDefaultSchedule, default_gpu_rules
from relaxish.interp import run_prim_func
from relaxish.script import tir as T
from relaxish.testing.emulation import emulate_cuda
from relaxish.tir.transform import ExactExtremes

_VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, -3.0, 3.4028234663852886e38, -3.4028234663852886e38]
_SHARES = [0.05, 0.05, 0.25, 0.1, 0.1, 0.15, 0.1, 0.1, 0.05, 0.05]


def rows(n: int, dtype: str = "float32") -> np.ndarray:
    """Random rows of special numbers, then rows of one number only."""
    rng = np.random.default_rng(n)
    with np.errstate(over="ignore"):
        made = [rng.choice(_VALUES, n, p=_SHARES) for _ in range(40)]
        made += [np.full(n, v) for v in (-np.inf, np.inf, np.nan)]
        return np.stack(made).astype(dtype)


def run(build: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The tensors that ``build(*vars)`` computes."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(list(a.shape), str(a.dtype))) for i, a in enumerate(arrays)]
    with builder.function("main", params):
        with builder.dataflow():
            outs = [builder.emit(e) for e in build(builder, *params)]
            result = builder.emit_output(relax.Tuple(outs))
        builder.emit_func_output(result)
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    return [v.numpy() for v in vm["main"](*[relaxish.nd.array(a) for a in arrays])]


def compiled(func: Any) -> Any:
    """The kernel of one tensor function."""
    return relaxish.tir.build(func.with_attr("global_symbol", "main"), "llvm")["main"]


def windows(x: np.ndarray) -> np.ndarray:
    """Maxima over three neighbours, with minus infinity outside."""
    padded = np.pad(x, ((0, 0), (1, 1)), constant_values=-np.inf)
    return np.maximum(np.maximum(padded[:, :-2], padded[:, 1:-1]), padded[:, 2:])


@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 33, 100])
def test_extremes_follow_numpy(n: int) -> None:
    x = rows(n)

    def build(builder: Any, v: Any) -> list[Any]:
        turned = builder.emit(op.flip(v, 1))
        wide = builder.emit(op.reshape(v, (1, *x.shape)))
        pooled = builder.emit(op.nn.max_pool1d(wide, pool_size=(3,), padding=(1, 1)))
        return [
            op.max(v, 1), op.min(v, 1), op.argmax(v, 1), op.argmin(v, 1), op.max(v, 0), op.min(v, 0), op.argmax(v, 0),
            op.argmin(v, 0), op.maximum(v, turned), op.minimum(v, turned), op.nn.relu(v), op.clip(v, -1.0, 1.0),
            op.squeeze(pooled, 0),
        ]  # fmt: skip

    flipped = x[:, ::-1]
    want = [
        x.max(1), x.min(1), x.argmax(1), x.argmin(1), x.max(0), x.min(0), x.argmax(0), x.argmin(0),
        np.maximum(x, flipped), np.minimum(x, flipped), np.maximum(x, 0), np.clip(x, -1, 1), windows(x),
    ]  # fmt: skip
    for got, expected in zip(run(build, x), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_extremes_of_other_floats(dtype: str) -> None:
    x = rows(19, dtype)
    got = run(lambda _, v: [op.max(v, 1), op.min(v, 1), op.argmax(v, 1), op.argmin(v, 1)], x)
    for have, expected in zip(got, [x.max(1), x.min(1), x.argmax(1), x.argmin(1)], strict=True):
        np.testing.assert_array_equal(have, expected)


def test_position_of_the_least_integer() -> None:
    x = np.full((3, 5), np.iinfo("int32").min, "int32")
    got = run(lambda _, v: [op.argmax(v, 1), op.argmin(v, 1)], x)
    for have in got:
        np.testing.assert_array_equal(have, [0, 0, 0])


@pytest.mark.parametrize("n", [1, 2, 7, 32, 45])
def test_sorting_puts_nan_last(n: int) -> None:
    x = rows(n)

    def build(_: Any, v: Any) -> list[Any]:
        return [op.sort(v, 1), op.argsort(v, 1), op.sort(v, 1, True), op.topk(v, n, 1, "values", True)]

    ascending, order, descending, top = run(build, x)
    np.testing.assert_array_equal(ascending, np.sort(x, 1))
    np.testing.assert_array_equal(order, np.argsort(x, 1, kind="stable"))
    np.testing.assert_array_equal(descending, np.sort(x, 1)[:, ::-1])
    np.testing.assert_array_equal(top, np.sort(x, 1)[:, ::-1])


@T.prim_func
def row_max(A: T.Buffer((43, 64), "float32"), B: T.Buffer((43,), "float32")) -> None:
    for i, k in T.grid(43, 64):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.min_value("float32")
            B[vi] = T.max(B[vi], A[vi, vk])


@T.prim_func
def row_argmin(A: T.Buffer((43, 64), "float32"), P: T.Buffer((43,), "int32"), V: T.Buffer((43,), "float32")) -> None:
    for i, k in T.grid(43, 64):
        with T.block("P"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                P[vi] = -1
                V[vi] = T.max_value("float32")
            at: T.int32 = T.Select(V[vi] < A[vi, vk] or (V[vi] == A[vi, vk] and P[vi] < vk), P[vi], vk)
            value: T.float32 = T.Select(V[vi] < A[vi, vk], V[vi], A[vi, vk])
            P[vi] = at
            V[vi] = value


def _as_is(sch: tir.Schedule, name: str) -> None:
    pass


def _decomposed(sch: tir.Schedule, name: str) -> None:
    sch.decompose_reduction(sch.get_block(name), sch.get_loops(sch.get_block(name))[1])


def _split_and_decomposed(sch: tir.Schedule, name: str) -> None:
    i, k = sch.get_loops(sch.get_block(name))
    outer, _ = sch.split(k, [None, 8])
    sch.parallel(i)
    sch.decompose_reduction(sch.get_block(name), outer)


def _factored(sch: tir.Schedule, name: str) -> None:
    _, k = sch.get_loops(sch.get_block(name))
    _, inner = sch.split(k, [None, 8])
    sch.rfactor(inner, 0)


@pytest.mark.parametrize("plan", [_as_is, _decomposed, _split_and_decomposed, _factored])
@pytest.mark.parametrize("judge", ["compiled", "interpreted"])
def test_every_schedule_keeps_nan_and_infinity(plan: Any, judge: str) -> None:
    x = rows(64)
    outs: dict[str, list[np.ndarray]] = {
        "B": [np.zeros(43, "float32")],
        "P": [np.zeros(43, "int32"), np.zeros(43, "float32")],
    }
    for name, func in (("B", row_max), ("P", row_argmin)):
        sch = tir.Schedule(func)
        plan(sch, name)
        if judge == "compiled":
            arrays = [relaxish.nd.array(a) for a in (x, *outs[name])]
            compiled(sch.mod["main"])(*arrays)
            outs[name] = [a.numpy() for a in arrays[1:]]
        else:
            run_prim_func(sch.mod["main"], [x, *outs[name]])
    np.testing.assert_array_equal(outs["B"][0], x.max(1))
    np.testing.assert_array_equal(outs["P"][0], x.argmin(1))
    np.testing.assert_array_equal(outs["P"][1], x.min(1))


def test_masks_that_other_code_reads_stay_finite() -> None:
    """A constant that is not only the start of a maximum means itself."""

    @T.prim_func
    def shifted(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")) -> None:
        M = T.alloc_buffer((8,))
        P = T.alloc_buffer((8, 8))
        for i, k in T.grid(8, 8):
            with T.block("P"):
                vi, vk = T.axis.remap("SS", [i, k])
                P[vi, vk] = T.if_then_else(vk + 2 <= vi, A[vi, vk], T.min_value("float32"))
        for i, k in T.grid(8, 8):
            with T.block("M"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    M[vi] = T.min_value("float32")
                M[vi] = T.max(M[vi], P[vi, vk])
        for i, k in T.grid(8, 8):
            with T.block("C"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = P[vi, vk] - M[vi]

    x = np.random.default_rng(0).uniform(-1, 1, (8, 8)).astype("float32")
    out = relaxish.nd.array(np.zeros((8, 8), "float32"))
    compiled(shifted)(relaxish.nd.array(x), out)
    inside = np.arange(8)[None, :] + 2 <= np.arange(8)[:, None]
    padded = np.where(inside, x, np.finfo("float32").min).astype("float32")
    np.testing.assert_array_equal(out.numpy(), padded - padded.max(1, keepdims=True))


def test_a_mask_decided_by_data_stays_finite() -> None:
    @T.prim_func
    def masked(A: T.Buffer((4, 8), "float32"), K: T.Buffer((8,), "bool"), B: T.Buffer((4,), "float32")) -> None:
        for i, k in T.grid(4, 8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.min_value("float32")
                B[vi] = T.max(B[vi], T.if_then_else(K[vk], A[vi, vk], T.min_value("float32")))

    x = np.random.default_rng(0).uniform(-1, 1, (4, 8)).astype("float32")
    out = relaxish.nd.array(np.zeros(4, "float32"))
    compiled(masked)(relaxish.nd.array(x), relaxish.nd.array(np.zeros(8, "bool")), out)
    np.testing.assert_array_equal(out.numpy(), np.full(4, np.finfo("float32").min))


def test_sums_are_left_alone() -> None:
    @T.prim_func
    def total(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")) -> None:
        for i, k in T.grid(4, 8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    mod = relaxish.IRModule({"main": total})
    assert ExactExtremes()(mod)["main"] is total


def test_kernels_may_be_called_like_library_functions() -> None:
    """The arc cosine of doubles is a call of the C library's ``acos``."""

    @T.prim_func
    def acos(A: T.Buffer((16,), "float64"), B: T.Buffer((16,), "float64")) -> None:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = T.acos(A[vi])

    x = np.random.default_rng(0).uniform(-1, 1, 16)
    out = relaxish.nd.array(np.zeros(16))
    module = relaxish.IRModule({"acos": acos.with_attr("global_symbol", "acos")})
    relaxish.tir.build(module, "llvm")["acos"](relaxish.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), np.arccos(x), rtol=1e-14)


def test_dimensions_of_one_name_are_different_ones() -> None:
    m, n = tir.Var("n", "int64"), tir.Var("n", "int64")
    a, b = tir.decl_buffer((m, n), "float32", "A"), tir.decl_buffer((m, n), "float32", "B")
    source, target = tir.Var("a", "handle"), tir.Var("b", "handle")
    i, j = tir.Var("i", "int64"), tir.Var("j", "int64")
    body = tir.For(j, 0, n, tir.ForKind.SERIAL, tir.BufferStore(b, a[i, j] * 2.0, [i, j]))
    func = tir.PrimFunc([source, target], tir.For(i, 0, m, tir.ForKind.SERIAL, body), None, {source: a, target: b})
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    out = relaxish.nd.array(np.zeros((3, 5), "float32"))
    compiled(func)(relaxish.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x * 2)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "int8", "uint8"])
def test_shifts_by_the_width_and_more(dtype: str) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, (7, 33), dtype, endpoint=True)
    count = rng.integers(0, info.bits * 2, (7, 33)).astype(dtype)
    left, right = run(lambda _, v, c: [op.left_shift(v, c), op.right_shift(v, c)], x, count)
    wide = [[int(v) << int(c) for v, c in zip(*r)] for r in zip(x, count)]
    want = [[(w & ((1 << info.bits) - 1)) for w in row] for row in wide]
    np.testing.assert_array_equal(left, np.array(want, f"uint{info.bits}").astype(dtype))
    np.testing.assert_array_equal(right, [[int(v) >> int(c) for v, c in zip(*r)] for r in zip(x, count)])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounding_is_half_to_even(dtype: str) -> None:
    x = (np.arange(-40, 41) / 4).astype(dtype)
    np.testing.assert_array_equal(run(lambda _, v: [op.round(v)], x)[0], np.round(x))


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_reductions_over_nothing_give_their_start(axis: int | None) -> None:
    x = np.zeros((3, 0, 4), "float32")
    got = run(lambda _, v: [op.sum(v, axis), op.prod(v, axis), op.max(v, axis), op.min(v, axis), op.mean(v, axis)], x)
    want = [x.sum(axis), x.prod(axis), x.max(axis, initial=-np.inf), x.min(axis, initial=np.inf)]
    with np.errstate(all="ignore"):
        count = np.float32(x.size if axis is None else x.shape[axis])
        want.append(np.asarray(x.sum(axis) / count if count else x.sum(axis) * np.nan))
    for have, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(have, expected)


@T.prim_func
def mixed(
    A: T.Buffer((64,), "int32"),
    N: T.Buffer((64,), "int32"),
    X: T.Buffer((64,), "float32"),
    Y: T.Buffer((64,), "float32"),
    L: T.Buffer((64,), "int32"),
    R: T.Buffer((64,), "int32"),
    Z: T.Buffer((64,), "float32"),
) -> None:
    for i in range(64):
        with T.block("Z"):
            vi = T.axis.spatial(64, i)
            L[vi] = T.shift_left(A[vi], N[vi])
            R[vi] = T.shift_right(A[vi], N[vi])
            Z[vi] = T.max(X[vi], T.round(Y[vi]))


@pytest.mark.parametrize("judge", ["llvm", "c", "interpreter", "emulator"])
def test_every_backend_agrees_on_shifts_rounding_and_nan(judge: str) -> None:
    rng = np.random.default_rng(0)
    a, n = rng.integers(-(2**31), 2**31, 64).astype("int32"), rng.integers(0, 70, 64).astype("int32")
    x, y = rng.normal(size=64).astype("float32"), (rng.integers(-9, 9, 64) / 2).astype("float32")
    x[::5] = y[::7] = np.nan
    outs = [np.zeros(64, d) for d in ("int32", "int32", "float32")]
    if judge == "interpreter":
        run_prim_func(mixed, [a, n, x, y, *outs])
    elif judge == "emulator":
        sch = tir.Schedule(mixed)
        sch.bind(sch.get_loops(sch.get_block("Z"))[0], "threadIdx.x")
        emulate_cuda(sch.mod, a, n, x, y, *outs)
    else:
        arrays = [relaxish.nd.array(v) for v in outs]
        func = mixed.with_attr("global_symbol", "main")
        relaxish.tir.build(func, judge)["main"](*[relaxish.nd.array(v) for v in (a, n, x, y)], *arrays)
        outs = [v.numpy() for v in arrays]
    left = [((int(v) << int(c)) + 2**31) % 2**32 - 2**31 for v, c in zip(a, n)]
    np.testing.assert_array_equal(outs[0], left)
    np.testing.assert_array_equal(outs[1], [int(v) >> int(c) for v, c in zip(a, n)])
    np.testing.assert_array_equal(outs[2], np.maximum(x, np.round(y)))


def test_cuda_rounds_half_to_even() -> None:
    sch = tir.Schedule(mixed)
    sch.bind(sch.get_loops(sch.get_block("Z"))[0], "threadIdx.x")
    source = relaxish.tir.build(sch.mod, "cuda").imported_modules[0].get_source()
    assert "rintf(" in source and "roundf(" not in source


def test_reductions_over_nothing_on_a_gpu() -> None:
    builder = relax.BlockBuilder()
    v = relax.Var("x", relax.TensorStructInfo([3, 0, 4], "float32"))
    with builder.function("main", [v]):
        builder.emit_func_output(builder.emit(op.max(v, 1)))
    func = relax.transform.LegalizeOps()(builder.get())["max"]
    target = relaxish.target.Target("nvidia/nvidia-a100")
    with target:
        mod = ApplyDefaultSchedule(*default_gpu_rules(target))(relaxish.IRModule({"main": func}))
    out = np.zeros((3, 4), "float32")
    emulate_cuda(mod, np.zeros((3, 0, 4), "float32"), out)
    np.testing.assert_array_equal(out, np.full((3, 4), -np.inf))


@pytest.mark.parametrize("threads", [8, 32, 64])
def test_threads_that_reduce_together_keep_nan_and_infinity(threads: int) -> None:
    x = rows(64)
    outs: dict[str, list[np.ndarray]] = {
        "B": [np.zeros(43, "float32")],
        "P": [np.zeros(43, "int32"), np.zeros(43, "float32")],
    }
    for name, func in (("B", row_max), ("P", row_argmin)):
        sch = tir.Schedule(func)
        i, k = sch.get_loops(sch.get_block(name))
        _, inner = sch.split(k, [None, threads])
        sch.bind(i, "blockIdx.x")
        sch.bind(inner, "threadIdx.x")
        emulate_cuda(sch.mod, x, *outs[name])
    np.testing.assert_array_equal(outs["B"][0], x.max(1))
    np.testing.assert_array_equal(outs["P"][0], x.argmin(1))
    np.testing.assert_array_equal(outs["P"][1], x.min(1))


@pytest.mark.parametrize("rounding", ["round", "floor", "ceil"])
def test_rounded_quotients_are_exact(rounding: str) -> None:
    """Quantisation divides by one scale; the quotient is next to the boundary of two integers here."""
    rng = np.random.default_rng(1)
    scale = rng.uniform(0.01, 0.1, ()).astype("float32")
    x = ((rng.integers(-500, 500, (64, 33)) / 2).astype("float32") * scale).astype("float32")
    got = run(lambda b, v, s: [getattr(op, rounding)(b.emit(op.divide(v, s)))], x, scale)[0]
    np.testing.assert_array_equal(
        got, getattr(np, {"round": "round", "floor": "floor", "ceil": "ceil"}[rounding])(x / scale)
    )
