"""The emulator as a CUDA driver: device memory is host memory, kernels run on the CPU.

"emulator" looks for faults and raises :class:`.errors.EmulationError`; "emulator-fast" does not look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir import dtype as dt
from ...ir.module import IRModule
from ...ir.serial import load_json
from ...runtime.nvidia import tensor_map
from ...runtime.nvidia.errors import CODES, failure
from ...runtime.nvidia.providers import register_provider
from ...runtime.nvidia.simulated import Kernel, Launch, SimulatedDriver
from .kernels import EmulatedKernels
from .launch import TensorMap

__all__ = ["EmulatorDriver"]


class EmulatorDriver(SimulatedDriver):
    """Kernels of an image are compiled for this processor when it is loaded.

    An image is a module of lowered device functions, or its JSON text.
    """

    name = "emulator"
    image_format = "emulated"

    def __init__(self, *, checked: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.checked = checked

    def open_image(self, device: int, image: Any) -> Mapping[str, Kernel]:
        """The kernels of a module."""
        if isinstance(image, (bytes, bytearray)):
            image = bytes(image).decode()
        mod = load_json(image) if isinstance(image, str) else image
        if not isinstance(mod, IRModule):
            raise failure(CODES["INVALID_IMAGE"], "loading a module", "the emulator loads modules of device functions")
        # Code that nobody checks is worth optimising.
        kernels = EmulatedKernels(mod, checked=self.checked, level=0 if self.checked else 2)
        return {
            name: Kernel(name, (kernels, name), kinds, static_shared=kernels.program(name).static_bytes)
            for name, kinds in kernels.kinds().items()
        }

    def run_kernel(self, kernel: Kernel, launch: Launch) -> None:
        """Run a kernel; pointers are checked against the allocation that they point into."""
        kernels, name = kernel.body
        allocations = self._devices[launch.device].allocations

        def extent(address: int) -> int | None:
            found = allocations.find(address)
            return None if found is None else found[0] + found[1] - address

        args = [(kind, _map(value) if kind == "tensor_map" else value) for kind, value in launch.args]
        kernels.launch(name, launch.grid, launch.block, launch.shared, args, cluster=launch.cluster, extent=extent)


def _map(data: bytes) -> TensorMap:
    spec = tensor_map.decode(data)
    element = dt.nbytes(spec.dtype)
    return TensorMap(spec.address, element, spec.dims, (element, *spec.strides), spec.box, spec.swizzle)


register_provider("emulator", EmulatorDriver)
register_provider("emulator-fast", lambda: EmulatorDriver(checked=False))
