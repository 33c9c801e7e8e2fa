"""Running tensor functions."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from .. import tir
from ..ir import dtype as dt
from ..ir.plain import plain_int
from ..support.errors import IndexBoundsError
from ..tir import PrimFunc
from ..tir.transform.numerics.empty_reductions import fill_empty_reductions
from ..tir.transform.numerics.exact_extremes import exact_extremes
from .casting import cast
from .codegen import Compiler
from .intrinsics import Array, EXTERN, Integer, MEANINGS, np_dtype, Pointer, Value, wrap_int
from .threads import run_threads

__all__ = ["run_prim_func", "run_primfunc"]

_COMPILED: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def trunc_div(a: Integer, b: Integer) -> Integer:
    """Integer division towards zero."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.trunc(np.asarray(a, np.float64) / b).astype(np.int64)
    q = abs(int(a)) // abs(int(b))
    return q if (a >= 0) == (b >= 0) else -q


def trunc_mod(a: Integer, b: Integer) -> Integer:
    """Remainder of division towards zero."""
    return a - trunc_div(a, b) * b


def as_float(value: Value, dtype: str) -> Value:
    """Round to a floating-point dtype."""
    return np_dtype(dtype).type(value)


def broadcast(value: Value, lanes: int, dtype: str) -> Value:
    """A vector of equal elements."""
    return np.full(lanes, value, dtype=np_dtype(dtype)) if not isinstance(value, np.ndarray) else np.tile(value, lanes)


def reinterpret(value: Value, source: str, target: str) -> Value:
    """The bits of a value as another dtype."""
    bits = np.atleast_1d(np.asarray(value)).astype(np_dtype(dt.element_of(source)))
    made = bits.view(np_dtype(dt.element_of(target)))
    if dt.lanes(target) == 1:
        return made[0] if dt.is_float(target) else int(made[0])
    return made


def allocate(size: int, dtype: str) -> Array:
    """Memory filled with a pattern that shows reads before writes."""
    lanes = dt.lanes(dtype)
    kind = np_dtype(dt.element_of(dtype))
    made = np.zeros(int(size) * lanes, dtype=kind)
    if kind.kind == "f":
        made.fill(np.nan)
    return made


def retype(memory: Array, dtype: str) -> Array:
    """The same memory in another dtype."""
    return memory.view(np_dtype(dt.element_of(dtype)))


def out_of_bounds(name: str, offset: int) -> NoReturn:
    """Raise IndexBoundsError for an element before the first."""
    raise IndexBoundsError(f"offset {int(offset)} lies before the first element of {name}")


def load_masked(memory: Array, offset: Array, mask: Array) -> Array:
    """Elements where the mask holds, zeros elsewhere."""
    safe = np.where(mask, offset, 0)
    return np.where(mask, memory[safe], memory.dtype.type(0))


def store_masked(memory: Array, offset: Array, value: Value, mask: Array) -> None:
    """Store where the mask holds."""
    keep = np.broadcast_to(mask, np.shape(offset))
    memory[np.asarray(offset)[keep]] = np.broadcast_to(value, np.shape(offset))[keep]


def intrinsic(name: str) -> Callable[..., Any]:
    """Meaning of an intrinsic. Raises NotImplementedError."""
    found = MEANINGS.get(name)
    if found is None:
        raise NotImplementedError(f"the interpreter does not know the intrinsic {name!r}")
    return found


def extern(name: str, dtype: str, args: list[Any]) -> Value:
    """Call an external function or target instruction by its meaning."""
    if name == "llvm.ctlz":
        return MEANINGS["clz"](args[0], dt.bits(dtype))
    found = EXTERN.get(name)
    if found is None:
        parts = name.split(".")
        base = ".".join(parts[:2])
        found = EXTERN.get(base)
        if found is None and name.startswith("llvm.") and len(parts) > 1:
            found = MEANINGS.get({"maxnum": "max", "minnum": "min"}.get(parts[1], parts[1]))
        if found is None:
            found = MEANINGS.get(name.removesuffix("f"))
    if found is None:
        raise NotImplementedError(f"the interpreter does not know the external function {name!r}")
    return found(*args)


