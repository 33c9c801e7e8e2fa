"""Statement builders of ``T``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeVar
import numpy as np

from .... import tir
from ....ir import dtype as dt
from ....ir.expr import ExprLike, PrimExpr, Range, ShapeLike, as_expr, as_exprs, convert
from ....ir.plain import plain_int
from ....ir.prim import IterVar, Var as TirVar, const, is_call_of, is_one
from ....ir.primops import cast, floordiv
from ....ir.types import PointerType, PrimType, Type
from ....support.errors import InternalError
from ....tir.buffer import Buffer
from ....tir.expr import BufferLoad
from ....tir.stmt import BufferRegion, Stmt
from ..attrs import add_func_attrs
from ..base import IRBuilder, Namer
from . import frame

__all__ = [
    "Assert", "Else", "If", "LetStmt", "Then", "While", "alloc_buffer", "allocate", "allocate_const", "arg", "attr",
    "axis", "block", "block_attr", "buffer", "buffer_decl", "buffer_store", "decl_buffer", "env_thread", "evaluate",
    "func_attr", "func_name", "func_ret", "grid", "init", "launch_thread", "match_buffer", "parallel", "prefetch",
    "prim_func", "reads", "realize", "serial", "thread_binding", "unroll", "vectorized", "where", "writes",
]  # fmt: skip

_Parameter = TypeVar("_Parameter", bound=Buffer | PrimExpr)


def _simplify(expr: ExprLike) -> PrimExpr:
    from ....arith import Analyzer

    return Analyzer().simplify(as_expr(expr))


def _name_var(var: TirVar, name: str) -> None:
    var.name = name


def _name_iter_var(iter_var: IterVar, name: str) -> None:
    iter_var.var.name = name


def _name_buffer(buffer: Buffer, name: str) -> None:
    buffer.name = name
    buffer.data.name = name
    for i, stride in enumerate(buffer.strides):
        if isinstance(stride, tir.Var):
            stride.name = f"{name}_s{i}"


Namer.table[tir.Var] = _name_var
Namer.table[IterVar] = _name_iter_var
Namer.table[tir.Buffer] = _name_buffer


def _block_frame(method: str) -> frame.BlockFrame:
    found = IRBuilder.current().find(frame.BlockFrame)
    if found is not None and IRBuilder.current().frames[-1] is found:
        return found
    if found is not None:
        raise ValueError(
            f"{method} must be called at the top of a T.block().  While {method} did occur within the block "
            f'"{found.name}", other frames (e.g. if/else/let) had been introduced since the T.block("{found.name}") frame'
        )
    raise ValueError(
        f"{method} must be called at the top of a T.block(), but {method} occurred outside of any T.block() frame"
    )


def _func_frame(method: str) -> frame.PrimFuncFrame:
    found = IRBuilder.current().last(frame.PrimFuncFrame)
    if found is not None:
        return found
    around = IRBuilder.current().find(frame.PrimFuncFrame)
    if around is None:
        raise ValueError(
            f"{method} must be called at the top of a PrimFunc, but {method} occurred outside of any T.prim_func() frame"
        )
    raise ValueError(
        f"{method} must be called at the top of a PrimFunc.  While {method} did occur within the PrimFunc "
        f'"{around.name}", other frames (e.g. block/if/else/let) had been introduced since the PrimFunc\'s frame'
    )


def buffer(
    shape: PrimExpr | Sequence[ExprLike],
    dtype: str = "float32",
    data: TirVar | None = None,
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
    *,
    name: str = "",
) -> Buffer:
    """A buffer, not yet tied to anything."""
    if buffer_type not in ("auto", "default", ""):
        raise ValueError("`buffer_type` must be `auto` or `default` or empty")
    shape = (shape,) if isinstance(shape, (tir.PrimExpr, Integral)) else tuple(shape)
    index_dtype = shape[0].dtype if shape and isinstance(shape[0], tir.PrimExpr) else "int32"
    if strides is not None:
        strides = [tir.Var(s, index_dtype) if isinstance(s, str) else s for s in strides]
    dtype = str(dtype)
    if data is None:
        storage = "int8" if dtype == "bool" else dtype
        data = tir.Var(name, PointerType(PrimType(storage), scope))
    if elem_offset is None and offset_factor:
        elem_offset = tir.Var("elem_offset", index_dtype)
    kind = 2 if buffer_type == "auto" else 1
    return tir.Buffer(
        data, dtype, shape, strides or (), elem_offset, name, align, offset_factor, kind, axis_separators or ()
    )


buffer_decl = buffer


def prim_func(is_private: bool = False) -> frame.PrimFuncFrame:
    """Open a function."""
    return frame.PrimFuncFrame(is_private)


def arg(name: str, obj: _Parameter) -> _Parameter:
    """Add a parameter: a variable or a buffer."""
    func = _func_frame("T.Arg")
    Namer.name(obj, name)
    if isinstance(obj, tir.Buffer):
        param = tir.Var(f"{name}_handle", "handle")
        func.args.append(param)
        func.buffer_map[param] = obj
        return obj
    if not isinstance(obj, tir.Var):
        raise ValueError(f"Unexpected type for TIR Arg: {type(obj).__name__}")
    func.args.append(obj)
    return obj


def func_name(name: str) -> None:
    """Name the function."""
    func = _func_frame("T.func_name")
    if func.name is not None:
        raise ValueError(f"Duplicate prim func name, previous one is {func.name}")
    func.name = name


def func_attr(attrs: dict[str, Any]) -> None:
    """Set the function's attributes."""
    func = _func_frame("T.func_attr")
    add_func_attrs(func, attrs, "prim func annotation")


