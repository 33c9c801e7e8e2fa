"""What Python's operators and the functions of ``tir`` make of operands of different types and of constants."""

from __future__ import annotations

import pytest

from relaxish import tir
from relaxish.ir import assert_structural_equal


def var(dtype: str) -> tir.Var:
    return tir.Var("v", dtype)


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("int32", "int64", "int64"), ("int8", "int16", "int16"), ("uint8", "int32", "int32"),
        ("uint32", "int32", "uint32"), ("int64", "uint64", "uint64"), ("int64", "uint32", "int64"),
        ("bool", "int32", "int32"), ("bool", "float32", "float32"), ("float16", "float64", "float64"),
        ("int64", "float16", "float16"), ("bfloat16", "float32", "float32"), ("bfloat16", "float16", "float16"),
        ("bfloat16", "int32", "bfloat16"), ("float8_e4m3fn", "bfloat16", "bfloat16"), ("float8_e5m2", "int8", "float8_e5m2"),
        ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fn"), ("float32", "int32x4", "float32x4"),
        ("uint8x4", "int32x4", "int32x4"), ("int32", "int32xvscalex4", "int32xvscalex4"),
    ],
)  # fmt: skip
def test_common_type(a: str, b: str, result: str) -> None:
    assert (var(a) + var(b)).dtype == result
    assert (var(b) * var(a)).dtype == result


@pytest.mark.parametrize(
    ("a", "b"),
    [("handle", "int32"), ("int32x4", "int32x8"), ("int32x4", "int32xvscalex4"), ("float8_e4m3fn", "float8_e5m2")],
)
def test_types_without_common_type(a: str, b: str) -> None:
    with pytest.raises(TypeError):
        var(a) + var(b)


def test_python_numbers_take_the_other_type_in_bit_operations_only() -> None:
    byte = var("uint8")
    assert (byte + 1).dtype == "int32"
    assert (byte & 1).dtype == (1 | byte).dtype == (byte << 2).dtype == (3 ^ byte).dtype == "uint8"
    assert (byte >> tir.const(1)).dtype == "int32"


def test_remainders_and_bits_fold_on_index_types_only() -> None:
    assert int(tir.const(-7) % 4) == 1 and int(tir.truncmod(tir.const(-7), 4)) == -3
    assert isinstance(tir.floormod(tir.const(7, "int8"), tir.const(4, "int8")), tir.FloorMod)
    assert isinstance(tir.const(7, "uint8") & tir.const(4, "uint8"), tir.Call)
    assert int(tir.const(7, "int64") & tir.const(4, "int64")) == 4
    assert int(tir.const(7, "int8") // tir.const(4, "int8")) == 1


def test_half_precision_constants_fold_only_where_nothing_rounds() -> None:
    half = tir.const(1.5, "float16")
    assert isinstance(half + half, tir.Add) and (half * 0).value == 0 and (half * 1) is half
    assert (tir.const(1.5, "float32") + 1).value == 2.5


@pytest.mark.parametrize("divide", [tir.div, tir.truncdiv, tir.floordiv, tir.floormod, tir.truncmod])
def test_division_by_constant_zero(divide) -> None:
    with pytest.raises(ValueError, match="Divide by zero"):
        divide(var("int32"), 0)


def test_which_divisions_take_floats() -> None:
    f = var("float32")
    assert tir.div(f, f).dtype == "float32"
    for divide in (tir.floordiv, tir.truncdiv, tir.floormod, tir.ceildiv):
        with pytest.raises(TypeError):
            divide(f, 2)
    with pytest.raises(RuntimeError, match="ambiguous"):
        var("int32") / 2
    assert isinstance(var("uint8") / var("uint8"), tir.Div)
    with pytest.raises(ValueError, match="Divide by zero"):
        f / 0.0


def test_ceildiv_is_written_with_the_divisor() -> None:
    n, d = var("int32"), var("int32")
    assert_structural_equal(tir.ceildiv(n, d), tir.FloorDiv(tir.Sub(tir.Add(n, d), 1), d), map_free_vars=True)
    assert int(tir.ceildiv(13, 4)) == 4


def test_unsigned_zero_minus_a_constant_is_refused() -> None:
    with pytest.raises(ValueError):
        tir.const(0, "uint8") - tir.const(1, "uint8")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", 128), ("uint8", -1), ("uint8", 256), ("bool", 2), ("uint1", -1), ("int32", 1 << 31)],
)
def test_literals_out_of_range(dtype: str, value: int) -> None:
    with pytest.raises(tir.op.CheckValueError):
        tir.IntImm(dtype, value)


