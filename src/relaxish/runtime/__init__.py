"""Run time of deployed models, without any of the compiler.

``runtime.VirtualMachine(runtime.load_module("model.so"), runtime.cpu())["main"](x)`` runs what
``relaxish.build(...).export_library("model.so")`` wrote.
"""

from ..support.entry_points import lazy_package as _lazy_package
from ..support.threads import num_threads
from . import nd, object_path
from ..support.errors import KernelError
from .vm.benchmark import BenchmarkResult
from .vm.compiled import Executable
from .arrays.container import ShapeTuple, String, convert
from .device import Device, cpu, cuda, device, enabled, ext_dev, hexagon, metal, opencl, rocm, vpi, vulkan, webgpu
from .arrays.dtype import ArgTypeCode, DataType, DataTypeCode, TypeCode
from .vm.executable import VMExecutable
from .exports.export import load_module, load_static_library
from .kernels.kernel import (
    ArgumentError,
    KernelSpec,
    NativeKernel,
    NativeLibrary,
    ParamSpec,
    ShapeVarSource,
    SharedLibrary,
)
from .exports.machines import MachinePrograms
from .kernels.module import Module
from .nd import NDArray
from .object_path import ObjectPath
from .arrays.ndarray import array, empty, from_dlpack
from .arrays.params import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file
from .bytecode.plan import ExecutionPlan
from .vm.profiling import Report, Timer
from .registry import PackedFunc, get_global_func, list_global_func_names, register_func, remove_global_func
from .exports.system_library import system_lib
from .kernels.thread_count import set_num_threads
from .vm.machine import VirtualMachine, VMInstrumentReturnKind

__all__ = [
    "ArgTypeCode",
    "ArgumentError",
    "BenchmarkResult",
    "DataType",
    "DataTypeCode",
    "TypeCode",
    "Device",
    "Executable",
    "ExecutionPlan",
    "KernelError",
    "KernelSpec",
    "MachinePrograms",
    "Module",
    "NDArray",
    "NativeKernel",
    "NativeLibrary",
    "ObjectPath",
    "PackedFunc",
    "ParamSpec",
    "Report",
    "ShapeTuple",
    "ShapeVarSource",
    "SharedLibrary",
    "String",
    "Timer",
    "VMExecutable",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "array",
    "convert",
    "cpu",
    "cuda",
    "device",
    "empty",
    "enabled",
    "ext_dev",
    "from_dlpack",
    "get_global_func",
    "hexagon",
    "list_global_func_names",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "load_static_library",
    "metal",
    "nd",
    "num_threads",
    "object_path",
    "opencl",
    "register_func",
    "remove_global_func",
    "rocm",
    "save_param_dict",
    "save_param_dict_to_file",
    "set_num_threads",
    "system_lib",
    "vpi",
    "vulkan",
    "webgpu",
]

__getattr__, __dir__ = _lazy_package(globals())