def func_ret(ret_type: Type) -> Type:
    """Set the function's return type."""
    func = _func_frame("T.func_ret")
    if func.ret_type is not None:
        raise ValueError(f"Duplicate prim func return type, previous one is {func.ret_type}")
    func.ret_type = ret_type
    return ret_type


def match_buffer(
    param: Buffer | PrimExpr | BufferRegion,
    shape: Sequence[ExprLike] | None = None,
    dtype: str = "float32",
    data: TirVar | None = None,
    strides: Sequence[int | str] | None = None,
    elem_offset: PrimExpr | None = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "default",
    axis_separators: Sequence[int] | None = None,
) -> Buffer:
    """A buffer over a parameter, or over a region of another buffer (inside a block)."""
    if shape is None:
        if not isinstance(param, tir.BufferRegion):
            raise ValueError("Shape must be specified when binding input param")
        dtype = param.buffer.dtype
        shape = [r.extent for r in param.region]
    made = buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators)
    match param:
        case tir.Var():
            func = _func_frame("T.match_buffer")
            if not any(a is param for a in func.args):
                raise ValueError("Can not bind non-input param to buffer.")
            func.buffer_map[param] = made
        case tir.BufferLoad():
            _block_frame("T.match_buffer").match_buffers.append(tir.MatchBufferRegion(made, _region_of(param)))
        case tir.BufferRegion():
            _block_frame("T.match_buffer").match_buffers.append(tir.MatchBufferRegion(made, param))
        case _:
            raise ValueError("Unexpected type for TIR MatchBuffer.")
    return made


def _region_of(load: BufferLoad) -> BufferRegion:
    ranges = []
    for index in load.indices:
        if isinstance(index, tir.Ramp):
            ranges.append(Range.from_min_extent(index.base, index.stride * index.lanes))
        else:
            ranges.append(Range.from_min_extent(index, const(1, index.dtype)))
    return tir.BufferRegion(load.buffer, ranges)


def block(name: str = "", no_realize: bool = False) -> frame.BlockFrame:
    """Open a block."""
    return frame.BlockFrame(name, no_realize)


def init() -> frame.BlockInitFrame:
    """Open the initialisation of the block around."""
    return frame.BlockInitFrame()


def where(predicate: ExprLike) -> None:
    """Restrict the block around to instances for which ``predicate`` holds."""
    if isinstance(predicate, bool):
        predicate = tir.IntImm("bool", predicate)
    if isinstance(predicate, int):
        if predicate not in (0, 1):
            raise ValueError(f"Invalid value for predicate: {predicate}")
        predicate = tir.IntImm("bool", predicate)
    found = _block_frame("T.where")
    if found.predicate is not None:
        raise ValueError(f"Duplicate block predicate declaration, previous one is {found.predicate}")
    found.predicate = predicate


