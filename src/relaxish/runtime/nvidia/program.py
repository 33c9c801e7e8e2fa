"""Launching the kernels of a module on one CUDA device: what host programs call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...support.errors import RelaxishError
from ..device import cuda
from ..devices.host_program import HostProgram, HostRuntime, KernelInfo
from . import tensor_map
from .driver import Dim3, Handle, Launcher, TensorMapSpec
from .state import CUDAState

__all__ = ["CUDARuntime"]

_DEFAULT_SHARED = 48 * 1024
_KEPT_MAPS = 256


class CUDARuntime(HostRuntime):
    """Kernels are looked up at their first launch; from then on a launch is one call of a prepared launcher."""

    def __init__(
        self,
        state: CUDAState,
        index: int,
        programs: Mapping[str, HostProgram],
        kernels: Mapping[str, KernelInfo],
        module_of: Callable[[str], Any],
    ) -> None:
        super().__init__(cuda(index), programs)
        self._state = state
        self._index = index
        self._kernels = kernels
        self._module_of = module_of  # the driver's module that holds a kernel
        self._launchers: dict[Any, Launcher] = {}
        self._functions: dict[str, Any] = {}
        self._shared: dict[str, int] = {}
        self._maps: dict[Any, bytes] = {}

    def launch(
        self, name: str, values: tuple[Any, ...], grid: Dim3, block: Dim3, shared: int, cluster: Dim3 = (1, 1, 1)
    ) -> None:
        """Run a kernel on this thread's stream. An empty grid is no work."""
        if 0 in grid:
            return
        key = name if cluster == (1, 1, 1) else (name, cluster)
        launcher = self._launchers.get(key)
        if launcher is None:
            launcher = self._launchers[key] = self._prepare(name, cluster)
        if shared and shared > self._shared.get(name, 0):
            self._allow_shared(name, shared)
        launcher(grid, block, shared, self._state.stream(self._index), values)

    def _function(self, name: str) -> Handle:
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = self._state.driver.get_function(self._module_of(name), name)
        return found

    def _prepare(self, name: str, cluster: Dim3) -> Launcher:
        info = self._kernels.get(name)
        if info is None:
            raise RelaxishError(f"the module has no kernel {name}; it has: {', '.join(self._kernels) or 'none'}")
        return self._state.driver.prepare(self._function(name), info.kinds, cluster)

    def _allow_shared(self, name: str, nbytes: int) -> None:
        """Ask for dynamic shared memory: less than 48 KiB may be too much, too, beside a kernel's static arrays."""
        driver = self._state.driver
        most = int(driver.attribute(self._index, "max_shared_memory_per_block_optin") or _DEFAULT_SHARED)
        if nbytes > most:
            raise RelaxishError(
                f"kernel {name} needs {nbytes} bytes of shared memory a block, {self.device} has {most}: it was "
                "scheduled for another device"
            )
        driver.set_max_dynamic_shared(self._function(name), nbytes)
        self._shared[name] = nbytes

    def tensor_map(
        self,
        address: int,
        dtype: str,
        dims: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        swizzle: int = 0,
        interleave: int = 0,
        l2_promotion: int = 128,
        fill_nan: int = 0,
    ) -> bytes:
        """The map of a tensor, innermost dimension first; maps of the same memory are made once.

        A tensor without elements has none, and the driver refuses to encode one: nothing will be read through it.
        """
        if 0 in dims:
            return bytes(tensor_map.BYTES)
        key = (address, dtype, dims, strides, box, swizzle, interleave, l2_promotion, fill_nan)
        found = self._maps.get(key)
        if found is None:
            if len(self._maps) >= _KEPT_MAPS:
                self._maps.clear()
            spec = TensorMapSpec(
                address, dtype, dims, strides, box, (), swizzle, interleave, l2_promotion, bool(fill_nan)
            )
            found = self._maps[key] = self._state.driver.encode_tensor_map(spec)
        return found
