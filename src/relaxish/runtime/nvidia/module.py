"""Kernels of one target: CUDA C++, what it compiles to, and the host programs that launch them.

Nothing is compiled before it is needed: machine code when a device first runs a kernel, or when the module is exported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary
import os

from ...support import entry_points
from ...support.errors import MissingExtraError, RelaxishError
from ...support.log import get_logger
from ..device import Device
from ..devices.module import DeviceModule
from ..devices.host_program import DeviceFunction, HostProgram, KernelInfo
from ..kernels.kernel import KernelSpec, MissingFunctionError
from . import providers
from .driver import Dim3, Handle
from .errors import CODES, CUDAError
from .loaded_images import LoadedImages
from .program import CUDARuntime
from .state import CUDAState

__all__ = ["TOOLS", "CUDAModule"]

# What the compiler offers: "cubin" and "ptx" (source, arch), "cubins" (pairs of them), "sass" (cubin), "save_ir"
# (module). It fills the table when it is loaded; an environment with only the run time does not have it.
TOOLS: dict[str, Callable[..., Any]] = {}
_DEVICE_IR = "device_ir.json"
_log = get_logger("cuda")
# Images that two threads load at once would be unloaded for the one that comes second, perhaps while they run.
_LOADING = threading.RLock()


def _tool(name: str) -> Callable[..., Any]:
    if name not in TOOLS and entry_points.available("cuda.tools"):
        entry_points.load("cuda.tools")
    if name not in TOOLS:
        raise RelaxishError(f"making {name} needs the compiler, and this installation has only the run time")
    return TOOLS[name]


class _Runtimes(dict[int, CUDARuntime]):
    """The runtimes of a module by device, made when first asked for."""

    def __init__(self, module: CUDAModule, state: CUDAState) -> None:
        self._module = module
        self._state = state

    def __missing__(self, index: int) -> CUDARuntime:
        module, state = self._module, self._state
        state.check_usable()
        with _LOADING:
            made = self.get(index)
            if made is None:
                loaded = LoadedImages(state, index, module.image_for(state, index))
                made = self[index] = CUDARuntime(state, index, module.programs, module.infos, loaded.holding)
        return made


class CUDAModule(DeviceModule):
    """Device code of one target; ``module["name"](arrays...)`` runs a host program, or launches a kernel as it is.

    ``images`` holds machine code by architecture, of the whole source ("sm_90a") or of a kernel ("sm_90a/name").
    ``parts`` gives the source of each kernel by itself: they compile side by side, and each is found in the cache again
    whatever else is in the module. ``device_ir`` is what the emulator runs instead of machine code.
    """

    def __init__(
        self,
        source: str,
        arch: str,
        kernels: Iterable[KernelInfo | str] = (),
        programs: Iterable[HostProgram] = (),
        *,
        images: Mapping[str, bytes] | None = None,
        parts: Callable[[], Mapping[str, str]] = dict,
        device_ir: Any = None,
    ) -> None:
        infos = [k if isinstance(k, KernelInfo) else KernelInfo(k, ()) for k in kernels]
        super().__init__("cuda", Device.kDLCUDA, {"cu": source}, infos, programs)
        self.arch = arch
        self.images = dict(images or {})
        self.device_ir = device_ir
        self._make_parts = parts
        self._by_state: WeakKeyDictionary[CUDAState, _Runtimes] = WeakKeyDictionary()

    # ---- looking at it

    def get_source(self, fmt: str = "") -> str:
        """CUDA C++ ("cu", the default), "ptx", "sass", or "host": the text of the host programs.

        Raises MissingExtraError when making one needs a tool that is not installed.
        """
        if fmt in ("", "cu", "cuda"):
            return self.sources["cu"]
        if fmt == "ptx" and "ptx" not in self.sources:
            self.sources["ptx"] = _tool("ptx")(self.sources["cu"], self.arch)
        if fmt == "sass" and "sass" not in self.sources:
            images = {id(image): image for image in self.machine_code().values()}
            self.sources["sass"] = "\n".join(_tool("sass")(image) for image in images.values())
        return super().get_source(fmt)

    inspect_source = get_source

    @cached_property
    def parts(self) -> dict[str, str]:
        """The source of each kernel by itself; empty where only the whole is known."""
        return dict(self._make_parts())

    def machine_code(self, arch: str | None = None) -> dict[str, bytes]:
        """Machine code of each kernel for an architecture; the target's, if none is given."""
        arch = arch or self.arch
        if arch in self.images or len(self.infos) < 2 or set(self.parts) != set(self.infos):
            return dict.fromkeys(self.infos, self.cubin(arch))
        missing = [name for name in self.parts if f"{arch}/{name}" not in self.images]
        if missing:
            for name, image in zip(missing, _tool("cubins")([(self.parts[name], arch) for name in missing])):
                if isinstance(image, Exception):
                    raise image
                self.images[f"{arch}/{name}"] = image
        return {name: self.images[f"{arch}/{name}"] for name in self.parts}

    def cubin(self, arch: str | None = None) -> bytes:
        """Machine code of the whole source for an architecture; the target's, if none is given."""
        arch = arch or self.arch
        found = self.images.get(arch)
        if found is None:
            found = self.images[arch] = _tool("cubin")(self.sources["cu"], arch)
        return found

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the source (".cu"), ".ptx" or ".cubin"."""
        form = fmt or str(file_name).rpartition(".")[2]
        if form == "cubin":
            with open(file_name, "wb") as file:
                file.write(self.cubin())
            return
        if form in ("ptx", "sass", "cu"):
            self.sources[form] = self.get_source(form)
        super().save(file_name, form)

    # ---- running it

    def image_for(self, state: CUDAState, index: int) -> Handle:
        """Image for the driver in use: machine code, device functions for the emulator, or names of kernels for the null device."""
        form = state.driver.image_format
        if form == "emulated":
            if self.device_ir is None:
                raise RelaxishError("this module was exported without what the emulator runs")
            return self.device_ir
        if form != "cubin":
            return sorted(self.infos)
        arch = self._arch_of(state, index)
        if not self.sources["cu"] and not any(key.partition("/")[0] == arch for key in self.images):
            known = ", ".join(self.images) or "none"
            raise CUDAError(
                CODES["NO_BINARY_FOR_GPU"], "loading a module", f"cuda({index}) is {arch}, there is: {known}"
            )
        return self.machine_code(arch)

    def _arch_of(self, state: CUDAState, index: int) -> str:
        """The architecture to compile for: the target's where the device is that, else the device's own."""
        major = state.driver.attribute(index, "compute_capability_major")
        own = f"sm_{major}{state.driver.attribute(index, 'compute_capability_minor')}"
        if self.arch.rstrip("af") == own:
            return self.arch
        have = (key.partition("/")[0] for key in self.images)
        return next((a for a in have if a.rstrip("af") == own), own)

    def runtime(self, index: int) -> CUDARuntime:
        """Device runtime of a device, under the driver in use."""
        return self.runtimes()[index]

    def runtimes(self) -> Mapping[int, CUDARuntime]:
        """Device runtimes by device index, under the driver in use."""
        state = providers.current()
        found = self._by_state.get(state)
        if found is None:
            found = self._by_state[state] = _Runtimes(self, state)
        return found

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a program or a kernel of that name."""
        return name in self.programs or name in self.infos or super().implements_function(name, query_imports)

    def get_function(self, name: str, query_imports: bool = False) -> Handle:
        """A host program on the device of its arguments, or a bare kernel, which takes its launch sizes last."""
        if name in self.programs:
            return DeviceFunction(self.programs[name], self.runtime)
        if name in self.infos:
            return _BareKernel(self, self.infos[name])
        raise MissingFunctionError(f"Module has no function '{name}' (functions: {', '.join(self.programs)})")

    def bound_function(self, name: str) -> Callable[..., Any]:
        """As ``get_function(name).guarded`` under the driver in use now: the quick form of the virtual machine."""
        runtimes: Any = None

        def runtime_of(index: int) -> CUDARuntime:
            nonlocal runtimes
            if runtimes is None:
                runtimes = self.runtimes()
            made: CUDARuntime = runtimes[index]
            return made

        return DeviceFunction(self.programs[name], runtime_of).guarded

    def unload(self) -> None:
        """Give back what devices hold of the module; a later launch loads it again."""
        self._by_state.clear()

    # ---- files

    def package(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Contents of an export: the source, and machine code for the target if a compiler is installed."""
        manifest = self.to_json()
        manifest |= {"arch": self.arch, "parts": {}}
        try:
            self.machine_code()
            manifest["parts"] = self.parts if self.arch not in self.images else {}
        except MissingExtraError as reason:
            _log.warning("%s is exported without machine code, which a device will have to compile: %s", self, reason)
        binaries = {f"{key}.cubin": image for key, image in self.images.items()}
        if self.device_ir is not None:
            text = self.device_ir if isinstance(self.device_ir, str) else _tool("save_ir")(self.device_ir)
            binaries[_DEVICE_IR] = text.encode()
        return manifest, binaries

    @staticmethod
    def from_json(data: Mapping[str, Any], binaries: Mapping[str, bytes] | None = None) -> CUDAModule:
        """Inverse of :meth:`package`."""
        files = dict(binaries or {})
        device_ir = files.pop(_DEVICE_IR, None)
        return CUDAModule(
            data["sources"]["cu"],
            data["arch"],
            [KernelInfo.from_json(item) for item in data["kernels"]],
            [HostProgram(KernelSpec.from_json(spec), text) for spec, text in data["programs"]],
            images={name.removesuffix(".cubin"): image for name, image in files.items()},
            parts=lambda: data.get("parts", {}),
            device_ir=None if device_ir is None else device_ir.decode(),
        )

    def __repr__(self) -> str:
        return f"CUDAModule({self.arch}: {', '.join(self.kernel_names)})"


class _BareKernel:
    """A kernel launched by hand: its arguments, then its launch parameters in order."""

    def __init__(self, module: CUDAModule, info: KernelInfo) -> None:
        self.module = module
        self.info = info

    def __call__(self, *args: Any) -> None:
        info = self.info
        count = len(info.kinds)
        if len(args) != count + len(info.launch_params):
            wanted = ", ".join([*info.kinds, *info.launch_params])
            raise RelaxishError(f"kernel {info.name} is launched with ({wanted}), got {len(args)} arguments")
        sizes = dict(zip(info.launch_params, (int(a) for a in args[count:])))

        def extents(part: str) -> Dim3:
            return sizes.get(f"{part}.x", 1), sizes.get(f"{part}.y", 1), sizes.get(f"{part}.z", 1)

        index = next((a.device.device_id for a in args[:count] if hasattr(a, "device")), 0)
        values = tuple(getattr(a, "ptr", a) if kind == "pointer" else a for a, kind in zip(args, info.kinds))
        runtime = self.module.runtimes()[index]
        shared = sizes.get("tir.use_dyn_shared_memory", 0)
        runtime.launch(info.name, values, extents("blockIdx"), extents("threadIdx"), shared, extents("clusterIdx"))