def _regions(items: Sequence[Any], what: str) -> list[Any]:
    if len(items) == 1 and isinstance(items[0], (list, tuple)):
        items = items[0]
    out = []
    for item in items:
        match item:
            case tir.BufferRegion():
                out.append(item)
            case tir.BufferLoad():
                out.append(_region_of(item))
            case tir.Buffer():
                out.append(tir.BufferRegion(item, [Range(0, e) for e in item.shape]))
            case _:
                raise ValueError(f"Invalid type for buffer {what}.")
    return out


def reads(*buffer_slices: Any) -> None:
    """Declare what the block around reads."""
    found = _block_frame("T.reads")
    if found.reads is not None:
        raise ValueError(f"Duplicate read region declaration, previous one is {found.reads}")
    found.reads = _regions(buffer_slices, "reads")


def writes(*buffer_slices: Any) -> None:
    """Declare what the block around writes."""
    found = _block_frame("T.writes")
    if found.writes is not None:
        raise ValueError(f"Duplicate write region declaration, previous one is {found.writes}")
    found.writes = _regions(buffer_slices, "writes")


def block_attr(attrs: dict[str, Any]) -> None:
    """Annotate the block around."""
    found = _block_frame("T.block_attr")
    if found.annotations is not None:
        raise ValueError(f"Duplicate block annotations, previous one is {found.annotations}")
    found.annotations = dict(attrs)


def alloc_buffer(
    shape: PrimExpr | Sequence[ExprLike],
    dtype: str = "float32",
    data: TirVar | None = None,
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "default",
    axis_separators: Sequence[int] | None = None,
) -> Buffer:
    """Allocate a buffer in the block around, or in the function's root block."""
    made = buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators)
    builder = IRBuilder.current()
    found = builder.find(frame.BlockFrame)
    if found is not None:
        found.alloc_buffers.append(made)
        return made
    func = builder.last(frame.PrimFuncFrame)
    if func is None:
        raise ValueError(
            "Block frame or PrimFunc frame not find. Please ensure 'T.alloc_buffer' is called under T.block() or "
            "T.prim_func()"
        )
    func.root_alloc_buffers.append(made)
    return made


def _as_range(dom: ExprLike | Range | Sequence[ExprLike]) -> Range:
    match dom:
        case Range():
            return dom
        case list() | tuple():
            extent = _simplify(dom[1] - dom[0])
            if isinstance(extent, tir.IntImm):
                return Range.from_min_extent(dom[0], extent)
            return Range(dom[0], dom[1])
    dom = as_expr(dom)
    return Range.from_min_extent(const(0, dom.dtype), dom)


class axis:
    """The iteration variables of a block."""

    @staticmethod
    def _push(kind: int, dom: ExprLike | Range | Sequence[ExprLike], binding: ExprLike | None, dtype: str) -> TirVar:
        made_dom = _as_range(dom)
        bits = max(dt.bits(made_dom.min.dtype), dt.bits(made_dom.extent.dtype), dt.bits(dtype))
        made = IterVar(made_dom, tir.Var("", f"{dt.code(dtype)}{bits}"), kind)
        return axis._push_var(made, binding)

    @staticmethod
    def _push_var(made: IterVar, binding: ExprLike | None) -> TirVar:
        found = IRBuilder.current().last(frame.BlockFrame)
        if found is None:
            raise TypeError("The last frame is not BlockFrame")
        found.iter_vars.append(made)
        if binding is not None:
            found.iter_values.append(as_expr(binding))
        return made.var

    @staticmethod
    def spatial(
        dom: ExprLike | Range | Sequence[ExprLike], binding: ExprLike | None = None, dtype: str = "int32"
    ) -> TirVar:
        """A data-parallel variable."""
        return axis._push(0, dom, binding, dtype)

    @staticmethod
    def reduce(
        dom: ExprLike | Range | Sequence[ExprLike], binding: ExprLike | None = None, dtype: str = "int32"
    ) -> TirVar:
        """A reduction variable."""
        return axis._push(2, dom, binding, dtype)

    @staticmethod
    def scan(
        dom: ExprLike | Range | Sequence[ExprLike], binding: ExprLike | None = None, dtype: str = "int32"
    ) -> TirVar:
        """An ordered variable."""
        return axis._push(3, dom, binding, dtype)

    @staticmethod
    def opaque(
        dom: ExprLike | Range | Sequence[ExprLike], binding: ExprLike | None = None, dtype: str = "int32"
    ) -> TirVar:
        """A variable of unknown role."""
        return axis._push(4, dom, binding, dtype)

    S = spatial
    R = reduce

    @staticmethod
    def remap(kinds: str, bindings: Sequence[PrimExpr], dtype: str = "int32") -> TirVar | list[TirVar]:
        """One variable a loop, ``S`` spatial and ``R`` reduction, with the loops' own domains."""
        if len(kinds) != len(bindings):
            raise ValueError(f"T.axis.remap got {len(kinds)} kinds for {len(bindings)} bindings")
        out = []
        for kind, loop_var in zip(kinds, bindings):
            if not isinstance(loop_var, tir.Var):
                raise TypeError(f"Only Var is supported in T.axis.remap, got {loop_var}")
            if kind not in "SR":
                raise ValueError(f"Unknown axis kind: {kind}")
            made = IterVar(_loop_domain(loop_var), tir.Var("", loop_var.dtype), 0 if kind == "S" else 2)
            out.append(axis._push_var(made, loop_var))
        return out[0] if len(out) == 1 else out


