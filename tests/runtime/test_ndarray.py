"""Arrays: construction, views, copies, DLPack with NumPy and torch."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest

from relaxish.runtime import DataType, Device, ShapeTuple, cpu, device, nd
from relaxish.runtime.arrays.memory import Allocator
from relaxish.runtime.ndarray import as_ndarray

DTYPES = ["int8", "int32", "int64", "uint8", "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_numpy(dtype):
    source = np.arange(12).reshape(3, 4).astype(dtype)
    made = nd.array(source)
    assert made.dtype == dtype and made.shape == (3, 4) and made.ptr % 64 == 0
    np.testing.assert_array_equal(made.numpy(), source)
    source[0, 0] = 1
    assert made.asnumpy()[0, 0] == np.array(0).astype(dtype)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7)])
def test_odd_shapes(shape):
    made = nd.empty(shape, "float32")
    assert made.shape == shape and made.numpy().shape == shape
    again = nd.array(np.ones(shape, "float32"))
    assert again.copyto(made) is made
    np.testing.assert_array_equal(made.numpy(), np.ones(shape, "float32"))


def test_copyfrom_casts_and_checks_shape():
    made = nd.empty((2, 2), "float32")
    made.copyfrom(np.array([[1, 2], [3, 4]]))
    assert made.numpy().tolist() == [[1, 2], [3, 4]]
    made[:] = np.zeros((2, 2))
    assert made.numpy().sum() == 0
    with pytest.raises(ValueError, match="shape"):
        made.copyfrom(np.zeros(3))
    with pytest.raises(ValueError, match="shapes and dtypes"):
        made.copyto(nd.empty((4,), "float32"))


def test_views_share_memory_and_are_bounded():
    made = nd.array(np.arange(8, dtype="float32"))
    view = made._create_view((2, 2), relative_byte_offset=16)
    view[:] = np.full((2, 2), -1, "float32")
    assert made.numpy().tolist() == [0, 1, 2, 3, -1, -1, -1, -1]
    assert made._create_view((8,), "int32").dtype == "int32"
    with pytest.raises(ValueError, match="only contains 32 bytes"):
        made._create_view((9,))
    over_numpy = nd.from_dlpack(np.arange(6, dtype="int32"))._create_view((2, 2), relative_byte_offset=8)
    assert over_numpy.numpy().tolist() == [[2, 3], [4, 5]]


def test_from_numpy_is_zero_copy_and_strided_is_copied():
    source = np.arange(6, dtype="float32").reshape(2, 3)
    shared = nd.from_dlpack(source)
    source[0, 0] = 42
    assert shared.numpy()[0, 0] == 42
    assert nd.from_dlpack(source.T).numpy().tolist() == source.T.tolist()
    np.testing.assert_array_equal(np.from_dlpack(shared), source)


def test_bfloat16_and_float8():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        source = np.arange(4).astype(getattr(ml_dtypes, name))
        made = nd.array(source)
        assert made.dtype == name
        np.testing.assert_array_equal(made.numpy(), source)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "bfloat16", "uint8"])
def test_torch_zero_copy_both_ways(dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3, 4, dtype=getattr(torch, dtype))
    shared = nd.from_dlpack(tensor)
    assert shared.dtype == dtype and shared.ptr == tensor.data_ptr()
    tensor[1, 1] = 0
    assert float(shared.numpy()[1, 1]) == 0.0
    back = torch.from_dlpack(shared)
    assert back.data_ptr() == tensor.data_ptr() and back.dtype == tensor.dtype
    del tensor, shared
    gc.collect()
    assert float(back[0, 0]) == 1.0


def test_exports_are_released():
    torch = pytest.importorskip("torch")
    made = nd.array(np.arange(4, dtype="float32"))
    alive = weakref.ref(made)
    tensor = torch.from_dlpack(made)
    made.to_dlpack()  # never consumed
    del made
    assert tensor.tolist() == [0, 1, 2, 3] and alive() is not None
    del tensor
    gc.collect()
    assert alive() is None


def test_requires_grad_and_transposed_torch():
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.randn(3, 5))
    np.testing.assert_array_equal(nd.from_dlpack(weight).numpy(), weight.detach().numpy())
    np.testing.assert_array_equal(nd.from_dlpack(weight.t()).numpy(), weight.detach().numpy().T)


def test_pool_reuses_blocks_but_never_under_a_view():
    allocator = Allocator(cpu(0))
    storage = allocator.allocate(1000)
    address = storage.ptr
    del storage
    assert allocator.used_bytes() > 0
    storage = allocator.allocate(1000)
    assert storage.ptr == address
    made = nd.NDArray(storage.ptr, (250,), "float32", cpu(0), storage)
    view = made._host()
    view[:] = 3
    del made, storage
    assert allocator.allocate(1000).ptr != address
    assert (view == 3).all()


def test_pool_never_recycles_under_dlpack():
    torch = pytest.importorskip("torch")
    tensor = torch.from_dlpack(nd.array(np.full(64, 7, "float32")))
    for _ in range(4):
        nd.array(np.zeros(64, "float32"))
    assert (tensor == 7).all()


def test_pickle_and_repr():
    made = nd.array(np.arange(3, dtype="int64"))
    again = pickle.loads(pickle.dumps(made))
    assert again.numpy().tolist() == [0, 1, 2] and again.dtype == "int64" and "cpu(0)" in repr(again)
    assert str(again) == "[0 1 2]"


def test_devices():
    assert device("cpu", 0) == cpu(0) == Device("llvm", 0) and hash(device("cpu:0")) == hash(cpu())
    assert device("cuda", 1) == nd.cuda(1) != nd.cuda(0) and str(nd.cuda(1)) == "cuda(1)"
    assert cpu(0).exist and not nd.cuda(0).exist and nd.cuda(0).warp_size is None
    assert cpu(0).multi_processor_count >= 1
    with pytest.raises(ValueError, match="unknown device type"):
        device("toaster")
    with pytest.raises(RuntimeError, match="not available"):
        nd.empty((1,), "float32", nd.cuda(0))


def test_dtype_parts():
    assert DataType("float32x4").lanes == 4 and DataType("int8").bits == 8 and DataType("bfloat16").type_code == 4
    assert (
        DataType(np.float64) == "float64"
        and DataType("bool").itemsize() == 1
        and DataType("float32x4").itemsize() == 16
    )
    with pytest.raises(ValueError, match="unknown dtype"):
        DataType("float99z")
    with pytest.raises(ValueError, match="negative"):
        nd.empty((-1,))
    assert ShapeTuple([1, 2]) == (1, 2)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_torch_that_makes_no_capsules_of_8_bit_floats(monkeypatch, dtype):
    torch = pytest.importorskip("torch")
    export = torch.Tensor.__dlpack__

    def refusing(self, *args, **kwargs):
        if "float8" in str(self.dtype):
            raise BufferError("float8 types are not supported by dlpack")
        return export(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "__dlpack__", refusing)
    tensor = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    shared = nd.from_dlpack(tensor)
    assert shared.dtype == dtype and shared.shape == (4, 6) and shared.ptr == tensor.data_ptr() and not shared.readonly
    np.testing.assert_array_equal(shared.numpy().astype("float32"), tensor.float().numpy())
    tensor[1, 2] = 3.5
    assert float(shared.numpy()[1, 2]) == 3.5
    for strided in (tensor.t(), tensor[:, ::2]):
        copied = nd.from_dlpack(strided)
        assert copied.readonly
        np.testing.assert_array_equal(copied.numpy().astype("float32"), strided.float().numpy())
        np.testing.assert_array_equal(nd.array(strided).numpy().astype("float32"), strided.float().numpy())
    np.testing.assert_array_equal(as_ndarray(tensor).numpy().astype("float32"), tensor.float().numpy())


def test_shape_tuples_equal_sequences_of_the_same_numbers() -> None:
    shape = ShapeTuple([4, 5])
    assert shape == [4, 5] and shape == (4, 5) and not shape != [4, 5]
    assert shape != [4] and shape != [5, 4] and shape != "45"
    assert {shape: 1}[(4, 5)] == 1