def test_literal_of_more_than_64_bits() -> None:
    with pytest.raises(OverflowError):
        tir.IntImm("int64", 1 << 63)


def test_types_of_literals() -> None:
    assert [tir.const(x).dtype for x in (True, 1, 1 << 40, 0.5, 1e39, float("inf"))] == [
        "bool", "int32", "int64", "float32", "float64", "float64",
    ]  # fmt: skip
    with pytest.raises(NotImplementedError):
        tir.const((1, 2))
    assert tir.const(1, "uint1").dtype == "bool" and tir.const(1, "boolx4").dtype == "uint1x4"


def test_comparisons_of_vectors() -> None:
    assert (var("float32x4") < 1).dtype == "uint1x4"
    assert tir.Var("m", "uint1x4").dtype == tir.Var("m", "boolx4").dtype


def test_casts() -> None:
    ramp = tir.Ramp(var("int32"), 2, 4)
    assert isinstance(ramp.astype("int64x4"), tir.Ramp) and isinstance(ramp.astype("float32x4"), tir.Cast)
    assert isinstance(tir.Broadcast(var("int32"), 4).astype("float32x4").value, tir.Cast)
    with pytest.raises(TypeError, match="handle"):
        var("handle").astype("int32")
    with pytest.raises(TypeError):
        tir.Cast("int32x4", var("int32"))


def test_reinterpret_keeps_the_size() -> None:
    assert tir.reinterpret("uint32", var("float32")).dtype == "uint32"
    assert tir.reinterpret("float32x2", var("int64")).dtype == "float32x2"
    with pytest.raises(TypeError, match="size"):
        tir.reinterpret("int64", var("float32"))


def test_finiteness_is_spelled_out() -> None:
    f = var("float32")
    infinite = tir.And(tir.EQ(tir.abs(f), tir.const(float("inf"), "float32")), tir.Not(tir.isnan(f)))
    assert_structural_equal(tir.isinf(f), infinite, map_free_vars=True)
    assert_structural_equal(tir.isfinite(f), tir.And(tir.Not(infinite), tir.Not(tir.isnan(f))), map_free_vars=True)
    with pytest.raises(ValueError):
        tir.infinity("int32")


def test_conditions_must_be_bool() -> None:
    with pytest.raises(TypeError):
        tir.if_then_else(var("int32"), 1, 2)
    with pytest.raises(TypeError):
        tir.all(var("int32"), var("bool"))
    assert int(tir.if_then_else(True, 1, 2)) == 1


def test_scalable_lanes_have_one_form() -> None:
    factor = tir.vscale()
    for lanes in (factor * 4, 4 * factor):
        made = tir.Broadcast(1, lanes)
        assert made.dtype == "int32xvscalex4" and made.lanes.b == 4 and made.lanes.a.op.name == "tir.vscale"
    for bad in (factor, factor * 2 + 1, var("int32"), 1, 0):
        with pytest.raises(ValueError):
            tir.Ramp(0, 1, bad)


def test_trace_and_addresses() -> None:
    a = tir.decl_buffer((4, 4), "float32", name="a")
    assert tir.trace([1, a[0, 0]], "look").dtype == "float32"
    with pytest.raises(TypeError):
        tir.trace(1)
    assert tir.address_of(a).args[0].indices[1] == 0
    with pytest.raises(ValueError):
        tir.address_of(var("int32"))