def _loop_domain(loop_var: TirVar) -> Range:
    for item in reversed(IRBuilder.current().frames):
        if isinstance(item, frame.ForFrame):
            for var, dom in zip(item.vars, item.doms):
                if var is loop_var:
                    return dom
    raise TypeError(f"Variable is not in the loop: {loop_var.name}")


def _loop(
    kind: int, start: ExprLike, stop: ExprLike | None, annotations: Mapping[str, Any] | None, thread: str | None = None
) -> frame.LoopFrame:
    if stop is None:
        stop = as_expr(start)
        low = const(0, stop.dtype)
        extent = stop
    else:
        low, stop = as_expr(start), as_expr(stop)
        extent = _simplify(stop - low)
    bits = max(dt.bits(low.dtype), dt.bits(extent.dtype))
    dtype = f"{dt.code(low.dtype)}{bits}"
    if dtype != low.dtype and isinstance(low, tir.IntImm):
        low = const(low.value, dtype)
    if dtype != extent.dtype and isinstance(extent, tir.IntImm):
        extent = const(extent.value, dtype)

    def make(variables: list[Any], doms: list[Range], body: Stmt) -> Stmt:
        binding = IterVar(None, tir.Var("iter", dtype), 1, thread) if thread is not None else None
        return tir.For(variables[0], doms[0].min, doms[0].extent, kind, body, binding, annotations)

    return frame.LoopFrame([tir.Var("v", dtype)], [Range.from_min_extent(low, extent)], make)


def serial(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: Mapping[str, Any] | None = None
) -> frame.LoopFrame:
    """A loop run in order."""
    return _loop(0, start, stop, annotations)


def parallel(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: dict[str, Any] | None = None
) -> frame.LoopFrame:
    """A loop run by several threads."""
    return _loop(1, start, stop, annotations)


def vectorized(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: dict[str, Any] | None = None
) -> frame.LoopFrame:
    """A loop run as vector instructions."""
    return _loop(2, start, stop, annotations)


def unroll(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: dict[str, Any] | None = None
) -> frame.LoopFrame:
    """A loop written out."""
    return _loop(3, start, stop, annotations)


def thread_binding(
    start: ExprLike,
    stop: ExprLike | None = None,
    thread: str | None = None,
    *,
    annotations: dict[str, Any] | None = None,
) -> frame.LoopFrame:
    """A loop run by device threads."""
    if thread is None:
        if not isinstance(stop, str):
            raise ValueError("Thread cannot be None for thread_binding")
        thread, stop = stop, None
    return _loop(4, start, stop, annotations, thread)


def grid(*extents: Any) -> frame.ForFrame:
    """Nested loops, one an extent."""
    exprs = [as_expr(e) for e in extents]

    def make(variables: list[Any], doms: list[Range], body: Stmt) -> Stmt:
        for var, dom in zip(reversed(variables), reversed(doms)):
            body = tir.For(var, dom.min, dom.extent, 0, body)
        return body

    names = [tir.Var("v", e.dtype) for e in exprs]
    return frame.ForFrame(names, [Range.from_min_extent(const(0, e.dtype), e) for e in exprs], make)


def Assert(condition: ExprLike, message: ExprLike) -> frame.AssertFrame:
    """Check at run time before the statements that follow."""
    if isinstance(condition, bool):
        condition = tir.IntImm("bool", condition)
    return frame.AssertFrame(lambda body: tir.AssertStmt(condition, message, body), None)


