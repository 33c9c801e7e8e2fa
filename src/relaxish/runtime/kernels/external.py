"""Functions that a library computes: programs of library calls, and the module that runs them.

Code generators of libraries (``relax.ext.<name>``) make a :class:`LibraryModule`; the virtual machine finds its
functions by name and calls them with the inputs and then the arrays for the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ...support import entry_points
from ...support.errors import RelaxishError
from ..device import Device
from .kernel import MissingFunctionError
from ..arrays.ndarray import NDArray, empty

if TYPE_CHECKING:
    from .module import Module

__all__ = [
    "KernelModule", "LibraryKernel", "LibraryModule", "Program", "Step", "load_external", "register_kernel",
]  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One library call. Operands are names of values: "p0" is a parameter, "c0" a constant, "v0" a step's result."""

    kernel: str
    inputs: tuple[str, ...]
    dtype: str
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A function: step ``i`` makes value ``"v<i>"``; ``results`` are the values that go into the output arrays."""

    num_params: int
    steps: tuple[Step, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class LibraryKernel:
    """Step of a library program: the shape of its result from its operands', and the call."""

    shape: Callable[[Sequence[tuple[int, ...]], Mapping[str, Any]], tuple[int, ...]]
    run: Callable[[Sequence[NDArray], NDArray, Mapping[str, Any]], None]


_KERNELS: dict[str, LibraryKernel] = {}


def register_kernel(name: str, shape: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Offer a library call under a name such as ``"cublas.gemm"``."""
    _KERNELS[name] = LibraryKernel(shape, run)


def _kernel(name: str) -> LibraryKernel:
    if name not in _KERNELS:
        library = f"library.{name.partition('.')[0]}"
        if entry_points.available(library):
            entry_points.load(library)  # its kernels register
    if name not in _KERNELS:
        raise RelaxishError(f"no library offers the call {name!r}")
    return _KERNELS[name]


class LibraryModule:
    """Functions by name, each a program of library calls."""

    is_runnable = True
    is_dso_exportable = False
    is_binary_serializable = True
    is_device_module = False

    def __init__(self, type_key: str, programs: Mapping[str, Program], constants: Mapping[str, NDArray]) -> None:
        self.type_key = type_key
        self.programs = dict(programs)
        self.constants = dict(constants)
        self.imported_modules: list[Any] = []
        self._placed: dict[tuple[str, Any], NDArray] = {}

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return name in self.programs

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., None]:
        """A function by name. Raises AttributeError if there is none."""
        if name not in self.programs:
            raise MissingFunctionError(f"Module has no function '{name}' (functions: {', '.join(self.programs)})")
        program = self.programs[name]
        kernels = [self.kernel_of(step) for step in program.steps]

        def run(*args: NDArray) -> None:
            if len(args) != program.num_params + len(program.results):
                raise RelaxishError(
                    f"{name} takes {program.num_params} inputs and {len(program.results)} outputs, got {len(args)} arrays"
                )
            self._run(program, kernels, args)

        return run

    __getitem__ = get_function

    def kernel_of(self, step: Step) -> LibraryKernel:
        """Implementation of a step."""
        return _kernel(step.kernel)

    def _run(self, program: Program, kernels: Sequence[LibraryKernel], args: Sequence[NDArray]) -> None:
        outputs = dict(zip(program.results, args[program.num_params :], strict=True))
        device = args[-1].device
        values: dict[str, NDArray] = {f"p{i}": a for i, a in enumerate(args[: program.num_params])}
        for i, (step, kernel) in enumerate(zip(program.steps, kernels, strict=True)):
            inputs = [values[n] if n in values else self._constant(n, device) for n in step.inputs]
            out = outputs.get(f"v{i}")
            if out is None:
                out = empty(kernel.shape([a.shape for a in inputs], step.attrs), step.dtype, device)
            kernel.run(inputs, out, step.attrs)
            values[f"v{i}"] = out

    def _constant(self, name: str, device: Device) -> NDArray:
        found = self._placed.get((name, device))
        if found is None:
            found = self._placed[name, device] = self.constants[name].copyto(device)
        return found

    @property
    def packages(self) -> list[Any]:
        """The device modules that belong to an exported file besides the manifest."""
        return list(self.imported_modules)

    def to_manifest(self) -> dict[str, Any]:
        """The programs as plain data."""
        programs = {name: asdict(program) for name, program in self.programs.items()}
        return {"type_key": self.type_key, "programs": programs, "constants": list(self.constants)}

    def tensors(self) -> dict[str, NDArray]:
        """The constants."""
        return dict(self.constants)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.type_key}: {', '.join(self.programs)})"


class KernelModule(LibraryModule):
    """A library module whose calls are kernels of a device module of its own."""

    def __init__(
        self,
        type_key: str,
        programs: Mapping[str, Program],
        constants: Mapping[str, NDArray],
        kernels: Module,
    ) -> None:
        super().__init__(type_key, programs, constants)
        self.imported_modules = [kernels]

    def kernel_of(self, step: Step) -> LibraryKernel:
        func = self.imported_modules[0].get_function(step.attrs["name"])

        def shape(_inputs: Sequence[tuple[int, ...]], attrs: Mapping[str, Any]) -> tuple[int, ...]:
            if min(attrs["shape"], default=0) < 0:
                raise RelaxishError(f"{attrs['name']}: an intermediate result of unknown shape")
            return tuple(attrs["shape"])

        return LibraryKernel(shape, lambda inputs, out, attrs: func(*inputs, out))


def load_external(
    manifest: Mapping[str, Any], tensors: Mapping[str, NDArray], packages: Sequence[Any] = ()
) -> LibraryModule:
    """The module that :meth:`LibraryModule.to_manifest` described; ``packages`` are its device modules."""
    programs = {
        name: Program(
            data["num_params"],
            tuple(Step(s["kernel"], tuple(s["inputs"]), s["dtype"], s["attrs"]) for s in data["steps"]),
            tuple(data["results"]),
        )
        for name, data in manifest["programs"].items()
    }
    constants = {name: tensors[name] for name in manifest["constants"]}
    if packages:
        return KernelModule(manifest["type_key"], programs, constants, packages[0])
    return LibraryModule(manifest["type_key"], programs, constants)
