"""Functions written in C or C++ as parts of a module.

An external function is a plain C function that receives its tensors as ``DLTensor*`` (the outputs last), integers as
``int64_t``, floats as ``double`` and text as ``const char*``, and returns 0, or another number to report failure::

    #include "dlpack.h"
    extern "C" int add_one(DLTensor* x, DLTensor* out) { ... return 0; }

The header is provided when :class:`SourceModule` compiles the code.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ... import op as _op
from ...runtime.arrays.ndarray import NDArray
from ...runtime.registry import register_func
from ...support.errors import RelaxishError
from .calls import struct_info_of, to_packed_argument
from .core import Module, wrap_nested, Wrapped

__all__ = ["ExternModule", "ObjectModule", "SourceModule", "add_extern"]

_HEADER = """#ifndef DLPACK_H_
#define DLPACK_H_
#include <stdint.h>
#include <stddef.h>
typedef struct { int32_t device_type; int32_t device_id; } DLDevice;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
  void* data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t* shape; int64_t* strides; uint64_t byte_offset;
} DLTensor;
#endif
"""
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def add_extern(mod: ExternModule) -> None:
    """Remember an external module during an export; ``export_tvm(allow_extern=True)`` gives it back."""
    from .exporter import Exporter

    Exporter.current().add_external_module(mod)


class ExternModule(Module):
    """External functions by name, each with a function that says what its outputs look like.

    ``module["name"](*args)`` calls one in ``forward``; the shape function gets the same arguments and returns
    placeholder tensors (:meth:`Tensor.placeholder`).
    """

    def __init__(self, symbols: dict[str, Callable[..., Any]]) -> None:
        self._symbols = symbols

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        infer = self._symbols[func_name]

        def call(*args: Any) -> Wrapped:
            add_extern(self)
            out = struct_info_of(infer(*args))
            return wrap_nested(_op.call_dps_packed(func_name, to_packed_argument(list(args)), out), func_name)

        return call

    def library(self) -> Path:
        """The shared library that has the functions; subclasses make it."""
        raise NotImplementedError(f"{type(self).__name__} defines no library")

    def load(self) -> ctypes.CDLL:
        """Load the library and register its functions, so that built models find them; returns the library."""
        loaded = ctypes.CDLL(str(self.library()))
        for name in self._symbols:
            if not hasattr(loaded, name):
                raise RelaxishError(f"the external library has no function {name!r}")
            register_func(name, _packed(name, getattr(loaded, name)), override=True)
        return loaded


def _packed(name: str, function: Any) -> Callable[..., None]:
    function.restype = ctypes.c_int

    def call(*args: Any) -> None:
        code = function(*[_native(a) for a in args])
        if code != 0:
            raise RelaxishError(f"the external function {name} failed with code {code}")

    return call


def _native(value: Any) -> object:
    match value:
        case NDArray():
            return ctypes.byref(_tensor(value))
        case str():
            return ctypes.c_char_p(value.encode())
        case float():
            return ctypes.c_double(value)
    return ctypes.c_int64(int(value))


def _tensor(value: NDArray) -> _DLTensor:
    kind = str(value.dtype)
    letters = kind.rstrip("0123456789")
    bits = int(kind[len(letters) :] or 8)
    sizes = (ctypes.c_int64 * len(value.shape))(*value.shape)
    return _DLTensor(value.handle, 1, 0, len(value.shape), _CODES[letters], bits, 1, sizes, None, 0)


class ObjectModule(ExternModule):
    """Functions in an object file or shared library on disk."""

    def __init__(self, symbols: dict[str, Callable[..., Any]], filepath: str | Path) -> None:
        super().__init__(symbols)
        self.filepath = Path(filepath)
        if not self.filepath.is_file():
            raise ValueError(f"Not a file: {filepath}")

    def library(self) -> Path:
        if self.filepath.suffix == ".so":
            return self.filepath
        return _compile([str(self.filepath)], self.filepath.read_bytes(), None)


class SourceModule(ExternModule):
    """Functions given as C++ source (text, or the path of a file), compiled when the module is loaded."""

    def __init__(
        self,
        symbols: dict[str, Callable[..., Any]],
        source_code: str | Path,
        source_format: str = "cpp",
        compile_options: Sequence[str] | None = None,
        compiler: str | None = None,
        output_format: str = "obj",
    ) -> None:
        super().__init__(symbols)
        if source_format != "cpp":
            raise ValueError(f"Invalid source format: {source_format}; only 'cpp' can be compiled here")
        if output_format != "obj":
            raise ValueError(f"Invalid output format: {output_format}; only 'obj' can be made here")
        is_file = isinstance(source_code, Path) or ("\n" not in source_code and Path(source_code).is_file())
        self.source_code = Path(source_code).read_text() if is_file else str(source_code)
        self.compile_options = [*(compile_options or ("-O3",)), "-std=c++17"]
        self.compiler = compiler

    def library(self) -> Path:
        with tempfile.TemporaryDirectory(prefix="relaxish_extern_") as folder:
            (Path(folder) / "dlpack.h").write_text(_HEADER)
            source = Path(folder) / "extern.cc"
            source.write_text(self.source_code)
            args = [f"-I{folder}", *self.compile_options, str(source)]
            return _compile(args, self.source_code.encode(), self.compiler)


def _compile(args: list[str], content: bytes, compiler: str | None) -> Path:
    """A shared library from sources or objects, in a folder that stays. Raises RelaxishError with the compiler's words."""
    chosen = compiler or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if chosen is None:
        raise RelaxishError("no C++ compiler (g++, clang++) is installed, and none was given")
    digest = hashlib.sha256(content + " ".join(args[1:-1]).encode()).hexdigest()[:16]
    target = Path(tempfile.mkdtemp(prefix="relaxish_extern_")) / f"{digest}.so"
    done = subprocess.run([chosen, "-shared", "-fPIC", "-o", str(target), *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RelaxishError(f"compiling the external module failed:\n{done.stderr}")
    return target
