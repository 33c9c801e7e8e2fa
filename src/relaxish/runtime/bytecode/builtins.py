"""The ``vm.builtin.*`` functions that lowered models call.

Those listed in :data:`WITH_CONTEXT` get the virtual machine as their first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, TYPE_CHECKING, TypeVar

import numpy as np

from ...support.errors import InternalError, RelaxishError
from ..arrays.container import ShapeTuple, type_key_of
from ..device import Device
from ..arrays.dtype import DataType, itemsize
from ..kernels.kernel import ArgumentError, ArgumentTypeError
from ..arrays.memory import Allocator, Storage, clear_memory_pools
from ..arrays.ndarray import NDArray, alloc_tensor, array, from_numpy
from ..registry import get_global_func, register_func

if TYPE_CHECKING:
    from ..vm.machine import VirtualMachine

_T = TypeVar("_T")


class MatchShapeCode(IntEnum):
    """Actions of :func:`match_shape` on a dimension."""

    ASSERT_EQUAL_TO_IMM = 0
    STORE_TO_HEAP = 1
    NO_OP = 2
    ASSERT_EQUAL_TO_LOAD = 3


class MakeShapeCode(IntEnum):
    """Sources of the dimensions for :func:`make_shape`."""

    USE_IMM = 0
    LOAD_SHAPE = 1


class VMClosure:
    """A function of the machine with captured values, which are passed last."""

    __slots__ = ("captured", "func", "func_name")

    def __init__(self, func_name: str, func: Callable[..., Any], captured: tuple[Any, ...] = ()) -> None:
        self.func_name = func_name
        self.func = func
        self.captured = captured

    def __call__(self, *args: Any) -> Any:
        return self.func(*args, *self.captured)

    def __repr__(self) -> str:
        return f"VMClosure({self.func_name}, {len(self.captured)} captured)"


def _context(text: str) -> str:
    return f"{text} " if text is not None else " "


def _builtin(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        register_func("vm.builtin." + name, func, override=True)
        return func

    return register


# ---- memory


@_builtin("alloc_storage")
def alloc_storage(
    vm: VirtualMachine, shape: Sequence[int], device_index: int, dtype_hint: str = "uint8", mem_scope: str = "global"
) -> Storage:
    """A block of memory; ``shape`` holds its size in elements of ``dtype_hint``."""
    nbytes = itemsize(dtype_hint) if dtype_hint else 1
    for dim in shape if isinstance(shape, tuple) else (shape,):
        if int(dim) < 0:
            raise ArgumentError(f"storage of {shape} elements cannot be allocated: the size is negative")
        nbytes *= int(dim)
    allocator: Allocator = vm.allocator(device_index)
    return allocator.allocate(nbytes, None if mem_scope == "global" else mem_scope)


@_builtin("alloc_tensor")
def alloc_tensor_in(storage: Storage, offset: int, shape: tuple[int, ...], dtype: str) -> NDArray:
    """A tensor inside a block."""
    return alloc_tensor(storage, int(offset), shape, dtype)


@_builtin("alloc_shape_heap")
def alloc_shape_heap(vm: VirtualMachine, size: int) -> NDArray:
    """The int64 array that holds the values of symbolic dimensions."""
    return from_numpy(np.zeros(max(1, int(size)), np.int64))


register_func("vm.builtin.memory_manager.clear", clear_memory_pools, override=True)


# ---- checks


@_builtin("check_tensor_info")
def check_tensor_info(arg: object, ndim: int, *rest: Any) -> None:
    """Fail unless ``arg`` is a tensor of this rank (-1: any) and dtype ("" or "void": any).

    After ``ndim`` comes the context of the error message, or the dtype and the context.
    """
    dtype, context = ("", rest[0] if rest else "") if len(rest) < 2 else (str(rest[0]), rest[1])
    if not isinstance(arg, NDArray):
        raise ArgumentTypeError(f"{_context(context)}expect a Tensor but get {type_key_of(arg)}")
    if ndim != -1 and len(arg.shape) != ndim:
        raise ArgumentError(f"{_context(context)}expect Tensor with ndim {ndim} but get {len(arg.shape)}")
    if dtype not in ("", "void") and arg.dtype != dtype:
        raise ArgumentError(f"{_context(context)}expect Tensor with dtype {dtype} but get {arg.dtype}")


@_builtin("check_shape_info")
def check_shape_info(arg: object, ndim: int, err_ctx: str = "") -> None:
    """Fail unless ``arg`` is a shape of this rank (-1: any)."""
    if not isinstance(arg, tuple) or not all(isinstance(d, int) for d in arg):
        raise ArgumentTypeError(f"{_context(err_ctx)}expect a Shape but get {type_key_of(arg)}")
    if ndim != -1 and len(arg) != ndim:
        raise ArgumentError(f"{_context(err_ctx)}expect Shape with ndim {ndim} but get {len(arg)}")


@_builtin("check_prim_value_info")
def check_prim_value_info(arg: object, dtype: str, err_ctx: str = "") -> None:
    """Fail unless ``arg`` is a scalar that ``dtype`` can hold."""
    if not isinstance(arg, bool | int | float | np.number | np.bool_):
        raise ArgumentTypeError(f"{err_ctx}, expected dtype {dtype}, but received ObjectRef of type {type_key_of(arg)}")
    is_float = isinstance(arg, float | np.floating)
    is_bool = isinstance(arg, bool | np.bool_)
    if dtype.startswith(("float", "bfloat")):
        return
    if dtype != "bool" and not dtype.startswith(("int", "uint")):
        raise ArgumentTypeError(f"{err_ctx}, unsupported dtype {dtype}")
    if is_float or (is_bool and dtype != "bool"):
        raise ArgumentTypeError(f"{err_ctx}, expected dtype {dtype}, but received a {type(arg).__name__}")


@_builtin("check_tuple_info")
def check_tuple_info(arg: object, size: int, err_ctx: str = "") -> None:
    """Fail unless ``arg`` is a tuple of ``size`` fields."""
    if not isinstance(arg, tuple | list) or isinstance(arg, ShapeTuple):
        raise ArgumentTypeError(f"{_context(err_ctx)}expect a Tuple but get {type_key_of(arg)}")
    if len(arg) != size:
        raise ArgumentError(
            f"{_context(err_ctx)}expect a Tuple with {size} elements,  but get a Tuple with {len(arg)} elements."
        )


@_builtin("check_func_info")
def check_func_info(arg: object, err_ctx: str = "") -> None:
    """Fail unless ``arg`` can be called."""
    if not callable(arg):
        raise ArgumentTypeError(f"{_context(err_ctx)}expect a Function but get {type_key_of(arg)}")


@_builtin("match_shape")
def match_shape(value: NDArray | Sequence[int], heap: NDArray | None, size: int, *rest: Any) -> None:
    """Check a shape (or a tensor's) by dimension, storing symbolic ones: (code, number) pairs, then a text."""
    err = rest[2 * size] if len(rest) > 2 * size else ""
    shape = value.shape if isinstance(value, NDArray) else value
    if len(shape) != size:
        raise ArgumentError(
            f"{_context(err)}match_cast shape size mismatch. Got {len(shape)} dimensions, expected {size}."
        )
    cells: Any = heap._host() if heap is not None else None
    for axis in range(size):
        code, number = rest[2 * axis], rest[2 * axis + 1]
        dim = shape[axis]
        if code == MatchShapeCode.ASSERT_EQUAL_TO_IMM:
            if dim != number:
                raise _mismatch(err, f" shape[{axis}]", "specified constant", dim, number)
        elif code == MatchShapeCode.STORE_TO_HEAP:
            cells[number] = dim
        elif code == MatchShapeCode.ASSERT_EQUAL_TO_LOAD:
            if dim != cells[number]:
                raise _mismatch(err, f" shape[{axis}]", "a previous populated value", dim, cells[number])
        elif code != MatchShapeCode.NO_OP:
            raise InternalError(f"unknown code {code} of match_shape")


def _mismatch(err_ctx: str, what: str, against: str, got: int, expected: int) -> ArgumentError:
    return ArgumentError(
        f"{_context(err_ctx)}match_cast error, {what} mismatch to {against}. Got {got}, expected {expected}."
    )


@_builtin("match_prim_value")
def match_prim_value(value: int, heap: NDArray | None, code: int, number: int, err_ctx: str = "") -> None:
    """The scalar form of :func:`match_shape`."""
    cells: Any = heap._host() if heap is not None else None
    if code == MatchShapeCode.ASSERT_EQUAL_TO_IMM:
        if value != number:
            raise _mismatch(err_ctx, " value", "specified constant", value, number)
    elif code == MatchShapeCode.STORE_TO_HEAP:
        cells[number] = value
    elif code == MatchShapeCode.ASSERT_EQUAL_TO_LOAD:
        if value != cells[number]:
            raise _mismatch(err_ctx, " value", "a previous populated value", value, cells[number])
    elif code != MatchShapeCode.NO_OP:
        raise InternalError(f"unknown code {code} of match_prim_value")


# ---- shapes and scalars


@_builtin("make_shape")
def make_shape(heap: NDArray | None, size: int, *rest: int) -> ShapeTuple:
    """A shape from immediates and heap cells: ``size`` pairs of (code, number)."""
    cells: Any = heap._host() if heap is not None else None
    dims = (
        rest[2 * i + 1] if rest[2 * i] == MakeShapeCode.USE_IMM else int(cells[rest[2 * i + 1]]) for i in range(size)
    )
    return ShapeTuple(dims)


@_builtin("make_prim_value")
def make_prim_value(heap: NDArray | None, code: int, number: int) -> int:
    """A scalar, immediate or from the heap."""
    return number if code == MakeShapeCode.USE_IMM else int(heap._host()[number])  # type: ignore[union-attr]


@_builtin("shape_of")
def shape_of(tensor: NDArray) -> ShapeTuple:
    """The shape of a tensor."""
    return ShapeTuple(tensor.shape)


@_builtin("tensor_to_shape")
def tensor_to_shape(tensor: NDArray) -> ShapeTuple:
    """The elements of a one-dimensional integer tensor as a shape."""
    values = tensor.numpy()
    if values.ndim != 1 or values.dtype.kind != "i":
        raise ArgumentError("tensor_to_shape expects a one-dimensional integer tensor")
    return ShapeTuple(values.tolist())


@_builtin("read_if_cond")
def read_if_cond(cond: object) -> bool:
    """The truth of a condition: a scalar, or a tensor of one element."""
    if isinstance(cond, NDArray):
        if cond.size != 1:
            raise ValueError("the condition of an If must have exactly one element")
        if cond.dtype.startswith(("float", "bfloat")):
            raise InternalError(f"the condition of an If must be an integer or a bool, not {cond.dtype}")
        return bool(cond.numpy().reshape(())[()])
    return bool(cond)


@_builtin("sizes_are")
def sizes_are(have: Sequence[int], *wanted: int) -> bool:
    """Whether sizes are these numbers: the condition of a branch for known sizes."""
    return tuple(have) == wanted


# ---- tensors, tuples, values


@_builtin("reshape")
def reshape(data: NDArray, shape: Sequence[int]) -> NDArray:
    """The same memory under another shape. Raises ArgumentError unless both have as many elements."""
    if not isinstance(data, NDArray):
        raise ArgumentTypeError(f"reshape expects a Tensor but got {type_key_of(data)}")
    target = tuple(shape)
    size = 1
    for dim in target:
        size *= dim
    if size != data.size or min(target, default=0) < 0:
        raise ArgumentError(f"cannot reshape {data.shape} into {target}")
    return data._create_view(target)


@_builtin("copy")
def copy(value: _T) -> _T:
    """The value itself (a register copy)."""
    return value


@_builtin("ensure_zero_offset")
def ensure_zero_offset(data: NDArray) -> NDArray:
    """Pointers already include offsets, so nothing is to be done."""
    return data


@_builtin("null_value")
def null_value() -> None:
    """The null object."""


@_builtin("make_tuple")
def make_tuple(*fields: Any) -> tuple[Any, ...]:
    """A tuple value."""
    return fields


@_builtin("tuple_getitem")
def tuple_getitem(fields: Sequence[_T], index: int) -> _T:
    """A field of a tuple."""
    return fields[index]


@_builtin("tuple_reset_item")
def tuple_reset_item(fields: list[Any], index: int) -> object:
    """Take a field out of a list, leaving null (tuples are immutable and keep theirs)."""
    value = fields[index]
    if isinstance(fields, list):
        fields[index] = None
    return value


@_builtin("to_device")
def to_device(data: NDArray, device_type: int, device_id: int) -> NDArray:
    """The tensor on another device; itself when it is there already."""
    target = Device(device_type, device_id)
    return data if data.device == target else data.copyto(target)


@_builtin("view")
def view(data: NDArray, shape: Sequence[int], dtype: str | None = None, relative_byte_offset: int = 0) -> NDArray:
    """Part of the memory of a tensor, read in another shape and type."""
    return data._create_view(tuple(shape), None if dtype in (None, "void") else dtype, int(relative_byte_offset))


register_func("runtime.TVMArrayCreateView", view, override=True)


# ---- calls


@_builtin("make_closure")
def make_closure(func: Callable[..., Any], *captured: Any) -> VMClosure:
    """Bind the last arguments of a function."""
    if isinstance(func, VMClosure):
        return VMClosure(func.func_name, func.func, captured + func.captured)
    return VMClosure(getattr(func, "func_name", getattr(func, "__name__", "closure")), func, captured)


@_builtin("invoke_closure")
def invoke_closure(vm: VirtualMachine, closure: VMClosure, *args: Any) -> Any:
    """Call a closure."""
    if not callable(closure):
        raise InternalError("Function expects a closure or PackedFunc")
    return closure(*args)


@_builtin("require")
def require(value: NDArray, condition: NDArray, wanted: int) -> NDArray:
    """``value``, if the condition of a branch is as the import needed it. Raises RelaxishError otherwise."""
    if bool(condition) != bool(wanted):
        raise RelaxishError(
            f"the model's condition is {bool(condition)}: that branch does not fit the sizes that the model was imported "
            "with; import it with the shapes of these inputs, or with symbolic ones"
        )
    return value


@_builtin("loop")
def run_loop(
    turn: Callable[..., Sequence[Any]],
    limit: NDArray,
    going: NDArray,
    state: Sequence[NDArray],
    empty: Sequence[NDArray],
) -> list[NDArray]:
    """Turns of a loop until one says to end it or ``limit`` are done (a negative limit is none).

    ``turn(number, *state)`` gives whether to go on, the next state, and what is collected: tensors that the result has
    stacked along a new first axis, after the state. ``empty`` are the stacks of no turns.
    """
    most, wanted = int(limit), bool(going)
    number = 0
    collected: list[list[NDArray]] = [[] for _ in empty]
    current = list(state)
    while wanted and (most < 0 or number < most):
        made = turn(array(np.int64(number)), *current)
        wanted = bool(made[0])
        current = list(made[1 : 1 + len(current)])
        for parts, part in zip(collected, made[1 + len(current) :], strict=True):
            parts.append(part)
        number += 1
    # The state may be what came in, whose memory is used again.
    kept = [value.copyto(value.device) for value in current]
    return kept + [_stacked(parts) if parts else none for parts, none in zip(collected, empty, strict=True)]


@_builtin("random_key")
def random_key(vm: VirtualMachine, seed: int, number: int) -> NDArray:
    """The key of the next draw of node ``number``: 64 bits, as int64. A negative seed is one of the machine's own."""
    own = vm.random_entropy if seed < 0 else int(seed)
    drawn = vm.random_draws[number] = vm.random_draws.get(number, 0) + 1
    words = np.random.SeedSequence([own, int(number), drawn]).generate_state(1, np.uint64)
    return array(words.view(np.int64))


def _stacked(parts: list[NDArray]) -> NDArray:
    shapes = {tuple(p.shape) for p in parts}
    if len(shapes) > 1:
        raise RelaxishError(f"a loop collects tensors of different shapes: {sorted(shapes)}")
    return array(np.stack([p.numpy() for p in parts]), parts[0].device)


@_builtin("call_tir_dyn")
def call_tir_dyn(kernel: Callable[..., Any], *args: Any) -> None:
    """Call a kernel; the last argument, a shape, holds its scalar arguments."""
    kernel(*args[:-1], *args[-1])


@_builtin("invoke_debug_func")
def invoke_debug_func(io_effect: _T, func_name: str, line_info: str, *args: Any) -> _T:
    """Call a registered function with the line it was written on, keeping the effect token."""
    get_global_func(func_name)(line_info, *args)
    return io_effect


@_builtin("debug_print")
def debug_print(line_info: str, tensor: NDArray) -> None:
    """Print a tensor's shape, type and elements, for ``nn.op.print_``."""
    print(f"[{line_info}] shape={tuple(tensor.shape)} dtype={tensor.dtype} data:\n{tensor.numpy()}")


WITH_CONTEXT = frozenset(
    "vm.builtin." + name
    for name in (
        "alloc_storage", "alloc_shape_heap", "invoke_closure", "random_key", "cuda_graph.get_cached_alloc",
        "cuda_graph.run_or_capture",
    )
)  # fmt: skip


# ---- operators that are calls at run time


def _relax_run(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        register_func("relax.run." + name, func, override=True)
        return func

    return register


def render_object(value: object) -> str:
    """Text of a run-time value, as ``print`` and ``assert_op`` show it."""
    if isinstance(value, (list, tuple)) and not isinstance(value, ShapeTuple):
        return "(" + ", ".join(render_object(v) for v in value) + ")"
    return str(value)


@_relax_run("print")
def relax_print(format_str: str = "", *format_args: Any) -> None:
    """Print values, through a format string when there is one."""
    shown = [render_object(v) for v in format_args]
    print(format_str.format(*shown) if format_str else " ".join(shown))


def _truth(condition: object) -> bool:
    """The value of a condition, which must be a bool, an integer or a bool tensor without dimensions."""
    if not isinstance(condition, NDArray):
        if isinstance(condition, (bool, int)):
            return bool(condition)
        raise ValueError(
            f"The condition for relax assert must be a bool, int, or Tensor, but received a {type(condition)}."
        )
    if condition.dtype != "bool":
        raise ValueError(f"The condition must be a bool scalar, but given a {condition.dtype} tensor")
    if len(condition.shape):
        raise ValueError(f"The condition must be a scalar, but it has a shape of {condition.shape}")
    return bool(condition.numpy())


@_relax_run("assert_op")
def relax_assert_op(condition: object, format_str: str = "", *format_args: Any) -> None:
    """Raise ``AssertionError`` when the condition is false; the message is the format string filled with the values."""
    if not isinstance(format_str, str):
        raise ValueError(f"The format string argument to assert must be a string, given {type(format_str)})")
    if not _truth(condition):
        shown = [render_object(v) for v in format_args]
        raise AssertionError(format_str.format(*shown) if format_str else ", ".join(shown) or "Assertion Failed")


@_relax_run("shape_to_tensor")
def shape_to_tensor(shape: Sequence[int]) -> NDArray:
    """A shape as an int64 tensor."""
    return array(np.asarray(tuple(shape), np.int64))


@_relax_run("unique")
def unique(
    data: NDArray,
    sorted: int = 1,
    return_index: int = 0,
    return_inverse: int = 0,
    return_counts: int = 0,
    axis: int | None = None,
) -> NDArray | tuple[NDArray, ...]:
    """Unique elements and, when asked for, their first positions, the inverse map and the counts.

    Not ``sorted``: in the order in which they first appear. Results live where the data does.
    """
    place = 0 if axis is None else int(axis)
    values, first, inverse, counts = np.unique(data.numpy(), True, True, True, axis=None if axis is None else place)
    inverse = inverse.reshape(-1)  # its shape depends on the NumPy version
    if not sorted:
        order = np.argsort(first, kind="stable")
        values, first, counts = np.take(values, order, place), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    asked = [v for v, flag in ((first, return_index), (inverse, return_inverse), (counts, return_counts)) if flag]
    made = [array(np.ascontiguousarray(v), data.device) for v in (values, *(v.astype(np.int64) for v in asked))]
    return tuple(made) if asked else made[0]


@_relax_run("nonzero")
def nonzero(data: NDArray) -> NDArray:
    """Coordinates of the elements that are not zero, one row for each axis, where the data lives."""
    return array(np.stack(np.nonzero(data.numpy())).astype(np.int64), data.device)


# ---- what a tensor is, for ``x.dtype.bits`` and the like


@_relax_run("tensor_dtype_code")
def tensor_dtype_code(tensor: NDArray) -> int:
    """The DLPack type code of the elements."""
    return DataType(tensor.dtype).type_code


@_relax_run("tensor_dtype_bits")
def tensor_dtype_bits(tensor: NDArray) -> int:
    """Bits of one lane of an element."""
    return DataType(tensor.dtype).bits


@_relax_run("tensor_dtype_lanes")
def tensor_dtype_lanes(tensor: NDArray) -> int:
    """Lanes of one element."""
    return DataType(tensor.dtype).lanes


@_relax_run("tensor_ndim")
def tensor_ndim(tensor: NDArray) -> int:
    """The number of dimensions."""
    return len(tensor.shape)


def _checked_axis(tensor: NDArray, axis: int) -> int:
    if axis < 0:
        raise RelaxishError("Specified axis may not be negative")
    if axis >= len(tensor.shape):
        raise RelaxishError("Specified axis may not be larger than the tensor's dimensionality")
    return int(axis)


@_relax_run("tensor_shape_i")
def tensor_shape_i(tensor: NDArray, axis: int) -> int:
    """The extent of one axis."""
    return int(tensor.shape[_checked_axis(tensor, axis)])


@_relax_run("tensor_stride_i")
def tensor_stride_i(tensor: NDArray, axis: int) -> int:
    """The stride of one axis: tensors are compact."""
    stride = 1
    for extent in tensor.shape[_checked_axis(tensor, axis) + 1 :]:
        stride *= int(extent)
    return stride


@_relax_run("tensor_byte_offset")
def tensor_byte_offset(tensor: NDArray) -> int:
    """Always 0: addresses include the offset of the data."""
    return 0


@_relax_run("tensor_elem_offset")
def tensor_elem_offset(tensor: NDArray) -> int:
    """Always 0: addresses include the offset of the data."""
    return 0
