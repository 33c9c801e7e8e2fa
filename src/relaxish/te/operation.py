"""Operations of the compute language and the functions that make them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

from ..support.entry_points import lazy_package
from ..support.sequences import as_list
from ..ir import Range, Span
from ..ir.structural import same_expression
from ..ir.errors import CheckIndexError, CheckValueError
from ..ir.expr import as_expr
from ..ir.functor import Visitor
from ..ir.serial import register_shared
from ..tir import Buffer, IterVar, PrimExpr, Reduce, SizeVar, Stmt, Var, const, convert, decl_buffer
from .tensor import Dim, ExprLike, Tensor, TensorSlice

__all__ = [
    "ComputeOp",
    "ExternOp",
    "Operation",
    "PlaceholderOp",
    "ScanOp",
    "compute",
    "extern",
    "extern_primfunc",
    "placeholder",
    "reduce_axis",
    "scan",
    "size_var",
    "tag_scope",
    "thread_axis",
    "var",
]

#: A shape as callers write it; a number is a shape of one dimension.
ShapeLike = Dim | Iterable[Dim]
#: The range of an axis: a range, ``(begin, end)`` or an extent.
Domain = Range | Dim | Sequence[Dim]
#: An element as the function of a computation returns it.
Element = ExprLike | TensorSlice

_TAGS: list[str] = []


@contextmanager
def tag_scope(tag: str) -> Iterator[str]:
    """Operations made inside carry ``tag``; also usable as a decorator."""
    if _TAGS:
        raise CheckValueError("nested tag_scope is not allowed for now")
    _TAGS.append(tag)
    try:
        yield tag
    finally:
        _TAGS.pop()


def domain(axis: IterVar) -> Range:
    """The range of an axis of a computation, which always has one."""
    assert axis.dom is not None
    return axis.dom


class Operation:
    """Producer of one or more tensors."""

    __slots__ = ("__weakref__", "_outputs", "attrs", "name", "tag")

    def __init__(self, name: str, tag: str, attrs: dict[str, Any] | None) -> None:
        self.name = name
        self.tag = tag
        self.attrs: dict[str, Any] = dict(attrs or {})
        self._outputs: dict[int, Tensor] = {}

    @property
    def num_outputs(self) -> int:
        """Number of tensors it makes."""
        return 1

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        """Shape of output ``index``."""
        raise NotImplementedError

    def output_dtype(self, index: int) -> str:
        """Data type of output ``index``."""
        raise NotImplementedError

    def output(self, index: int) -> Tensor:
        """The ``index``-th tensor."""
        made = self._outputs.get(index)
        if made is None:
            if not 0 <= index < self.num_outputs:
                raise CheckIndexError(f"operation {self.name} has {self.num_outputs} outputs, asked for {index}")
            made = self._outputs[index] = Tensor(self.output_shape(index), self.output_dtype(index), self, index)
        return made

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors it reads, in order of first use."""
        return []


class PlaceholderOp(Operation):
    """An input."""

    __slots__ = ("dtype", "shape")

    def __init__(self, name: str, shape: Sequence[PrimExpr], dtype: str) -> None:
        super().__init__(name, "", None)
        self.shape = tuple(shape)
        self.dtype = dtype

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return self.shape

    def output_dtype(self, index: int) -> str:
        return self.dtype


class _NestedReductions(Visitor):
    def visit_Reduce(self, node: Reduce) -> None:
        raise CheckValueError(
            "Reductions are only allowed at the top level of compute. "
            "Please create another tensor for further processing"
        )


def _check_reductions(expr: PrimExpr, first: PrimExpr) -> None:
    """Reductions stand at the top, and several outputs are results of one reduction."""
    if isinstance(expr, Reduce) != isinstance(first, Reduce):
        raise CheckValueError("All ComputeOp should be consistent with being Reduce operation or not.")
    if not isinstance(expr, Reduce) or not isinstance(first, Reduce):
        _NestedReductions().visit(expr)
        return
    same = expr.combiner is first.combiner and expr.source == first.source and expr.axis == first.axis
    if not same or not same_expression(expr.condition, first.condition) or expr.init != first.init:
        raise CheckValueError("The Reduce inputs of ComputeOp should have the same attribute except value_index")
    _NestedReductions().visit((expr.source, expr.condition, expr.init))


