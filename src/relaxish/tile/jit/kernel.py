"""A compiled kernel: call it with its inputs, look at its code, time it."""

from __future__ import annotations

import functools
import json
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir import IRModule, load_json, save_json
from ...ir import dtype as dt
from ...runtime import Device
from ...runtime import device as device_of
from ...runtime.kernels.kernel import KernelSpec
from ...support import untrusted as ut
from ...support.errors import MalformedDataError, RelaxishError
from ...target import Target
from ...tir import PrimFunc
from .calling import Caller, torch_dtype
from .options import CompileOptions, kernel_name, resolve_out_idx
from ...ir.prim import const_int

if TYPE_CHECKING:
    import torch

    from ...runtime.kernels.module import Module
    from ..profiler import Profiler, TensorSupplyType

__all__ = ["JITKernel", "KernelParam", "build_module", "params_of"]

_LIBRARY, _FUNCTION, _SOURCE, _HOST_SOURCE = "kernel.so", "function.pkl", "kernel_source.txt", "host_source.txt"
_FORMAT = "relaxish-primfunc-1"


@dataclass(frozen=True)
class KernelParam:
    """A parameter: its dtype and shape, extents known at run time by name; a scalar has no shape."""

    dtype: str
    shape: tuple[int | str, ...]
    is_scalar: bool = False

    def torch_dtype(self) -> torch.dtype:
        """torch's type."""
        return torch_dtype(self.dtype)

    def is_static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(d, int) for d in self.shape)

    def is_unsigned(self) -> bool:
        """Whether its numbers have no sign."""
        return self.dtype.startswith("uint")

    def is_integer(self) -> bool:
        """Whether its numbers are integers."""
        return dt.is_int(self.dtype) or self.is_unsigned()

    def is_boolean(self) -> bool:
        """Whether it holds truth values."""
        return self.dtype == "bool"


def build_module(func: PrimFunc, options: CompileOptions) -> Module:
    """Compile a kernel in this process."""
    from ...driver import build_tir
    from ...ir.transform import PassContext

    with PassContext(opt_level=3, config=options.pass_configs):
        return build_tir(IRModule({kernel_name(func): func}), options.target)


