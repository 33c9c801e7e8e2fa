"""Inputs for kernels: tensors of random, constant or small whole numbers."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir import dtype as dt
from ...runtime import Device, nd
from ..jit.kernel import KernelParam
from ...support.sequences import of_kind

__all__ = ["TensorSupplyType", "as_tensor", "get_tensor_supply", "supply_arrays"]


class TensorSupplyType(enum.Enum):
    """Kind of numbers that fill a tensor."""

    #: Whole numbers from -2 to 2, from 0 to 2 without a sign.
    Integer = 1
    #: Between -1 and 1.
    Uniform = 2
    #: Of mean 0 and deviation 1.
    Normal = 3
    #: As Normal, drawn in float32.
    Randn = 4
    Zero = 5
    One = 6
    #: Floats as Uniform, whole numbers as Integer.
    Auto = 7


def _whole(param: KernelParam, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    low = 0 if param.is_unsigned() else -2
    return np.asarray(rng.integers(0, 2, shape) if param.is_boolean() else rng.integers(low, 3, shape))


def _values(
    kind: TensorSupplyType, param: KernelParam, rng: np.random.Generator, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    if kind is TensorSupplyType.Zero:
        return np.zeros(shape, np.float32)
    if kind is TensorSupplyType.One:
        return np.ones(shape, np.float32)
    if kind is TensorSupplyType.Integer or not dt.is_float(param.dtype):
        return _whole(param, rng, shape)
    if kind in (TensorSupplyType.Normal, TensorSupplyType.Randn):
        return np.asarray(rng.standard_normal(shape, np.float32))
    return rng.random(shape, np.float32) * np.float32(2) - np.float32(1)


def _shape_of(param: KernelParam) -> tuple[int, ...]:
    shape = tuple(of_kind(param.shape, int))
    if len(shape) != len(param.shape):
        raise ValueError(
            f"the shape {list(param.shape)} is known at run time only, so that no input can be made up for it; give "
            "input_tensors, or a supply_prog"
        )
    return shape


def _array(kind: TensorSupplyType, param: KernelParam, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return _values(kind, param, rng, _shape_of(param)).astype(dt.numpy_dtype(param.dtype))


def supply_arrays(params: Sequence[KernelParam], kind: TensorSupplyType, seed: int = 0) -> list[Any]:
    """NumPy arrays for parameters; scalars are 1. Raises ValueError for a shape that is not known."""
    rng = np.random.default_rng(seed)
    return [1 if p.is_scalar else _array(kind, p, rng) for p in params]


def get_tensor_supply(
    supply_type: TensorSupplyType = TensorSupplyType.Auto, place: Device | None = None, seed: int = 0
) -> Callable[[KernelParam], Any]:
    """A function that makes a tensor for a parameter: torch's where the program has imported torch, else NumPy's.

    For a kernel on a CUDA device torch's tensors are made there, if torch can.
    """
    rng = np.random.default_rng(seed)
    kind = TensorSupplyType(supply_type)

    def supply(param: KernelParam) -> Any:
        return 1 if param.is_scalar else as_tensor(_array(kind, param, rng), place)

    return supply


def as_tensor(array: np.ndarray[Any, Any], place: Device | None) -> Any:
    """A NumPy array as the program's kind of tensor."""
    torch = sys.modules.get("torch")
    if torch is None:
        return array
    made = torch.from_dlpack(nd.array(array)).clone()
    on_cuda = place is not None and place.device_type == Device.kDLCUDA and torch.cuda.is_available()
    return made.cuda() if on_cuda else made