class ComputeOp(Operation):
    """Every element given by an expression of its indices."""

    __slots__ = ("axis", "body", "reduce_axis")

    def __init__(
        self, name: str, tag: str, attrs: dict[str, Any] | None, axis: Sequence[IterVar], body: Sequence[PrimExpr]
    ) -> None:
        super().__init__(name, tag, attrs)
        self.axis = tuple(axis)
        self.body = tuple(body)
        first = self.body[0]
        self.reduce_axis: tuple[IterVar, ...] = tuple(first.axis) if isinstance(first, Reduce) else ()
        for expr in self.body:
            _check_reductions(expr, first)

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return tuple(domain(a).extent for a in self.axis)

    def output_dtype(self, index: int) -> str:
        return str(self.body[index].dtype)

    @property
    def input_tensors(self) -> list[Tensor]:
        from .graph import loaded_tensors

        return loaded_tensors(self.body)


class ExternOp(Operation):
    """Outputs written by a statement over buffers."""

    __slots__ = ("body", "input_placeholders", "inputs", "output_placeholders")

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: dict[str, Any] | None,
        inputs: Sequence[Tensor],
        input_placeholders: Sequence[Buffer],
        output_placeholders: Sequence[Buffer],
        body: Stmt,
    ) -> None:
        super().__init__(name, tag, attrs)
        self.inputs = tuple(inputs)
        self.input_placeholders = tuple(input_placeholders)
        self.output_placeholders = tuple(output_placeholders)
        self.body = body

    @property
    def num_outputs(self) -> int:
        return len(self.output_placeholders)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return tuple(self.output_placeholders[index].shape)

    def output_dtype(self, index: int) -> str:
        return str(self.output_placeholders[index].dtype)

    @property
    def input_tensors(self) -> list[Tensor]:
        return list(self.inputs)


class ScanOp(Operation):
    """A recurrence along the first axis: ``init`` rows, then ``update`` from earlier rows of ``state``."""

    __slots__ = ("init", "inputs", "scan_axis", "state_placeholder", "update")

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: dict[str, Any] | None,
        scan_axis: IterVar,
        init: Sequence[Tensor],
        update: Sequence[Tensor],
        state_placeholder: Sequence[Tensor],
        inputs: Sequence[Tensor],
    ) -> None:
        super().__init__(name, tag, attrs)
        self.scan_axis = scan_axis
        self.init = tuple(init)
        self.update = tuple(update)
        self.state_placeholder = tuple(state_placeholder)
        self.inputs = tuple(inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.update)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return self.state_placeholder[index].shape

    def output_dtype(self, index: int) -> str:
        return self.state_placeholder[index].dtype

    @property
    def input_tensors(self) -> list[Tensor]:
        return [*self.init, *self.update]


_HEAD = ("name", "tag", "attrs")
register_shared(Tensor, ("op", "value_index"), lambda op, index: op.output(index))
register_shared(PlaceholderOp, ("name", "shape", "dtype"), PlaceholderOp)
register_shared(ComputeOp, (*_HEAD, "axis", "body"), ComputeOp)
register_shared(ExternOp, (*_HEAD, "inputs", "input_placeholders", "output_placeholders", "body"), ExternOp)
register_shared(ScanOp, (*_HEAD, "scan_axis", "init", "update", "state_placeholder", "inputs"), ScanOp)


def _shape_tuple(shape: ShapeLike) -> tuple[PrimExpr, ...]:
    items = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    return tuple(convert(d) for d in items)


