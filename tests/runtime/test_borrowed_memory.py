"""Memory of others as arguments: outputs that are strided, misaligned or read-only, arguments that share memory."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.runtime import ShapeTuple, cpu, load_module, nd, register_func
from relaxish.runtime.kernels.kernel import KernelSpec
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

pytest.importorskip("llvmlite")


@T.prim_func
def pairs(a: T.handle, b: T.handle, m: T.int32):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n * 2,), "float32")
    for i in range(n):
        with T.block("b"):
            v = T.axis.spatial(n, i)
            B[v * 2] = A[v] + T.Cast("float32", m)
            B[v * 2 + 1] = A[v] - T.Cast("float32", m)


@pytest.fixture(scope="module", params=["built", "loaded"])
def kernel(request, tmp_path_factory):
    built = relaxish.tir.build(pairs, "llvm")
    if request.param == "built":
        return built["pairs"]
    path = tmp_path_factory.mktemp("borrowed") / "pairs.so"
    built.export_library(str(path))
    return load_module(str(path))["pairs"]


X = np.random.default_rng(3).standard_normal(6).astype("float32")
WANT = np.stack([X + 3, X - 3], 1).reshape(-1)


def strided(kind):
    """An output whose memory kernels cannot work on as it is, and what must not change around it."""
    torch = pytest.importorskip("torch")
    if kind == "step":
        base = np.full(24, 5, "float32")
        return base[::2], base[1::2]
    if kind == "backwards":
        base = np.full(24, 5, "float32")
        return base[::-2], base[::2]
    if kind == "byte order":
        return np.full(12, 5, ">f4"), np.full(1, 5)
    if kind == "misaligned":
        base = np.full(12 * 4 + 1, 5, "uint8")
        return base[1:].view("float32"), base[:1]
    base = torch.full((24,), 5.0)
    return base[::2], base[1::2].numpy()


@pytest.mark.parametrize("kind", ["step", "backwards", "byte order", "misaligned", "torch"])
def test_strided_outputs_are_written_through(kernel, kind):
    out, around = strided(kind)
    kernel(X, out, 3)
    np.testing.assert_allclose(np.asarray(out), WANT, rtol=1e-6)
    assert (around == 5).all()


@pytest.mark.parametrize("kind", ["step", "backwards", "byte order", "misaligned", "torch"])
def test_strided_inputs_are_read(kernel, kind):
    source, _ = strided(kind)
    source[...] = pytest.importorskip("torch").from_numpy(WANT) if kind == "torch" else WANT
    out = np.empty(24, "float32")
    kernel(source, out, 2)
    np.testing.assert_allclose(out, np.stack([WANT + 2, WANT - 2], 1).reshape(-1), rtol=1e-6)
    shared = np.broadcast_to(np.float32(1.5), 6)  # elements that share memory may be read
    out = np.empty(12, "float32")
    kernel(shared, out, 1)
    np.testing.assert_array_equal(out, np.tile([2.5, 0.5], 6).astype("float32"))


def unwritable():
    torch = pytest.importorskip("torch")
    frozen = np.zeros(12, "float32")
    frozen.flags.writeable = False
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(16, "float32"), (12,), (0,))
    return {
        "read-only": frozen,
        "read-only array": nd.from_dlpack(frozen),
        "broadcast": overlapping,
        "expanded": torch.zeros(1).expand(12),
        "negated": torch._neg_view(torch.zeros(12)),
        "number": np.float32(3),
    }


@pytest.mark.parametrize("kind", sorted(unwritable()))
def test_outputs_that_cannot_be_written_are_refused(kernel, kind):
    out = unwritable()[kind]
    before = np.array(out.resolve_neg() if hasattr(out, "resolve_neg") else getattr(out, "numpy", lambda: out)())
    with pytest.raises(ValueError, match="argument 1"):
        kernel(X, out, 3)
    after = np.array(out.resolve_neg() if hasattr(out, "resolve_neg") else getattr(out, "numpy", lambda: out)())
    np.testing.assert_array_equal(before, after)


def test_inputs_that_share_memory_with_an_output_are_read_first(kernel):
    for offset in range(7):
        base = np.zeros(19, "float32")
        base[offset : offset + 6] = X
        kernel(base[offset : offset + 6], base[3:15], 3)
        np.testing.assert_allclose(base[3:15], WANT, rtol=1e-6)


def test_two_outputs_in_one_place_are_refused():
    @T.prim_func
    def split(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                b[v] = a[v] + T.float32(1)
                c[v] = a[v] - T.float32(1)

    built = relaxish.tir.build(split, "llvm")
    base = np.zeros(7, "float32")
    with pytest.raises(ValueError, match="arguments 1 and 2 are written and share memory"):
        built(np.ones(4, "float32"), base[:4], base[3:])
    built(np.ones(4, "float32"), base[:4], np.zeros(4, "float32"))
    assert base.tolist() == [2, 2, 2, 2, 0, 0, 0]


@pytest.mark.parametrize("size", [0, 5, 11, 13, 1 << 20])
def test_extents_that_are_expressions_are_compared(kernel, size):
    with pytest.raises(ValueError, match=r"shape\[0\] is expected to be 12"):
        kernel(X, np.zeros(size, "float32"), 3)


def test_what_a_kernel_writes_is_known_after_loading(kernel):
    assert kernel.spec.written == (1,)
    assert KernelSpec.from_json(kernel.spec.to_json()) == kernel.spec


@I.ir_module
class InPlace:
    @T.prim_func(private=True)
    def bump(a: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                a[v] = a[v] + T.float32(1)

    @R.function(pure=False)
    def native(x: R.Tensor((4,), "float32")):
        cls = InPlace
        y = R.call_tir_inplace(cls.bump, (x,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32"))
        return y

    @R.function(pure=False)
    def packed(x: R.Tensor((4,), "float32")):
        _ = R.call_packed("test.borrowed.bump", x, sinfo_args=R.Tuple())
        return x


register_func("test.borrowed.bump", lambda x: x.copyfrom(x.numpy() + 1), override=True)


@pytest.fixture(scope="module", params=["built", "loaded"])
def in_place(request, tmp_path_factory):
    executable = relaxish.build(InPlace, "llvm")
    if request.param == "loaded":
        path = tmp_path_factory.mktemp("in_place") / "model.so"
        executable.export_library(str(path))
        executable = load_module(str(path))
    return relax.VirtualMachine(executable, cpu())


@pytest.mark.parametrize("name", ["native", "packed"])
def test_functions_in_place_write_or_refuse(in_place, name):
    torch = pytest.importorskip("torch")
    compact = np.arange(4, dtype="float32")
    in_place[name](compact)
    np.testing.assert_array_equal(compact, np.arange(4) + 1)
    tensor = torch.arange(4.0)
    in_place[name](tensor)
    assert tensor.tolist() == [1, 2, 3, 4]
    frozen = np.zeros(4, "float32")
    frozen.flags.writeable = False
    base, base_torch = np.zeros(8, "float32"), torch.zeros(8)
    for refused in (frozen, nd.from_dlpack(frozen), base[::2], base_torch[::2], np.broadcast_to(np.float32(0), 4)):
        with pytest.raises(ValueError, match="read-only"):
            in_place[name](refused)
    assert not frozen.any() and not base.any() and not base_torch.any()


def test_constants_are_not_written(tmp_path):
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4,), "float32"))
    weights = np.random.default_rng(1).standard_normal(4).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(weights)
            out = builder.emit_output(relax.Tuple([builder.emit(R.add(x, weight)), weight]))
        builder.emit_func_output(out)
    executable = relaxish.build(builder.get(), "llvm")
    path = tmp_path / "model.so"
    executable.export_library(str(path))
    torch = pytest.importorskip("torch")
    for made in (executable, load_module(str(path))):
        machine = relax.VirtualMachine(made, cpu())
        total, constant = machine["main"](np.ones(4, "float32"))
        for write in (
            lambda c: c.copyfrom(np.zeros(4)),
            lambda c: nd.array(weights).copyto(c),
            lambda c: c.__setitem__(0, 1),
            lambda c: c._create_view((2, 2)).copyfrom(np.zeros((2, 2))),
            lambda c: np.asarray(c).fill(0),
        ):
            with pytest.raises(ValueError, match="read-only"):
                write(constant)
        torch.from_dlpack(constant).add_(1)  # of a copy: torch does not look whether it may write
        np.testing.assert_allclose(machine["main"](np.ones(4, "float32"))[0].numpy(), weights + 1, rtol=1e-6)
        np.testing.assert_allclose(total.numpy(), weights + 1, rtol=1e-6)


def test_memory_of_files_is_not_written(tmp_path):
    np.arange(4, dtype="float32").tofile(tmp_path / "data")
    mapped = nd.from_dlpack(np.memmap(tmp_path / "data", "float32", "r"))
    with pytest.raises(ValueError, match="read-only"):
        mapped.copyfrom(np.zeros(4))
    assert mapped.numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", [(1 << 32, 1 << 32), (-1, -6), (-6,), (7,), (1 << 63, 0), (3, 3), ()])
def test_views_and_reshapes_are_checked_before_memory_is_touched(shape):
    made = nd.array(X)
    reshape = relaxish.get_global_func("vm.builtin.reshape")
    for attempt in (
        lambda: reshape(made, ShapeTuple(shape)),
        lambda: reshape(nd.from_dlpack(X), ShapeTuple(shape)),
    ):
        with pytest.raises(ValueError):
            attempt()
    if shape != ():
        with pytest.raises(ValueError):
            made._create_view(shape)
        with pytest.raises(ValueError):
            relaxish.get_global_func("vm.builtin.alloc_tensor")(made._owner, 0, (*shape, 64), "float32")


def test_view_offsets():
    made = nd.array(X)
    for offset in (-4, 4, 24, 1 << 70):
        with pytest.raises(ValueError, match="would occupy bytes"):
            made._create_view((6,), "float32", offset)
    with pytest.raises(ValueError, match="storage has"):
        nd.empty((0,), "float32")._owner and relaxish.get_global_func("vm.builtin.alloc_tensor")(
            made._owner, -8, (1,), "float32"
        )
    with pytest.raises(MemoryError, match="cannot allocate"):
        nd.empty((1 << 40, 1 << 30), "float32")