def LetStmt(
    value: ExprLike, type_annotation: Type | TirVar | Callable[..., Any] | None = None, *, var: TirVar | None = None
) -> frame.LetFrame:
    """Name a value for the statements that follow."""
    value = as_expr(value)
    if var is None:
        kind: Any = value.dtype
        if type_annotation is not None:
            kind = type_annotation() if callable(type_annotation) else type_annotation
            kind = kind.type_annotation if isinstance(kind, tir.Var) else kind
        elif value.dtype == "handle":
            kind = _pointer_type(value)
        var = tir.Var("v", kind)
    return frame.LetFrame(lambda body: tir.LetStmt(var, value, body), var)


def _pointer_type(value: ExprLike) -> Type | None:
    """The type of a pointer expression, where it can be told."""
    if isinstance(value, tir.Var):
        return value.type_annotation
    if is_call_of(value, "tir.address_of"):
        load = value.args[0]
        if isinstance(load, tir.BufferLoad):
            scope = load.buffer.scope()
            return PointerType(PrimType(load.buffer.dtype), "" if scope == "global" else scope)
    return PrimType("handle")


def realize(buffer_slice: Buffer | BufferRegion, storage_scope: str, condition: ExprLike = True) -> frame.RealizeFrame:
    """Bring a region of a buffer into being."""
    region = _region_of(buffer_slice) if isinstance(buffer_slice, tir.BufferLoad) else buffer_slice
    if not isinstance(region, tir.BufferRegion):
        raise TypeError(f"T.realize expects a region of a buffer, but got {type(region).__name__}")
    if isinstance(condition, bool):
        condition = tir.IntImm("bool", condition)

    def make(body: Stmt) -> Stmt:
        inner = tir.BufferRealize(region.buffer, region.region, condition, body)
        return tir.AttrStmt(region.buffer, "realize_scope", tir.StringImm(storage_scope), inner)

    return frame.RealizeFrame(make, None)


