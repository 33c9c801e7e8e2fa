"""Small names of the runtime that scripts ask for."""

import pytest

import relaxish
from relaxish import runtime, testing


def test_enabled():
    assert runtime.enabled("llvm") and runtime.enabled("llvm -mcpu=skylake-avx512")
    assert not runtime.enabled("no-such-kind") and not runtime.enabled("")


def test_packed_func_is_any_callable():
    relaxish.register_func("test.names.twice", lambda x: 2 * x, override=True)
    twice = relaxish.get_global_func("test.names.twice")
    assert isinstance(twice, runtime.PackedFunc) and twice(3) == 6


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


def test_converted_containers_print_as_their_literals():
    made = runtime.convert([1, (2, 3), {"a": 4}])
    assert repr(made) == "[1, [2, 3], {'a': 4}]" and repr(made[1:]) == "[[2, 3], {'a': 4}]"
    assert made.type_key == "Array" and made[2].type_key == "Map"
    assert isinstance(made, relaxish.ir.Array) and isinstance(made[2], relaxish.ir.Map)


def test_tagged_tuples():
    value = runtime.container.ADT(3, [[1], "x"])
    assert value.tag == 3 and len(value) == 2 and value[-1] == "x"
    assert runtime.container.tuple_object([1]).tag == 0
    assert runtime.container.getitem_helper([4, 5, 6], lambda o, i: o[i], 3, slice(0, 2)) == [4, 5]
    with pytest.raises(IndexError):
        runtime.container.getitem_helper([4], lambda o, i: o[i], 1, 1)


def test_truth_values_have_one_bit():
    kind = relaxish.DataType("bool")
    assert (kind.bits, kind.type_code, kind.itemsize()) == (1, relaxish.DataTypeCode.UINT, 1)


def test_device_names():
    assert relaxish.runtime.Device.DEVICE_NAME_TO_TYPE["llvm"] == 1
    assert relaxish.runtime.Device.DEVICE_TYPE_TO_NAME[2] == "cuda"