class JITKernel:
    """A kernel for one target.

    Called with the inputs in order it allocates the outputs (the parameters of ``out_idx``) and returns them: one alone,
    several as a list. Inputs may be torch, NumPy or relaxish tensors; outputs are of the first input's kind. Shape,
    dtype, device and contiguity are checked. Without ``out_idx`` all parameters are given, and written in place.
    """

    def __init__(
        self,
        func: PrimFunc | None = None,
        out_idx: int | Sequence[int] | None = None,
        target: str | Target | None = "auto",
        target_host: str | Target | None = None,
        execution_backend: str | None = None,
        verbose: bool | None = None,
        pass_configs: dict[Any, Any] | None = None,
        compile_flags: Sequence[str] | str | None = None,
        *,
        options: CompileOptions | None = None,
        module: Module | None = None,
        folder: Path | None = None,
    ) -> None:
        self.options = options or CompileOptions.make(
            out_idx, execution_backend, target, target_host, verbose, pass_configs, compile_flags
        )
        if module is None:
            if not isinstance(func, PrimFunc):
                raise TypeError(f"a kernel is made of a PrimFunc, not of a {type(func).__name__}")
            module = build_module(func, self.options)
        self._func = func
        self._folder = folder
        self.module = module
        self.latency: float | None = None
        self.ref_latency: float | None = None
        self.config: dict[str, Any] | None = None
        name = module.entry_name
        if name is None:
            raise RelaxishError(f"a kernel has one function, this module has {', '.join(module.kernels) or 'none'}")
        self.spec: KernelSpec = module.kernels[name]
        self.out_idx = resolve_out_idx(self.options.out_idx, len(self.spec.params))
        self._caller = Caller(self.spec, module.get_function(name), self.out_idx, self.device)

    # ---- facts

    @property
    def target(self) -> Target:
        """Target of the compilation."""
        return self.options.target

    @property
    def device(self) -> Device:
        """Device of the kernel."""
        kind = self.target.kind.name
        return device_of("cpu" if kind in ("llvm", "c") else kind, 0)

    @functools.cached_property
    def params(self) -> list[KernelParam]:
        """All parameters, outputs included."""
        return [
            KernelParam(p.dtype, () if p.kind != "tensor" else tuple(p.shape), p.kind != "tensor")
            for p in self.spec.params
        ]

    @property
    def prim_func(self) -> PrimFunc:
        """The program it was compiled from."""
        if self._func is None:
            if self._folder is None:
                raise RelaxishError("this kernel was made of compiled code alone; its program is not known")
            self._func = load_function(self._folder)
        return self._func

    @property
    def adapter(self) -> Caller:
        """Adapter that calls the kernel."""
        return self._caller

    @property
    def torch_function(self) -> Callable[..., Any]:
        """Function that is called."""
        return self._caller

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the inputs. Raises ValueError, naming the input, for arguments that do not fit."""
        if kwargs:
            args = (*args, *self._by_name(len(args), kwargs))
        return self._caller(*args)

    def _by_name(self, given: int, kwargs: dict[str, Any]) -> list[Any]:
        names = [_name_of(self.prim_func, i) for i in self._caller.in_idx][given:]
        if set(names) != set(kwargs):
            raise ValueError(f"{self.spec.name}: expected the inputs {', '.join(names)}, got {', '.join(kwargs)}")
        return [kwargs[n] for n in names]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{p.dtype}{list(p.shape)}" for p in self.params)
        return f"JITKernel({self.spec.name}({shapes}), out_idx={self.out_idx}, target={self.target.kind.name})"

    # ---- timing

    def get_profiler(self, tensor_supply_type: TensorSupplyType | None = None) -> Profiler:
        """Profiler that times the kernel and compares it with others, on inputs of a kind."""
        from ..profiler import Profiler, TensorSupplyType

        return Profiler(self, supply_type=tensor_supply_type or TensorSupplyType.Auto)

    # ---- code

    def _stored(self, name: str) -> str | None:
        path = None if self._folder is None else self._folder / name
        return path.read_text() if path is not None and path.is_file() else None

    def _device_module(self) -> Any:
        return next((m for m in self.module.imported_modules if m.is_device_module), None)

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The code of the kernel (for a CPU, LLVM's), with that of the host behind it if asked for."""
        device = self._device_module()
        text = self._stored(_SOURCE) or (device.get_source() if device is not None else self.module.get_source())
        return text if kernel_only else f"{text}\n{self.get_host_source()}"

    def get_host_source(self) -> str:
        """The code that launches it; nothing where it runs on the host itself."""
        device = self._device_module()
        return "" if device is None else self._stored(_HOST_SOURCE) or device.get_source("host")

    def show_source(self, which: str = "kernel") -> None:
        """Print the code: ``"kernel"``, ``"host"`` or ``"both"``. Raises ValueError for another word."""
        table = {"kernel": self.get_kernel_source, "host": self.get_host_source}
        if which not in (*table, "both"):
            raise ValueError(f"show_source takes 'kernel', 'host' or 'both', not {which!r}")
        for name, get in table.items():
            if which in (name, "both"):
                print(get())

    def export_sources(self, kernel_path: str | None = None, host_path: str | None = None) -> None:
        """Write the code to files. Raises ValueError without any."""
        if kernel_path is None and host_path is None:
            raise ValueError("say where to: export_sources(kernel_path=..., host_path=...)")
        for path, get in ((kernel_path, self.get_kernel_source), (host_path, self.get_host_source)):
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(get())

    def _assembly(self, form: str) -> str:
        device = self._device_module()
        if device is None or device.type_key != "cuda":
            raise RelaxishError(f"{form} is the code of NVIDIA's devices; this kernel is for {self.target.kind.name}")
        text: str = device.get_source(form)
        return text

    def show_ptx(self) -> None:
        """Print the PTX."""
        print(self._assembly("ptx"))

    def export_ptx(self, path: str) -> None:
        """Write the PTX."""
        Path(path).write_text(self._assembly("ptx"))

    def show_sass(self) -> None:
        """Print the machine code as text."""
        print(self._assembly("sass"))

    def export_sass(self, path: str) -> None:
        """Write the machine code as text."""
        Path(path).write_text(self._assembly("sass"))

    @functools.cached_property
    def _resources(self) -> dict[str, Any]:
        from ...backend.cuda.compile.nvrtc import kernel_resources

        device = self._device_module()
        if device is None or device.type_key != "cuda":
            raise RelaxishError(
                f"registers are counted for NVIDIA's devices; this kernel is for {self.target.kind.name}"
            )
        return kernel_resources(device.get_source(), device.arch)

    @property
    def n_regs(self) -> int:
        """Registers of a thread, of the kernel with most."""
        return max(r.registers for r in self._resources.values())

    @property
    def n_spills(self) -> int:
        """Bytes of registers that a thread keeps in memory, of the kernel with most."""
        return max(r.spill_store_bytes for r in self._resources.values())

    # ---- files

    def export_library(self, kernel_file: str) -> str:
        """Write a library that ``relaxish.runtime.load_module`` loads."""
        return self._with_objects().export_library(kernel_file)

    def _with_objects(self) -> Module:
        """The module with what is linked; one that was read from a library is compiled once more."""
        if self._folder is None or self.module.objects:
            return self.module
        return build_module(self.prim_func, self.options)

    def save(self, folder: Path) -> None:
        """Write everything that :meth:`load` needs into an empty folder."""
        if self._folder is None or not self._copy_library(self._folder, folder):
            self._with_objects().export_library(str(folder / _LIBRARY))
        # Plain data, which is read without running anything.
        program = {"format": _FORMAT, "program": save_json(self.prim_func)}
        (folder / _FUNCTION).write_bytes(pickle.dumps(program))
        (folder / _SOURCE).write_text(self.get_kernel_source())
        (folder / _HOST_SOURCE).write_text(self.get_host_source())
        (folder / "out_idx.json").write_text(json.dumps(self.out_idx))

    @staticmethod
    def _copy_library(source: Path, folder: Path) -> bool:
        """Copy the files of a library from one folder to another; whether they are there."""
        own = {_FUNCTION, _SOURCE, _HOST_SOURCE}
        files = [p for p in source.iterdir() if p.name.startswith("kernel.") and p.name not in own]
        for path in files:
            shutil.copy(path, folder / path.name)
        return any(p.name == _LIBRARY for p in files)

    @staticmethod
    def load(folder: Path, options: CompileOptions) -> JITKernel:
        """The kernel of a folder that :meth:`save` wrote; its program is read when it is asked for."""
        from ...runtime.exports.load import load_module

        module: Any = load_module(str(folder / _LIBRARY))
        return JITKernel(options=options, module=module, folder=folder)

    def settle(self, func: PrimFunc, folder: Path | None) -> None:
        """Take what was read from a folder that will go away from the program, and from another folder, if there is
        one."""
        if folder is None or not folder.is_dir():
            self.module.sources["ll"] = self.get_kernel_source()
            folder = None
        self._func, self._folder = func, folder


def load_function(folder: Path) -> PrimFunc:
    """The program of a saved kernel. Raises MalformedDataError for a file that holds something else than plain data."""
    where = str(folder / _FUNCTION)
    data = ut.parse_plain_pickle((folder / _FUNCTION).read_bytes(), where)
    if not isinstance(data, dict) or data.get("format") != _FORMAT or not isinstance(data.get("program"), str):
        raise MalformedDataError(f"{where}: holds no program")
    found = load_json(data["program"])
    if not isinstance(found, PrimFunc):
        raise MalformedDataError(f"{where}: holds no PrimFunc")
    return found


def params_of(func: PrimFunc) -> list[KernelParam]:
    """The parameters of a program that is not compiled yet."""
    found = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            found.append(KernelParam(str(param.dtype), (), True))
        else:
            shape = tuple(const_int(d, str(d)) for d in buffer.shape)
            found.append(KernelParam(buffer.dtype, shape))
    return found


def _name_of(func: PrimFunc, index: int) -> str:
    param = func.params[index]
    buffer = func.buffer_map.get(param)
    return param.name if buffer is None else buffer.name