def allocate(
    extents: ShapeLike,
    dtype: str,
    scope: str = "global",
    condition: ExprLike | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> frame.AllocateFrame:
    """Raw memory for the statements that follow."""
    dtype = str(dtype)
    pointer = tir.Var("", PointerType(PrimType(dtype), scope))
    cond = True if condition is None else condition

    def make(body: Stmt) -> Stmt:
        return tir.Allocate(pointer, dtype, extents, cond, body, annotations)

    return frame.AllocateFrame(make, pointer)


def allocate_const(
    data: np.ndarray[Any, Any] | Sequence[Any],
    dtype: str,
    extents: ShapeLike,
    annotations: Mapping[str, Any] | None = None,
) -> frame.AllocateConstFrame:
    """Constant memory for the statements that follow."""
    array: Any = data
    if isinstance(data, (list, tuple)):
        shape = [plain_int(e) for e in as_exprs(extents)]
        array = np.asarray(data, dtype=dt.numpy_dtype(dtype)).reshape(shape)
    pointer = tir.Var("", PointerType(PrimType(dtype)))

    def make(body: Stmt) -> Stmt:
        return tir.AllocateConst(pointer, dtype, extents, array, body, annotations)

    return frame.AllocateConstFrame(make, pointer)


def attr(node: object, attr_key: str, value: ExprLike) -> frame.AttrFrame:
    """Annotate the statements that follow."""
    from ....target import Target

    made_node: Any = node if isinstance(node, (str, Target)) else convert(node)
    made_value: Any = convert(value)
    if isinstance(made_value, str):
        made_value = tir.StringImm(made_value)
    return frame.AttrFrame(lambda body: tir.AttrStmt(made_node, attr_key, made_value, body), None)


def While(condition: ExprLike) -> frame.WhileFrame:
    """A loop run as long as the condition holds."""
    if isinstance(condition, bool):
        condition = tir.IntImm("bool", condition)
    return frame.WhileFrame(lambda body: tir.While(condition, body), None)


def If(condition: ExprLike) -> frame.IfFrame:
    """A choice; ``Then`` and ``Else`` open inside."""
    return frame.IfFrame(tir.IntImm("bool", condition) if isinstance(condition, bool) else as_expr(condition))


def Then() -> frame.ThenFrame:
    """Branch of a condition that holds."""
    return frame.ThenFrame()


def Else() -> frame.ElseFrame:
    """Branch of a condition that does not hold."""
    return frame.ElseFrame()


def decl_buffer(
    shape: PrimExpr | Sequence[ExprLike],
    dtype: str = "float32",
    data: TirVar | None = None,
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> frame.DeclBufferFrame:
    """A buffer over existing memory ``data``, or over memory allocated here."""
    made = buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators)

    def make(body: Stmt) -> Stmt:
        inner = tir.DeclBuffer(made, body)
        if data is not None:
            return inner
        return tir.Allocate(made.data, made.dtype, made.shape, True, inner)

    return frame.DeclBufferFrame(make, made)


def env_thread(thread_tag: str, dtype: str = "int32") -> TirVar:
    """A thread index of the device, to be launched later."""
    made = IterVar(None, tir.Var("", dtype), 1, thread_tag)
    func = IRBuilder.current().find(frame.PrimFuncFrame)
    if func is None:
        raise InternalError("EnvThread can only be used inside a PrimFunc")
    func.env_threads[id(made.var)] = made
    return made.var


def launch_thread(thread: TirVar | str, extent: ExprLike) -> frame.LaunchThreadFrame:
    """Run the statements that follow on ``extent`` device threads."""
    extent = as_expr(extent)
    if isinstance(thread, str):
        thread = env_thread(thread, extent.dtype)
    func = IRBuilder.current().find(frame.PrimFuncFrame)
    if func is None:
        raise InternalError("LaunchThread can only be used inside a PrimFunc")
    made = func.env_threads.get(id(thread))
    if made is None:
        raise ValueError(f"{thread.name} is not an env_thread created using T.env_thread.")
    if made.dom is None:
        # The domain of a thread is known only at its first launch.
        object.__setattr__(made, "dom", Range.from_min_extent(const(0, extent.dtype), extent))
    else:
        from ....arith import Analyzer

        if not Analyzer().can_prove_equal(made.dom.extent, extent):
            raise ValueError(
                f"Inconsistent extents of environment thread. {thread.name} has extents {made.dom.extent} and {extent}"
            )
    return frame.LaunchThreadFrame(made, extent)


def _store_index(index: ExprLike | slice) -> ExprLike:
    if not isinstance(index, slice):
        return index
    step = 1 if index.step is None else index.step
    start = as_expr(0 if index.start is None else index.start)
    lanes = _simplify(floordiv(index.stop - start + step - 1, step))
    if is_one(lanes):
        return start
    return tir.Ramp(start, const(int(step), start.dtype) if isinstance(step, int) else step, lanes)


def buffer_store(
    target: Buffer,
    value: ExprLike,
    indices: ExprLike | slice | Sequence[ExprLike | slice],
    predicate: PrimExpr | None = None,
) -> None:
    """``target[indices] = value``"""
    places: Sequence[Any] = indices if isinstance(indices, (list, tuple)) else [indices]
    if isinstance(value, bool) and target.dtype == "bool":
        value = tir.IntImm("bool", value)
    value = as_expr(value)
    exprs = [as_expr(_store_index(i)) for i in places]
    lanes = dt.lanes(exprs[-1].dtype) if exprs else 1
    wanted = dt.with_lanes(target.dtype, dt.lanes(target.dtype) * lanes)
    if value.dtype != wanted:
        if dt.lanes(value.dtype) != dt.lanes(wanted):
            raise TypeError(
                f"Incompatible types in BufferStore: LHS is `{wanted}`, RHS is `{value.dtype}`, indexing lanes: {lanes}"
            )
        value = cast(wanted, value)
    frame.add_to_parent(tir.BufferStore(target, value, exprs, predicate))


def prefetch(target: Buffer, bounds: Iterable[Range | ExprLike]) -> None:
    """Ask for a region to be brought near."""
    frame.add_to_parent(tir.Prefetch(target, [b if isinstance(b, Range) else Range(0, b) for b in bounds]))


def evaluate(value: ExprLike) -> None:
    """Evaluate an expression for its effect."""
    if isinstance(value, str):
        value = tir.StringImm(value)
    if isinstance(value, bool):
        value = tir.IntImm("bool", value)
    frame.add_to_parent(tir.Evaluate(value))
