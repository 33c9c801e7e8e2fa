"""Calling convention of kernels: inputs in order, outputs allocated and returned, torch and NumPy tensors alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir import dtype as dt
from ...runtime import Device, NDArray, nd
from ...runtime import device as device_of
from ...runtime.kernels.kernel import KernelSpec, ParamSpec
from ...runtime.bytecode.shape_text import extent_of
from ...support.errors import RelaxishError

if TYPE_CHECKING:
    import torch

__all__ = ["Caller", "describe", "empty_like", "is_torch", "to_numpy", "torch_dtype"]

_CPU = Device.kDLCPU


def is_torch(value: Any) -> bool:
    """Whether a value is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def torch_dtype(name: str) -> torch.dtype:
    """torch's type of that name. Raises TypeError if it has none."""
    import torch

    found = getattr(torch, {"bool": "bool"}.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no type {name}; give NumPy arrays")
    return found


def describe(value: Any) -> tuple[tuple[int, ...], str, int] | None:
    """Shape, dtype and device type of a tensor; None for what is none."""
    match value:
        case NDArray():
            return tuple(value.shape), value.dtype, value.device.device_type
        case np.ndarray():
            return value.shape, str(value.dtype), _CPU
    if is_torch(value):
        kind = Device.kDLCUDA if value.is_cuda else _CPU
        return tuple(value.shape), str(value.dtype).removeprefix("torch."), kind
    return None


def _is_contiguous(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.flags.c_contiguous)
    return bool(value.is_contiguous()) if is_torch(value) else True


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """A tensor's values on the host."""
    if is_torch(value):
        return nd.from_dlpack(value.detach().contiguous()).numpy()
    return value.numpy() if isinstance(value, NDArray) else np.asarray(value)


def empty_like(like: Any, shape: Sequence[int], dtype: str, place: Device) -> Any:
    """A new tensor, of the library and on the device of another; an NDArray where there is none to go by."""
    if is_torch(like):
        import torch

        return torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=like.device)
    if isinstance(like, np.ndarray):
        # Compact and aligned memory, which compiled code takes as it is.
        return np.empty(tuple(shape), dt.numpy_dtype(dtype))
    return nd.empty(tuple(shape), dtype, place)


class Caller:
    """Calls a function of destination-passing style by its inputs.

    ``run`` takes all parameters in order. Where it runs on a device, tensors of the host are copied there and back.
    """

    def __init__(self, spec: KernelSpec, run: Callable[..., Any], out_idx: Sequence[int], place: Device) -> None:
        self.spec = spec
        self.run = run
        self.out_idx = list(out_idx)
        self.place = place
        self.in_idx = [i for i in range(len(spec.params)) if i not in self.out_idx]
        for index in self.out_idx:
            if spec.params[index].kind != "tensor":
                raise ValueError(f"{spec.name}: parameter {index} is a scalar and cannot be an output")

    def __call__(self, *args: Any) -> Any:
        """Run; gives the output, a list of several, or nothing where no parameter is one."""
        values = self.arguments(args)
        self.run_on(values)
        outputs = [values[i] for i in self.out_idx]
        return None if not outputs else outputs[0] if len(outputs) == 1 else outputs

    def arguments(self, args: Sequence[Any]) -> list[Any]:
        """All parameters in order: the inputs given, checked, and new outputs. Raises ValueError for wrong ones."""
        params = self.spec.params
        if len(args) != len(self.in_idx):
            raise ValueError(
                f"{self.spec.name}: Expected {len(params)} inputs, got {len(args) + len(self.out_idx)} with {len(args)} "
                f"inputs and {len(self.out_idx)} outputs"
            )
        values: list[Any] = [None] * len(params)
        sizes: dict[str, int] = {}
        first = None
        for index, value in zip(self.in_idx, args, strict=True):
            values[index] = value
            if params[index].kind == "tensor":
                self._check(index, value, params[index], sizes)
                first = value if first is None else first
            elif params[index].shape:
                sizes.setdefault(str(params[index].shape[0]), int(value))
        for index in self.out_idx:
            shape = [self._extent(index, d, sizes) for d in params[index].shape]
            values[index] = empty_like(first, shape, params[index].dtype, self.place)
        return values

    def _check(self, index: int, value: Any, param: ParamSpec, sizes: dict[str, int]) -> None:
        where = f"{self.spec.name}: input {index}"
        found = describe(value)
        if found is None:
            raise ValueError(f"{where}: expected a tensor (torch, NumPy or relaxish), got {type(value).__name__}")
        shape, dtype, kind = found
        if dtype != param.dtype:
            raise ValueError(f"{where}: dtype is expected to be {param.dtype}, got {dtype}")
        if len(shape) != len(param.shape):
            raise ValueError(f"{where}: expected {len(param.shape)} dimensions, got shape {shape}")
        for axis, (have, want) in enumerate(zip(shape, param.shape, strict=True)):
            if isinstance(want, str):
                known = sizes.setdefault(want, have) if want.isidentifier() else extent_of(want)(sizes)
                want = have if known is None else known
            if have != want:
                raise ValueError(f"{where}: shape[{axis}] is expected to be {want}, got {have} (shape {shape})")
        if kind not in (self.place.device_type, _CPU):
            raise ValueError(f"{where}: the tensor is on another device than the kernel, which runs on {self.place}")
        if not _is_contiguous(value):
            raise ValueError(f"{where}: the tensor is not contiguous; give a contiguous copy of it (.contiguous())")

    def _extent(self, index: int, extent: int | str, sizes: dict[str, int]) -> int:
        if isinstance(extent, int):
            return extent
        found = extent_of(extent)(sizes)
        if found is None:
            raise ValueError(f"{self.spec.name}: the extent {extent} of output {index} is not known from the inputs")
        return int(found)

    def run_on(self, values: Sequence[Any]) -> None:
        """Run on all parameters, outputs written in place."""
        if self.place.device_type == _CPU:
            self.run(*values)
            return
        placed = [self.placed(v) for v in values]
        self.run(*placed)
        for value, copy in zip(values, placed, strict=True):
            if copy is not value and isinstance(copy, NDArray) and _on_host(value):
                _give_back(value, copy)

    def placed(self, value: Any) -> object:
        """A tensor where the kernel runs: itself, or a copy of one of the host."""
        found = describe(value)
        if found is None:
            return value
        if found[2] == _CPU:
            return nd.array(value, self.place)
        return value if isinstance(value, NDArray) else nd.from_dlpack(value)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.place.device_type != _CPU:
            self.place.sync()


def _on_host(value: Any) -> bool:
    found = describe(value)
    return found is not None and found[2] == _CPU


def _give_back(value: Any, copy: NDArray) -> None:
    match value:
        case NDArray():
            value.copyfrom(copy)
        case np.ndarray():
            if value.flags.writeable:
                np.copyto(value, copy.numpy())
        case _:
            target = nd.from_dlpack(value.detach())
            if target.readonly:
                raise RelaxishError("an output is a tensor whose memory cannot be shared")
            target.copyfrom(copy.copyto(device_of("cpu", 0)))
