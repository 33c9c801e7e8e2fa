"""Registered functions for tests of calls and conversions: ``get_global_func("testing.echo")`` and its kin."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir import PrimExpr
from ..ir.prim import FloatImm, IntImm, StringImm, const_int
from ..runtime.arrays.container import Array, Map, String, type_key_of
from ..runtime.registry import register_func
from ..support.errors import InternalError

__all__: list[str] = []


def _register(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: register_func(f"testing.{name}", function, override=True)


for _name in ("echo", "identity_cpp", "device_test"):
    _register(_name)(lambda value: value)


@_register("nop")
def _nop(*_args: Any) -> None:
    return None


@_register("object_use_count")
def _use_count(value: object) -> int:
    return sys.getrefcount(value)


@_register("sleep_in_ffi")
def _sleep(seconds: float) -> None:
    time.sleep(seconds)


@_register("run_check_signal")
def _check_signal(seconds: int) -> None:
    for _ in range(seconds):
        time.sleep(1)


@_register("test_wrap_callback")
def _wrap_callback(function: Callable[..., Any]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        function(*args)

    return call


@_register("test_raise_error_callback")
def _raise_error(message: str) -> Callable[..., None]:
    def call(*_args: Any) -> None:
        raise InternalError(message)

    return call


@_register("test_check_eq_callback")
def _check_equal(message: str) -> Callable[[Any, Any], None]:
    def call(x: Any, y: Any) -> None:
        if x != y:
            raise InternalError(f"Check failed: (x == y) is false: {x} vs. {y} : {message}")

    return call


@_register("ErrorTest")
def _error_test(x: int, y: int) -> int:
    if x != y:
        raise InternalError(f"Check failed: (x == y) is false: {x} vs. {y} : ErrorTest")
    if x == 1:
        raise InternalError("InternalError: cannot be true")
    return x


@_register("GetShapeSize")
def _shape_size(shape: Sequence[int]) -> int:
    return len(shape)


@_register("GetShapeElem")
def _shape_element(shape: Sequence[int], index: int) -> int:
    return shape[index]


@_register("ReturnsVariant")
def _returns_variant(x: int) -> PrimExpr | String:
    return IntImm("int32", x // 2) if x % 2 == 0 else String("argument was odd")


def _refuse(wanted: str, value: float) -> TypeError:
    return TypeError(f"expected {wanted}, but got {type_key_of(value)}")


@_register("AcceptsVariant")
def _accepts_variant(value: float | str) -> str:
    match value:
        case str():
            return "runtime.String"
        case int() | IntImm() if not isinstance(value, bool):
            return "IntImm"
    raise _refuse("Variant<runtime.String, IntImm>", value)


@_register("AcceptsBool")
def _accepts_bool(value: Any) -> bool:
    if not isinstance(value, (bool, int, IntImm)):
        raise _refuse("bool", value)
    return bool(const_int(value, value))


@_register("AcceptsInt")
def _accepts_int(value: Any) -> int:
    if not isinstance(value, (int, IntImm)):
        raise _refuse("int", value)
    return int(const_int(value, value))


def _array(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise _refuse("Array", value)
    return value


def _mapping(value: Mapping[str, int]) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _refuse("Map", value)
    return value


_register("AcceptsObjectRefArray")(lambda values: _array(values)[0])
_register("AcceptsArrayReturnsArray")(lambda values: Array(_array(values)))
_register("AcceptsArrayReturnsSize")(lambda values: len(_array(values)))
_register("AcceptsMapReturnsValue")(lambda values, key: _mapping(values)[key])
_register("AcceptsMapReturnsMap")(lambda values: Map(_mapping(values)))


@_register("AcceptsPrimExpr")
def _scalar(value: float) -> PrimExpr:
    """Numbers become literals: booleans of one bit, integers and floats of 32."""
    match value:
        case PrimExpr():
            return value
        case bool():
            return IntImm("bool", int(value))
        case int():
            return IntImm("int32", value)
        case float():
            return FloatImm("float32", value)
        case str():
            return StringImm(value)
    raise _refuse("PrimExpr", value)


_register("AcceptsArrayOfPrimExpr")(lambda values: Array(map(_scalar, _array(values))))
_register("AcceptsArrayOfVariant")(lambda values: Array(_scalar(v) if not callable(v) else v for v in _array(values)))
_register("AcceptsMapOfPrimExpr")(lambda values: Map({k: _scalar(v) for k, v in _mapping(values).items()}))
