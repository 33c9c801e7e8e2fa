"""Packed functions that virtual machine tests call by name, and a check of saved functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.arrays.ndarray import NDArray, array
from ...runtime.registry import register_func
from ...runtime.vm.machine import VirtualMachine
from ...tir import const

__all__ = ["check_saved_func"]


@register_func("test.vm.move", override=True)
def move(src: NDArray) -> NDArray:
    """The argument itself."""
    return src


@register_func("test.vm.add", override=True)
def add(a: NDArray, b: NDArray) -> NDArray:
    """Sum of two tensors."""
    return array(a.numpy() + b.numpy())


@register_func("test.vm.mul", override=True)
def mul(a: NDArray, b: NDArray) -> NDArray:
    """Product of two tensors, element by element."""
    return array(a.numpy() * b.numpy())


@register_func("test.vm.equal_zero", override=True)
def equal_zero(a: NDArray) -> NDArray:
    """Whether all elements are zero."""
    return array(np.all(a.numpy() == 0))


@register_func("test.vm.subtract_one", override=True)
def subtract_one(a: NDArray) -> NDArray:
    """One less in every element."""
    return array(np.subtract(a.numpy(), 1))


@register_func("test.vm.identity", override=True)
def identity_packed(a: NDArray, b: NDArray) -> None:
    """Copy ``a`` to ``b``."""
    b[:] = array(a.numpy())


@register_func("test.vm.tile", override=True)
def tile_packed(a: NDArray, b: NDArray) -> None:
    """Write ``a`` twice along the last axis of ``b``."""
    b[:] = array(np.tile(a.numpy(), (1, 2)))


@register_func("test.vm.add_scalar", override=True)
def add_scalar(a: Any, b: Any) -> float:
    """Sum of two scalars."""
    return a + b


@register_func("test.vm.get_device_id", override=True)
def get_device_id(device: Any) -> int:
    """Number of a device."""
    return int(device.device_id)


@register_func("test.vm.check_if_defined", override=True)
def check_if_defined(obj: object) -> Any:
    """Whether an object is not null."""
    return const(obj is not None, "bool")


def check_saved_func(vm: VirtualMachine, func_name: str, *inputs: Any) -> NDArray:
    """Save ``func_name`` with these inputs as a function without arguments, and check that it gives the same result.

    Returns that result.
    """
    saved_name = f"{func_name}_saved"
    vm.save_function(func_name, saved_name, *inputs)
    first, second = vm[func_name](*inputs), vm[saved_name]()
    np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-7, atol=1e-7)
    return first