def copy_bytes(target: Array, at: int, source: Array, start: int, size: int, predicate: bool) -> int:
    """Copy ``size`` bytes between element offsets; zeros where the predicate does not hold."""
    source_memory, target_memory = np.asarray(source), np.asarray(target)
    filled = target_memory[int(at) : int(at) + int(size) // target_memory.itemsize]
    if predicate:
        filled[:] = source_memory[int(start) : int(start) + int(size) // source_memory.itemsize].view(
            target_memory.dtype
        )
    else:  # the source may then lie anywhere
        filled[:] = 0
    return 0


_NAMESPACE = {
    "np": np, "trunc_div": trunc_div, "trunc_mod": trunc_mod, "cast": cast, "as_float": as_float,
    "broadcast": broadcast, "reinterpret": reinterpret, "allocate": allocate, "retype": retype,
    "load_masked": load_masked, "out_of_bounds": out_of_bounds, "store_masked": store_masked, "intrinsic": intrinsic, "extern": extern,
    "copy_bytes": copy_bytes, "run_threads": run_threads, "Pointer": Pointer, "wrap_int": wrap_int,
}  # fmt: skip


def _compile(func: PrimFunc) -> tuple[Callable[..., Any], list[tir.Var]]:
    known = _COMPILED.get(func)
    if known is not None:
        return known
    compiler = Compiler()
    params: list[str] = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        params.append(compiler.var(buffer.data if buffer is not None else param))
    shapes = [v for v in _shape_vars(func)]
    names = [compiler.var(v) for v in shapes]
    compiler.visit(fill_empty_reductions(exact_extremes(func)).body)
    body = "\n".join(compiler.lines) or "    pass"
    source = f"def kernel({', '.join([*params, *names, 'call_global'])}):\n{body}\n"
    namespace: dict[str, Any] = dict(_NAMESPACE)
    namespace.update(compiler.constants)
    exec(compile(source, "<interp>", "exec"), namespace)
    kernel: Callable[..., Any] = namespace["kernel"]
    made = (kernel, shapes)
    _COMPILED[func] = made
    return made


def _shape_vars(func: PrimFunc) -> list[tir.Var]:
    """Symbolic variables that the buffers of the parameters define, in order of appearance."""
    found: list[tir.Var] = []
    params = {id(p) for p in func.params}
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            continue
        for item in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            if isinstance(item, tir.Var) and id(item) not in params and not any(item is f for f in found):
                found.append(item)
    return found


def _bind(func: PrimFunc, arrays: list[Any], symbols: list[tir.Var]) -> dict[int, int]:
    """The value of each symbolic variable, from the arrays' shapes."""
    values: dict[int, int] = {}
    for param, array in zip(func.params, arrays):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            continue
        if len(buffer.shape) != array.ndim:
            raise ValueError(
                f"argument {param.name} has {array.ndim} dimensions, but buffer {buffer.name} has {len(buffer.shape)}"
            )
        for extent, size in zip(buffer.shape, array.shape):
            match extent:
                case tir.Var():
                    if values.setdefault(id(extent), size) != size:
                        raise ValueError(f"symbolic dimension {extent.name} is both {values[id(extent)]} and {size}")
                case tir.IntImm() if extent.value != size:
                    raise ValueError(
                        f"argument {param.name}: expected shape {[str(s) for s in buffer.shape]}, got {array.shape}"
                    )
        running = 1
        for stride, size in zip(reversed(buffer.strides), reversed(array.shape)):
            if isinstance(stride, tir.Var):
                values[id(stride)] = running
            running *= size
        if isinstance(buffer.elem_offset, tir.Var):
            values[id(buffer.elem_offset)] = 0
    return values


def run_prim_func(func: PrimFunc, args: list[Any], functions: dict[str, Any] | None = None) -> Value | None:
    """Run a tensor function; array arguments are written in place. Returns what the function returns.

    ``functions`` are those that ``func`` may call, by name. Raises ValueError where shapes do not fit.
    """
    if len(args) != len(func.params):
        raise ValueError(f"the function takes {len(func.params)} arguments, got {len(args)}")
    arrays: list[Any] = []
    copies: list[tuple[Any, Any]] = []
    flat: list[Any] = []
    for param, arg in zip(func.params, args):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            arrays.append(arg)
            flat.append(_scalar(arg, param.dtype))
            continue
        array = arg.numpy() if hasattr(arg, "numpy") and not isinstance(arg, np.ndarray) else np.asarray(arg)
        if array.dtype != np_dtype(buffer.dtype):
            raise ValueError(f"argument {param.name} has dtype {array.dtype}, expected {buffer.dtype}")
        work = array
        if not array.flags["C_CONTIGUOUS"]:
            work = np.ascontiguousarray(array)
            copies.append((array, work))
        arrays.append(array)
        flat.append(work.reshape(-1))
    kernel, symbols = _compile(func)
    values = _bind(func, arrays, symbols)
    table = functions or {}

    def call_global(name: str, inner: list[Any]) -> Value | None:
        if name not in table:
            raise ValueError(f"the function calls {name!r}, which was not given to the interpreter")
        return _call_inner(table[name], inner, table)

    with np.errstate(all="ignore"):
        result = kernel(*flat, *[values[id(s)] for s in symbols], call_global)
    for array, work in copies:
        array[...] = work
    return result


def _scalar(value: Value | Pointer, dtype: str) -> Value | Pointer:
    if dt.is_float(dtype):
        return np_dtype(dtype).type(value)
    if dtype == "bool":
        return bool(value)
    return int(value) if not isinstance(value, (np.ndarray, Pointer)) else value


def _call_inner(func: PrimFunc, args: list[Any], functions: dict[str, Any]) -> Value | None:
    """A call from another tensor function: pointers become arrays of the callee's shapes."""
    made = []
    for param, arg in zip(func.params, args):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            made.append(arg)
            continue
        shape = [plain_int(s) for s in buffer.shape]
        count = int(np.prod(shape)) if shape else 1
        memory = arg.view(count) if isinstance(arg, Pointer) else arg[:count]
        made.append(memory.reshape(shape))
    return run_prim_func(func, made, functions)


def run_primfunc(func: PrimFunc, *args: Any) -> Value | None:
    """:func:`run_prim_func` with the arguments spread."""
    return run_prim_func(func, list(args))
