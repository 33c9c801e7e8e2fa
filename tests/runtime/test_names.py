"""Small names of the runtime that scripts ask for."""

import pytest

import relaxish
from relaxish import runtime, testing


def test_enabled():
    assert runtime.enabled("llvm") and runtime.enabled("llvm -mcpu=skylake-avx512")
    assert not runtime.enabled("no-such-kind") and not runtime.enabled("")


def test_packed_func_is_any_callable():
    relaxish.register_func("test.names.twice", lambda x: 2 * x, override=True)
    assert isinstance(relaxish.get_global_func("test.names.twice"), runtime.PackedFunc)


def test_type_codes():
    assert relaxish.DataType("bfloat16").type_code == relaxish.DataTypeCode.BFLOAT
    assert relaxish.DataType("float32x4").type_code == relaxish.DataTypeCode.FLOAT


calls = []


@testing.fixture(cache_return_value=True)
def expensive():
    calls.append(1)
    return {"numbers": [1, 2]}


@pytest.mark.parametrize("turn", [0, 1])
def test_cached_fixture_gives_copies(expensive, turn):
    expensive["numbers"].append(turn)
    assert expensive["numbers"] == [1, 2, turn] and len(calls) == 1