def placeholder(shape: ShapeLike, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """An input tensor."""
    return PlaceholderOp(name, _shape_tuple(shape), dtype or "float32").output(0)


def var(name: str = "tindex", dtype: str = "int32", span: Span | None = None) -> Var:
    """A scalar variable."""
    return Var(name, dtype, span)


def size_var(name: str = "size", dtype: str = "int32", span: Span | None = None) -> SizeVar:
    """A scalar variable known not to be negative."""
    return SizeVar(name, dtype, span)


def _range(dom: Domain | None) -> Range | None:
    match dom:
        case None | Range():
            return dom
        case Sequence():
            if len(dom) != 2:
                raise TypeError(f"need to be list of ranges, got {dom!r}")
            return Range(dom[0], dom[1])
    return Range(0, dom)


def reduce_axis(dom: Domain, name: str = "rv", thread_tag: str = "", span: Span | None = None) -> IterVar:
    """An axis to reduce over: ``te.sum(A[i, k], axis=k)`` with ``k = te.reduce_axis((0, n), name="k")``."""
    checked = _range(dom)
    assert checked is not None
    dtype = str(checked.extent.dtype)
    return IterVar(checked, Var(name, dtype), IterVar.CommReduce, thread_tag, span)


def thread_axis(dom: Domain | str | None = None, tag: str = "", name: str = "", span: Span | None = None) -> IterVar:
    """An axis bound to a hardware thread such as ``threadIdx.x``."""
    if isinstance(dom, str):
        tag, dom = dom, None
    if not tag:
        raise CheckValueError("tag must be given as Positional or keyword argument")
    checked = _range(dom)
    dtype = "int32" if checked is None else str(checked.extent.dtype)
    return IterVar(checked, Var(name or tag, dtype), IterVar.ThreadIndex, tag, span)


def _axis_names(fcompute: Callable[..., Any], ndim: int, varargs_names: Sequence[str] | None) -> list[str]:
    code = inspect.getfullargspec(fcompute)
    args = [a for a in code.args if a != "self"] if inspect.ismethod(fcompute) else list(code.args)
    if not args and code.varargs is None:
        return [f"i{i}" for i in range(ndim)]
    if code.varargs is not None:
        rest = ndim - len(args)
        if varargs_names is not None:
            if len(varargs_names) != rest:
                raise RuntimeError(
                    f"Number of varargs ({rest}) does not match number of varargs_names ({len(varargs_names)})"
                )
            return [*args, *varargs_names]
        return [*args, *(f"i{i}" for i in range(rest))]
    if len(args) != ndim:
        raise CheckValueError(f"nArgs for fcompute must be same as ndim, but got {len(args)} and {ndim}")
    return args


@overload
def compute(
    shape: ShapeLike,
    fcompute: Callable[..., Element],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor: ...


@overload
def compute(
    shape: ShapeLike,
    fcompute: Callable[..., Sequence[Element]],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> tuple[Tensor, ...]: ...


def compute(
    shape: ShapeLike,
    fcompute: Callable[..., Element | Sequence[Element]],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """A tensor whose element at ``indices`` is ``fcompute(*indices)``; several results make several tensors."""
    if _TAGS:
        if tag:
            raise CheckValueError("nested tag is not allowed for now")
        tag = _TAGS[-1]
    dims = _shape_tuple(shape)
    names = _axis_names(fcompute, len(dims), varargs_names)
    axes = [
        IterVar(Range.from_min_extent(const(0, str(extent.dtype)), extent), Var(n, str(extent.dtype)), IterVar.DataPar)
        for n, extent in zip(names, dims)
    ]
    body = fcompute(*[a.var for a in axes])
    items = list(body) if isinstance(body, Sequence) else [body]
    exprs = [b.asobject() if isinstance(b, TensorSlice) else as_expr(b) for b in items]
    op = ComputeOp(name, tag, attrs, axes, exprs)
    outputs = tuple(op.output(i) for i in range(op.num_outputs))
    return outputs[0] if len(outputs) == 1 else outputs


def _buffers_for(given: Sequence[Buffer] | None, made: list[Buffer], what: str) -> list[Buffer]:
    if given is None:
        return made
    buffers = [given] if isinstance(given, Buffer) else list(given)
    if len(buffers) != len(made):
        raise CheckValueError(f"Need to provide the same number of {what} buffers: {len(buffers)} vs. {len(made)}")
    return buffers


def _anywhere(shape: Sequence[PrimExpr], dtype: str, name: str) -> Buffer:
    """A buffer that may begin at any element of its memory."""
    return decl_buffer(shape, dtype, name, elem_offset=Var("elem_offset", "int32"))


def extern(
    shape: Any,
    inputs: Any,
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Any = None,
    out_buffers: Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """Tensors written by the statement ``fcompute(input_buffers, output_buffers)``."""
    if _TAGS:
        if tag:
            raise CheckValueError("nested tag is not allowed for now")
        tag = _TAGS[-1]
    shapes = [shape] if not isinstance(shape, (list, tuple)) or _is_one_shape(shape) else list(shape)
    ins = as_list(inputs)
    for tensor in ins:
        if not isinstance(tensor, Tensor):
            raise CheckValueError("expect inputs to be tensor")
    in_made = [_anywhere(t.shape, t.dtype, t.op.name) for t in ins] if in_buffers is None else list(ins)
    in_bufs = _buffers_for(in_buffers, in_made, "input")
    if dtype is None:
        kinds = {t.dtype for t in ins}
        if len(kinds) != 1:
            raise CheckValueError("Cannot infer output type, please provide dtype argument")
        dtypes = [kinds.pop()] * len(shapes)
    else:
        dtypes = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype)
    if out_buffers is None:
        out_bufs = [_anywhere(_shape_tuple(s), d, name) for s, d in zip(shapes, dtypes)]
    else:
        out_bufs = _buffers_for(out_buffers, list(shapes), "output")
    body = fcompute(in_bufs, out_bufs)
    if isinstance(body, PrimExpr):
        from ..tir import Evaluate

        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise CheckValueError(
            f"Function '{fcompute.__name__}' should return PrimExpr or Stmt, but it returned '{type(body)}'"
        )
    op = ExternOp(name, tag, attrs, ins, in_bufs, out_bufs, body)
    outputs = [op.output(i) for i in range(op.num_outputs)]
    return outputs[0] if len(outputs) == 1 else outputs


def _is_one_shape(shape: Any) -> bool:
    return len(shape) == 0 or isinstance(shape[0], (int, PrimExpr))


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: Any, **kwargs: Any) -> Any:
    """Tensors written by the body of a ``PrimFunc`` whose last parameters are its outputs."""
    buffers = [primfunc.buffer_map[p] for p in primfunc.params]
    n_in = len(input_tensors)
    outs = buffers[n_in:]
    for tensor, buffer in zip(input_tensors, buffers):
        if len(tensor.shape) != len(buffer.shape):
            raise CheckValueError(
                "The input_tensors provided do not match the input buffers in the primfunc. "
                f"Please check that the order of input te.Input_Tensors and the order of the primfunc variables in "
                f"the params list agree: {tensor} against {buffer.name}"
            )
    return extern(
        [tuple(b.shape) for b in outs],
        list(input_tensors),
        lambda ins, made: primfunc.body,
        in_buffers=buffers[:n_in],
        out_buffers=outs,
        dtype=[b.dtype for b in outs],
        **kwargs,
    )


def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Any = None,
    name: str = "scan",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """A recurrence along the first axis of each state."""
    inits, updates, states = as_list(init), as_list(update), as_list(state_placeholder)
    if not len(inits) == len(updates) == len(states):
        raise CheckValueError("init, update, state_placeholder must have same length")
    extent = updates[0].shape[0] - inits[0].shape[0]
    axis = IterVar(Range.from_min_extent(inits[0].shape[0], extent), Var(f"{name}.idx", "int32"), IterVar.Ordered)
    op = ScanOp(name, tag, attrs, axis, inits, updates, states, as_list(inputs or []))
    outputs = [op.output(i) for i in range(op.num_outputs)]
    return outputs[0] if len(outputs) == 1 else outputs


__getattr__, __dir__ = lazy_package(globals())  # the translation to TensorIR has a file of its own
