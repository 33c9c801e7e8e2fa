"""Parameter files: what goes in comes out, and damage is told."""

import numpy as np
import pytest

from relaxish import runtime
from relaxish.support.errors import RelaxishError

rng = np.random.default_rng(3)


def test_round_trip(tmp_path):
    arrays = {
        "w": rng.standard_normal((3, 5)).astype("float32"),
        "scale": np.float16(2.5) * np.ones((), "float16"),
        "ids": rng.integers(-5, 5, (2, 0, 4)),
        "mask": rng.integers(0, 2, 7).astype(bool),
    }
    path = tmp_path / "params.bin"
    runtime.save_param_dict_to_file({k: runtime.nd.array(v) for k, v in arrays.items()}, path)
    back = runtime.load_param_dict_from_file(path)
    assert list(back) == list(arrays)
    for name, value in arrays.items():
        assert back[name].numpy().dtype == value.dtype
        np.testing.assert_array_equal(back[name].numpy(), value)


def test_bytes_begin_with_the_magic_number():
    assert runtime.save_param_dict({})[:8] == (0xF7E58D4F05049CB7).to_bytes(8, "little")


@pytest.mark.parametrize("cut", [0, 7, 20, 60, -1])
def test_cut_off(cut):
    block = runtime.save_param_dict({"w": np.ones((4, 4), "float32")})
    with pytest.raises(RelaxishError):
        runtime.load_param_dict(block[:cut])


def test_something_else():
    with pytest.raises(RelaxishError, match="magic"):
        runtime.load_param_dict(b"PK" + bytes(100))
