"""DLPack where things go wrong: exceptions that pass while tensors are freed, capsules used twice, read-only memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from relaxish.runtime import nd
from relaxish.runtime.arrays.dlpack import import_capsule


class Theirs:
    """A producer that is no NumPy array to look at."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64"])
def test_exceptions_pass_while_tensors_are_freed(dtype):
    torch = pytest.importorskip("torch")

    def fail():
        made = nd.empty((8,), dtype)
        tensors = [torch.from_dlpack(made) for _ in range(3)]
        del made
        raise KeyError(f"mine {len(tensors)}")

    for _ in range(5):
        with pytest.raises(KeyError, match="mine 3"):
            fail()


def test_exceptions_pass_while_capsules_are_freed():
    def fail():
        made = nd.array(np.arange(8))
        capsule, used = made.to_dlpack(), made.to_dlpack()
        array = import_capsule(used)
        raise KeyError(f"mine {array[2]} {type(capsule).__name__}")

    with pytest.raises(KeyError, match="mine"):
        fail()


def test_capsules_are_used_once():
    made = nd.array(np.arange(8))
    capsule = made.to_dlpack()
    assert nd.from_dlpack(capsule).numpy().tolist() == list(range(8))
    with pytest.raises(ValueError, match="unused"):
        nd.from_dlpack(capsule)
    for wrong in (3, "x", object()):
        with pytest.raises((ValueError, TypeError)):
            nd.from_dlpack(wrong)


def test_memory_goes_with_the_last_user():
    made = nd.array(np.arange(8.0))
    alive = weakref.ref(made)
    capsules = [made.to_dlpack() for _ in range(4)]
    array = nd.from_dlpack(capsules.pop())
    view = array._create_view((2, 2), relative_byte_offset=32)
    del made, array
    gc.collect()
    assert alive() is not None and view.numpy().tolist() == [[4, 5], [6, 7]]
    del view, capsules
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("index", [np.s_[::2], np.s_[::-1], np.s_[::-3], np.s_[5:1:-2], np.s_[0:0], np.s_[3:4]])
def test_strides_of_producers(index):
    source = np.random.default_rng(7).standard_normal((8, 3))[index]
    np.testing.assert_array_equal(nd.from_dlpack(Theirs(source)).numpy(), source)
    np.testing.assert_array_equal(nd.from_dlpack(Theirs(source[:, ::-2])).numpy(), source[:, ::-2])


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy cannot say that memory is read-only")
def test_read_only_memory_stays_so():
    source = np.arange(6.0)
    source.flags.writeable = False
    for made in (nd.from_dlpack(source), nd.from_dlpack(Theirs(source))):
        assert made.readonly and made.ptr == source.__array_interface__["data"][0]
        with pytest.raises(ValueError, match="read-only"):
            made[:] = 0
        with pytest.raises(BufferError):
            made.__dlpack__(copy=False)
        shared = nd.from_dlpack(made.__dlpack__(copy=False, max_version=(1, 0)))
        assert shared.readonly and shared.ptr == made.ptr
        copied = nd.from_dlpack(made.to_dlpack())
        assert not copied.readonly and copied.ptr != made.ptr
    assert not nd.from_dlpack(Theirs(np.arange(3))).readonly


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i8", ">u2"])
def test_byte_order(dtype):
    source = np.arange(5).astype(dtype)
    np.testing.assert_array_equal(nd.from_dlpack(source).numpy(), source)
    np.testing.assert_array_equal(nd.array(source).numpy(), source)


def test_signs_that_are_still_to_be_applied():
    torch = pytest.importorskip("torch")
    tensor = torch._neg_view(torch.arange(4.0))
    assert nd.from_dlpack(tensor).numpy().tolist() == [0, -1, -2, -3]
    assert nd.array(tensor).numpy().tolist() == [0, -1, -2, -3]
