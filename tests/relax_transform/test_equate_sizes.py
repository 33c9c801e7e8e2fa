"""Sizes that operators take to be equal are checked when the program runs, whatever made the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.ir import structural_equal
from relaxish.relax import op
from relaxish.relax.transform import LegalizeOps
from relaxish.runtime.kernels.kernel import ArgumentError
from relaxish.transform.equate_sizes import EquateSizes

_rng = np.random.default_rng(29)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def size(name: str) -> tir.Var:
    return tir.Var(name, "int64")


def module(shapes: Sequence[Sequence[object] | int], make: Callable[..., relax.Expr]) -> relaxish.IRModule:
    """A function of tensors of these shapes (or ranks), called ``p0``, ``p1`` ..."""
    infos = [relax.TensorStructInfo(s if not isinstance(s, int) else None, "float32", ndim=s) if isinstance(s, int)
             else relax.TensorStructInfo(s, "float32") for s in shapes]  # fmt: skip
    params = [relax.Var(f"p{k}", info) for k, info in enumerate(infos)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(make(*params)))
        builder.emit_func_output(out)
    return builder.get()


def runs(mod: relaxish.IRModule) -> Callable[..., np.ndarray]:
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    return lambda *arrays: vm["main"](*map(relaxish.nd.array, arrays)).numpy()


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.einsum("bshd,bthd->bhst", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhst,bthd->bshd", weights / weights.sum(-1, keepdims=True), v)


def normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gamma + beta


def _families() -> dict[str, tuple[list, Callable[..., relax.Expr], Callable[..., np.ndarray], list, list]]:
    """By name: shapes of parameters, operator, NumPy's, shapes that fit, shapes that do not."""
    a, b, c = size("a"), size("b"), size("c")
    pair, fit, bad = [(a, 4), (b, 4)], [(3, 4), (3, 4)], [(3, 4), (5, 4)]
    larger = lambda x, y: op.where(op.greater(x, y), x, y)
    return {
        "add": (pair, op.add, np.add, fit, bad),
        "a number": ([(a, 4), (6, 4)], op.multiply, np.multiply, [(6, 4), (6, 4)], [(5, 4), (6, 4)]),
        "where": (pair, larger, np.maximum, fit, bad),
        "concat": (
            pair, lambda x, y: op.concat([x, y], axis=1), lambda x, y: np.concatenate([x, y], 1), fit, [(3, 4), (1, 4)]
        ),
        "stack": (pair, lambda x, y: op.stack([x, y]), lambda x, y: np.stack([x, y]), fit, bad),
        "reduction of a product": ([(4, a), (b, 5)], op.matmul, np.matmul, [(4, 3), (3, 5)], [(4, 3), (2, 5)]),
        "batches of a product": (
            [(a, 4, 5), (b, 5, 2)], op.matmul, np.matmul, [(3, 4, 5), (3, 5, 2)], [(3, 4, 5), (2, 5, 2)]
        ),
        "layer norm": (
            [(a, b), (c,), (b,)], lambda x, g, h: op.nn.layer_norm(x, g, h, axes=[-1]), normalised,
            [(3, 6), (6,), (6,)], [(3, 6), (5,), (6,)],
        ),
        "attention": (
            [(2, 3, 2, 8), (2, a, 2, 8), (2, b, 2, 8)], op.nn.attention, attention,
            [(2, 3, 2, 8), (2, 5, 2, 8), (2, 5, 2, 8)], [(2, 3, 2, 8), (2, 5, 2, 8), (2, 4, 2, 8)],
        ),
        "elements of a reshape": (
            [(a, 4), (b, 2)], lambda x, y: op.add(op.reshape(x, (b, 2)), y), lambda x, y: x.reshape(-1, 2) + y,
            [(3, 4), (6, 2)], [(3, 4), (5, 2)],
        ),
        "broadcast": (
            [(a, 4), (b, 4)], lambda x, y: op.add(op.broadcast_to(x, (b, 4)), y), np.add, fit, bad,
        ),
        "sizes of slices": (
            [(a,)],
            lambda x: op.add(
                op.strided_slice(x, [0], [0], [(a - 1) // 16 + 1]),
                op.strided_slice(x, [0], [0], [((a - 1) // 32 + 1) * 2]),
            ),
            lambda x: 2 * x[: (len(x) - 1) // 16 + 1], [(60,)], [(33,)],
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", _families())
def test_sizes_that_may_differ_are_equal_or_an_error(name: str) -> None:
    shapes, make, reference, fit, bad = _families()[name]
    ours = runs(module(shapes, make))
    arrays = [f(*s) for s in fit]
    np.testing.assert_allclose(ours(*arrays), reference(*arrays), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="equal|fit"):
        ours(*(f(*s) for s in bad))


def test_the_error_names_both() -> None:
    ours = runs(module([(size("a"), 4), (size("b"), 4)], op.add))
    with pytest.raises(ArgumentError, match="'p0' and 'p1'.* a and b.*Got 2, expected 7"):
        ours(f(7, 4), f(2, 4))


def test_tensors_of_unknown_dimensions() -> None:
    ours = runs(module([2, 2], lambda x, y: op.nn.relu(op.add(x, y))))
    for n in (1, 5):
        x, y = f(n, 3), f(n, 3)
        np.testing.assert_allclose(ours(x, y), np.maximum(x + y, 0), rtol=1e-6)
    with pytest.raises(ArgumentError, match="relax.add"):
        ours(f(2, 3), f(2, 4))


def test_what_is_known_to_fit_stays() -> None:
    a = size("a")
    mod = module([(a, 4), (a, 4), (4,)], lambda x, y, z: op.add(op.multiply(x, y), z))
    assert EquateSizes()(mod) is mod
    fixed = module([(3, 4), (3, 1)], op.add)
    assert EquateSizes()(fixed) is fixed


def test_a_tuple_of_tensors() -> None:
    a, b = size("a"), size("b")
    info = relax.TupleStructInfo([relax.TensorStructInfo(s, "float32") for s in ((a, 4), (b, 4))])
    param = relax.Var("both", info)
    builder = relax.BlockBuilder()
    with builder.function("main", [param]):
        builder.emit_func_output(builder.emit(op.concat(param, axis=1)))
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    x, y = f(3, 4), f(3, 4)
    have = vm["main"]((relaxish.nd.array(x), relaxish.nd.array(y))).numpy()
    np.testing.assert_array_equal(have, np.concatenate([x, y], 1))
    with pytest.raises(ArgumentError, match="relax.concat"):
        vm["main"]((relaxish.nd.array(x), relaxish.nd.array(f(2, 4))))


def test_legalisation_alone_checks_nothing() -> None:
    mod = module([(size("a"), 4), (size("b"), 4)], op.add)
    assert structural_equal(LegalizeOps()(mod), mod)


@pytest.mark.parametrize("pipeline", ["default_build", "zero"])
def test_named_pipelines_check_too(pipeline: str) -> None:
    mod = relaxish.relax.get_pipeline(pipeline)(module([(size("a"), 4), (size("b"), 4)], op.add))
    ours = runs(mod) if pipeline == "zero" else None
    if ours is None:
        built = relaxish.build(module([(size("a"), 4), (size("b"), 4)], op.add), "llvm", relax_pipeline=pipeline)
        vm = relaxish.VirtualMachine(built, relaxish.cpu())
        ours = lambda *arrays: vm["main"](*map(relaxish.nd.array, arrays)).numpy()
    x, y = f(3, 4), f(3, 4)
    np.testing.assert_allclose(ours(x, y), x + y)
    with pytest.raises(ArgumentError, match="relax.add"):
        ours(x, f(4, 4))
