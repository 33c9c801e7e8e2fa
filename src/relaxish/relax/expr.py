"""The nodes of graph programs: variables, constants, calls, bindings, functions.

Programs are in A-normal form: a function body is a :class:`SeqExpr`, a list of binding blocks plus a result; every
call is bound to a variable.  Expressions learn their struct info from the :class:`~relaxish.relax.BlockBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Union

import numpy as np

from ..ir.attrs import Attrs, DictAttrs
from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.expr import BaseFunc, CALL_GLOBAL, EqualOp, ExprLike, GlobalVar, NotEqualOp, PrimExpr, RelaxExpr
from ..ir.transform import STUB_MAKER
from ..ir.node import Node, cached, field
from ..ir.op import Op, op_name_of
from ..ir.prim import Call as PrimCall
from ..ir.prim import FloatImm, IntImm
from ..ir.source import Span
from ..ir.types import Type
from ..runtime.arrays.ndarray import NDArray
from ..support.entry_points import load
from ..support.errors import InternalError, RelaxishError
from ..te.tensor import Tensor

if TYPE_CHECKING:
    from .struct_info import StructInfoLike

__all__ = [
    "ArgLike", "Binding", "BindingBlock", "Call", "Constant", "DataTypeImm", "DataflowBlock", "DataflowVar",
    "Expr", "ExprWithOp", "ExternFunc", "Function", "Id", "If", "MatchCast", "PrimValue", "SeqExpr",
    "ShapeExpr", "StringImm", "Tuple", "TupleGetItem", "Type", "Var", "VarBinding", "as_shape_dim", "const",
    "extern", "get_shape_of", "is_leaf", "make_shape", "prim_of", "te_tensor",
]  # fmt: skip

Expr = RelaxExpr
#: What stands for an argument of a call: an expression, a scalar, text, or a sequence of such, which is a tuple.
ArgLike: TypeAlias = Union[Expr, ExprLike, Sequence[Any]]


def as_shape_dim(value: PrimExpr | PrimValue | int | np.integer[Any]) -> PrimExpr:
    """A dimension as an int64 expression. Raises TypeError for what is no integer expression."""
    match value:
        case int() | np.integer() if not isinstance(value, bool):
            return IntImm("int64", int(value))
        case PrimExpr():
            if value.dtype == "int64":
                return value
            if isinstance(value, IntImm):
                return IntImm("int64", value.value)
            raise CheckTypeError(
                f"the value in ShapeStructInfo can only have dtype of int64, but {value} is {value.dtype}"
            )
        case PrimValue():
            return as_shape_dim(value.value)
    raise CheckTypeError(f"a dimension must be an integer or an integer expression, not {type(value).__name__}")


def prim_of(value: ExprLike, dtype: str | None = None) -> PrimExpr:
    """A Python scalar as a scalar expression: ints are int64, floats float64, unless ``dtype`` says otherwise."""
    if isinstance(value, EqualOp | NotEqualOp):
        value = value.asobject()
    match value:
        case PrimExpr():
            return value
        case bool() | np.bool_():
            return IntImm(dtype or "bool", int(value))
        case int() | np.integer():
            return IntImm(dtype or "int64", int(value))
        case float() | np.floating():
            return FloatImm(dtype or "float64", float(value))
    raise TypeError(f"cannot make a scalar expression of {type(value).__name__}")


class ExprWithOp(Expr):
    """Expressions that carry Python operators: ``x + y``, ``x[0]``, ``f(x)``, ``x.astype("float16")``."""

    def __neg__(self) -> Call:
        return _op("negative", self)

    def __add__(self, other: Any) -> Any:
        if isinstance(self.struct_info_, TupleStructInfo) and isinstance(other, tuple):
            fields: tuple[Any, ...] = tuple(self[i] for i in range(len(self.struct_info_.fields)))
            return (*fields, *other)
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.__add__(other)

    def __sub__(self, other: Expr) -> Call:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Expr) -> Call:
        raise _bad_operand(other)

    def __mul__(self, other: Expr) -> Call:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Expr) -> Call:
        return self.__mul__(other)

    def __truediv__(self, other: Expr) -> Call:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Expr) -> Call:
        raise _bad_operand(other)

    def __floordiv__(self, other: Expr) -> Call:
        return _binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Expr) -> Call:
        raise _bad_operand(other)

    def __mod__(self, other: Expr) -> Call:
        return _binary("mod", self, other)

    def __rmod__(self, other: Expr) -> Call:
        raise _bad_operand(other)

    def __pow__(self, other: Expr) -> Call:
        return _binary("power", self, other)

    def __rpow__(self, other: Expr) -> Call:
        raise _bad_operand(other)

    def __lt__(self, other: Expr) -> Call:
        return _binary("less", self, other)

    def __gt__(self, other: Expr) -> Call:
        return _binary("greater", self, other)

    def __le__(self, other: Expr) -> Call:
        return _binary("less_equal", self, other)

    def __ge__(self, other: Expr) -> Call:
        return _binary("greater_equal", self, other)

    def astype(self, dtype: str) -> Call:
        """This tensor converted to ``dtype``."""
        return _op("astype", self, dtype)

    def __call__(self, *args: Any, attrs: Mapping[str, Any] | None = None) -> Call:
        return Call(self, args, attrs=attrs)

    def __iter__(self) -> Iterator[Any]:
        """The fields of a tuple of known length; what may be anything has no end that iteration could find."""
        info = self.struct_info_
        if info is not None and not isinstance(info, TupleStructInfo):
            # The same error as for any other field of what is no tuple.
            self[0]
            raise TypeError(
                f"cannot iterate over {self}: its struct info is {info}, which has no known number of fields"
            )
        if info is None:
            raise TypeError(f"cannot iterate over {self}: its struct info is not known yet")
        return (self[k] for k in range(len(info.fields)))

    def __getitem__(self, index: int) -> Any:
        try:
            return TupleGetItem(self, index)
        except RelaxishError as problem:
            # Python ends the unpacking of a tuple at the first IndexError.
            if "Index out of bounds" in str(problem):
                raise IndexError(str(problem)) from problem
            raise

    @property
    def dtype(self) -> Any:
        """The dtype as known at run time: ``x.dtype.bits`` and so on are expressions."""
        return load("relax.inspect_proxy").DTypeProxy(self)

    @property
    def ndim(self) -> Call:
        """The rank as known at run time, an expression."""
        return _inspect("tensor_ndim", self)

    @property
    def shape(self) -> Any:
        """``x.shape[i]``: a dimension as known at run time, an expression."""
        return load("relax.inspect_proxy").AxisProxy(self, "tensor_shape_i")

    @property
    def strides(self) -> Any:
        """``x.strides[i]``: a stride as known at run time, an expression."""
        return load("relax.inspect_proxy").AxisProxy(self, "tensor_stride_i")

    @property
    def byte_offset(self) -> Call:
        """Offset of the data in bytes as known at run time, an expression."""
        return _inspect("tensor_byte_offset", self)

    @property
    def elem_offset(self) -> Call:
        """Offset of the data in elements as known at run time, an expression."""
        return _inspect("tensor_elem_offset", self)


def _inspect(name: str, tensor: Expr) -> Call:
    return load("relax.inspect_proxy").inspect_call(name, tensor)


def _op(name: str, *args: Expr | str) -> Call:
    return getattr(load("operators"), name)(*args)


def _bad_operand(value: object) -> TypeError:
    if isinstance(value, (int, float, np.number)):
        return TypeError(f"Please convert {value} with `const` first: a bare number has no dtype")
    return TypeError(f"type {type(value)} not supported")


def _binary(name: str, lhs: Expr, rhs: Expr) -> Call:
    if not isinstance(rhs, Expr):
        raise _bad_operand(rhs)
    return _op(name, lhs, rhs)


class Id:
    """The identity of a variable: two variables are the same exactly if their ``vid`` is the same object."""

    __slots__ = ("name_hint",)

    def __init__(self, name_hint: str) -> None:
        self.name_hint = name_hint

    def same_as(self, other: object) -> bool:
        """Whether both are the very same object."""
        return self is other

    def __repr__(self) -> str:
        return self.name_hint


class Var(ExprWithOp):
    """A named value. ``Var("x", TensorStructInfo([n, 4], "float32"))``."""

    __extra_slots__ = ("_vid",)
    _is_var = True
    is_dataflow = False  # whether only its dataflow block may use it

    name_hint: str = field(role="ignore")
    struct_info_: Any = field(role="child")
    span: Any = field(role="ignore")

    def __init__(
        self, name_hint: str | Id, struct_info: StructInfoLike | None = None, span: Span | None = None
    ) -> None:
        if isinstance(name_hint, Id):
            self._vid = name_hint
            name_hint = name_hint.name_hint
        if not isinstance(name_hint, str):
            raise TypeError(f"the name of a variable must be a string, not {type(name_hint).__name__}")
        self.name_hint = name_hint
        self.struct_info_ = None if struct_info is None else as_struct_info(struct_info)
        self.span = span

    @classmethod
    def _make(cls, **fields: Any) -> Var:
        return cls(fields["name_hint"], fields.get("struct_info_"), fields.get("span"))

    @property
    def vid(self) -> Id:
        """The identity object of this variable."""
        try:
            return self._vid
        except AttributeError:
            self._vid = Id(self.name_hint)
            return self._vid

    @property
    def name(self) -> str:
        """The same as ``name_hint``."""
        return self.name_hint


class DataflowVar(Var):
    """A variable that only its dataflow block may use."""

    is_dataflow = True

    if TYPE_CHECKING:

        def __init__(
            self, name_hint: str | Id, struct_info: StructInfoLike | None = None, span: Span | None = None
        ) -> None: ...


class Constant(ExprWithOp):
    """A tensor known at compile time."""

    data: Any = field(role="attr")
    struct_info_: Any = field(role="child")
    span: Any = field(role="ignore")

    def __init__(
        self,
        data: NDArray | np.ndarray[Any, Any] | np.generic | float | list[Any],
        struct_info: StructInfoLike | None = None,
        span: Span | None = None,
    ) -> None:
        self.data = _as_ndarray(data)
        if struct_info is None:
            struct_info = TensorStructInfo([int(d) for d in self.data.shape], str(self.data.dtype))
        struct_info = as_struct_info(struct_info)
        # A distributed tensor's struct info holds that of the tensor.
        if not isinstance(getattr(struct_info, "tensor_sinfo", struct_info), TensorStructInfo):
            raise TypeError("the struct info of a Constant must be a TensorStructInfo")
        self.struct_info_ = struct_info
        self.span = span

    @classmethod
    def _make(cls, **fields: Any) -> Constant:
        return cls(fields["data"], fields.get("struct_info_"), fields.get("span"))


def _as_ndarray(data: NDArray | np.ndarray[Any, Any] | np.generic | float | list[Any]) -> NDArray:
    from ..runtime.arrays import ndarray

    match data:
        case ndarray.NDArray():
            return data
        case np.ndarray() | np.generic() | int() | float() | bool() | list():
            return ndarray.array(np.asarray(data))
    raise TypeError(f"a Constant holds an NDArray or a NumPy array, not {type(data).__name__}")


class ShapeExpr(ExprWithOp):
    """A shape as a value: a tuple of int64 expressions."""

    values: tuple[PrimExpr, ...] = field(default=None)
    span: Any = field(role="ignore")

    def __init__(self, values: Sequence[Any], span: Span | None = None) -> None:
        self.values = tuple(as_shape_dim(v) for v in values)
        self.struct_info_ = ShapeStructInfo(self.values)
        self.span = span

    def __getitem__(self, index: int) -> PrimExpr:
        if isinstance(index, int) and not -len(self.values) <= index < len(self.values):
            raise IndexError("ShapeExpr index out of range")
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[PrimExpr]:
        return iter(self.values)


class PrimValue(Expr):
    """A scalar expression as a graph value."""

    value: PrimExpr = field(default=None)
    span: Any = field(role="ignore")

    def __init__(self, value: Any, span: Span | None = None) -> None:
        # A Python float is a float32 scalar here, and a float64 one where an operator converts its arguments.
        self.value = prim_of(value, "float32" if isinstance(value, float) else None)
        self.struct_info_ = PrimStructInfo(value=self.value)
        self.span = span


class StringImm(Expr):
    """A string literal."""

    value: str = field(role="attr", default=None)
    span: Any = field(role="ignore")

    def __init__(self, value: str, span: Span | None = None) -> None:
        self.value = str(value)
        self.struct_info_ = ObjectStructInfo()
        self.span = span


class DataTypeImm(Expr):
    """A dtype literal; the empty name is the type that is not given, "void"."""

    value: str = field(role="attr", default=None)
    span: Any = field(role="ignore")

    def __init__(self, value: str, span: Span | None = None) -> None:
        self.value = str(value) or "void"
        self.struct_info_ = ObjectStructInfo()
        self.span = span


class Tuple(ExprWithOp):
    """Several values as one."""

    fields: tuple[Any, ...] = field(default=None)
    span: Any = field(role="ignore")

    def __init__(self, fields: Sequence[Any], span: Span | None = None) -> None:
        items = tuple(fields)
        if not all(isinstance(item, (Expr, BaseFunc)) for item in items):
            items = tuple(_convert(item) for item in items)
        self.fields = items
        self.struct_info_ = None
        infos = [item.struct_info_ for item in items]
        if all(info is not None for info in infos):
            self.struct_info_ = TupleStructInfo(infos)
        self.span = span

    def __getitem__(self, index: int) -> Expr:
        if index >= len(self.fields) or index < -len(self.fields):
            raise IndexError("Tuple index out of range")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


class TupleGetItem(ExprWithOp):
    """One field of a tuple, by constant index."""

    tuple_value: Any = field(default=None)
    index: int = field(role="attr", default=None)
    span: Any = field(role="ignore")

    def __init__(self, tuple_value: Expr, index: int, span: Span | None = None) -> None:
        index = int(index)
        if index < 0:
            raise RelaxishError(
                f"Index out of bounds: Tuple {tuple_value} cannot be accessed with negative index {index}"
            )
        info = tuple_value.struct_info_
        self.struct_info_ = None
        if isinstance(info, TupleStructInfo):
            if index >= len(info.fields):
                raise RelaxishError(
                    f"Index out of bounds: Tuple {tuple_value} is of size {len(info.fields)}, "
                    f"and cannot be accessed with index {index}"
                )
            self.struct_info_ = info.fields[index]
        elif info is not None and not isinstance(info, ObjectStructInfo):
            raise RelaxishError(f"TupleGetItem expects a tuple, but its argument has struct info {info}")
        self.tuple_value = tuple_value
        self.index = index
        self.span = span


class Call(ExprWithOp):
    """The application of an operator, a function or a packed function."""

    op: Any = field(default=None)
    args: tuple[Any, ...] = field(default=None)
    attrs: Any = field(default=None)
    sinfo_args: tuple[Any, ...] = field(default=None)
    span: Any = field(role="ignore")

    def __init__(
        self,
        op: Expr | str,
        args: Sequence[Any],
        attrs: Attrs | Mapping[str, Any] | None = None,
        sinfo_args: StructInfoLike | Sequence[StructInfoLike] | None = None,
        span: Span | None = None,
    ) -> None:
        self.op = op = Op.get(op) if isinstance(op, str) else op
        info = getattr(op, "struct_info_", None)
        if info is not None and not isinstance(info, FuncStructInfo):
            raise CheckValueError(
                f"Call expects its operator to have FuncStructInfo, but operator {op}, which was called with "
                f"arguments {tuple(args)}, has struct info {info}"
            )
        self.struct_info_ = None
        self.args = args if type(args) is tuple else tuple(args)
        if attrs is not None and not isinstance(attrs, Node):
            known = self.op.get_attr("TAttrsTypeKey") if isinstance(self.op, Op) else None
            attrs = DictAttrs(dict(attrs), known or "DictAttrs")
        self.attrs = attrs
        if sinfo_args is None:
            self.sinfo_args = ()
        else:
            infos = sinfo_args if isinstance(sinfo_args, (list, tuple)) else (sinfo_args,)
            self.sinfo_args = tuple(as_struct_info(i) for i in infos)
        self.span = span


def is_call_of(expr: object, *names: str) -> TypeGuard[Call]:
    """Whether an expression calls one of the operators of these full names."""
    return op_name_of(expr) in names


class If(ExprWithOp):
    """A conditional; both branches are sequences that give a value."""

    cond: Any = field(default=None)
    true_branch: Any = field(default=None)
    false_branch: Any = field(default=None)
    span: Any = field(role="ignore")

    def __init__(self, cond: Expr, true_branch: Expr, false_branch: Expr, span: Span | None = None) -> None:
        self.cond = cond
        self.struct_info_ = None
        self.true_branch = _as_seq(true_branch)
        self.false_branch = _as_seq(false_branch)
        self.span = span


class Binding(Node):
    """One line of a block: gives a variable its value."""

    var: Var = field(role="bind")
    value: Any


class VarBinding(Binding):
    """``var = value``."""

    _equal_order = ("value", "var")

    span: Any = field(role="ignore", default=None)

    def equality_plan(self) -> tuple[tuple[str, str], ...]:
        # A function may call itself by the variable that it is bound to.
        return self._equal_plan[::-1] if isinstance(self.value, Function) else self._equal_plan


class MatchCast(Binding):
    """``var = match_cast(value, struct_info)``: checked at run time; binds the symbolic dims it names."""

    _equal_order = ("value", "struct_info", "var")

    struct_info: Any = field(role="bind", conv=lambda info: as_struct_info(info))
    span: Any = field(role="ignore", default=None)


class BindingBlock(Node):
    """Bindings in order."""

    is_dataflow = False  # whether it is without side effects and control flow
    bindings: tuple[Binding, ...]
    span: Any = field(role="ignore", default=None)

    def __init__(self, bindings: Sequence[Binding], span: Span | None = None) -> None:
        self.bindings = tuple(bindings)
        self.span = span


class DataflowBlock(BindingBlock):
    """A block without side effects or control flow."""

    is_dataflow = True

    if TYPE_CHECKING:

        def __init__(self, bindings: Sequence[Binding], span: Span | None = None) -> None: ...


class SeqExpr(ExprWithOp):
    """Blocks of bindings, then the result."""

    if TYPE_CHECKING:

        def _rewritten(self) -> SeqExpr: ...

    blocks: tuple[BindingBlock, ...] = field(default=None)
    body: Any = field(default=None)
    span: Any = field(role="ignore")

    def __init__(self, blocks: Sequence[BindingBlock], body: Expr, span: Span | None = None) -> None:
        self.blocks = tuple(blocks)
        self.struct_info_ = None
        self.body = body
        self.span = span


def is_leaf(expr: Expr) -> bool:
    """Whether A-normal form lets the expression stand as an argument: no computation in it (tuples count)."""
    return not isinstance(expr, (Call, If, SeqExpr, Function, TupleGetItem))


def _as_seq(body: Expr) -> SeqExpr:
    if isinstance(body, SeqExpr):
        return body
    seq = SeqExpr((), body)
    if is_leaf(body):
        seq.struct_info_ = body.struct_info_
    return seq


def _without_inner_vars(result: StructInfo, params: Sequence[StructInfo]) -> StructInfo:
    """A function's result without the symbolic variables that only its body (by a match_cast) defines."""
    from .analysis.struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info

    used = tir_vars_in_struct_info(result)
    if not used:
        return result
    known = set(definable_tir_vars_in_struct_info(TupleStructInfo(params)))
    if known.issuperset(used):
        return result
    return result.erase(lambda var: var if var in known else None, lambda var: var)


class Function(BaseFunc, ExprWithOp):
    """A graph function. A body that gives a finer struct info than ``ret_struct_info`` refines it."""

    params: tuple[Var, ...] = field(role="bind", default=None)
    body: Any = field(default=None)
    ret_struct_info: Any = field(default=None)
    is_pure: bool = field(role="attr", default=None)
    attrs: Any = field(default=None)
    span: Any = field(role="ignore")

    def __init__(
        self,
        params: Sequence[Var],
        body: Expr | None,
        ret_struct_info: StructInfoLike | None = None,
        is_pure: bool | None = True,
        attrs: Mapping[str, Any] | DictAttrs | None = None,
        span: Span | None = None,
    ) -> None:
        self.params = tuple(params)
        infos = []
        for param in self.params:
            if param.struct_info_ is None:
                raise RelaxishError(f"parameter '{param.name_hint}' of a function needs a struct info")
            infos.append(param.struct_info_)
        body_info = body.struct_info_ if body is not None else None
        if ret_struct_info is not None:
            ret_struct_info = as_struct_info(ret_struct_info)
        if body_info is None and ret_struct_info is None:
            raise RelaxishError("a Function needs ret_struct_info as long as its body is not normalized")
        if ret_struct_info is None or (body_info is not None and ret_struct_info.is_base_of(body_info)):
            assert body_info is not None
            ret_struct_info = _without_inner_vars(body_info, infos)
        self.body = _as_seq(body) if body is not None else None
        self.ret_struct_info = ret_struct_info
        self.is_pure = True if is_pure is None else bool(is_pure)
        self.attrs = attrs if isinstance(attrs, DictAttrs) else DictAttrs(dict(attrs or {}))
        self.struct_info_ = FuncStructInfo(infos, ret_struct_info, self.is_pure)
        self.span = span

    @staticmethod
    def create_empty(
        params: Sequence[Var],
        ret_struct_info: StructInfoLike | None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | DictAttrs | None = None,
        span: Span | None = None,
    ) -> Function:
        """A function without body, for when its struct info is needed before the body exists."""
        return Function(params, None, ret_struct_info, is_pure, attrs, span)

    def __call__(self, *args: Any, attrs: Attrs | Mapping[str, Any] | None = None) -> Call:
        return Call(self, args, attrs)

    def bind_symbolic_vars(self, binding_map: Mapping[Any, Any]) -> Function:
        """Replace symbolic dimensions (by name or variable) with expressions."""
        made: Function = load("relax.binding_tools").bind_symbolic_vars(self, binding_map)
        return made

    def bind_params(self, binding_map: Mapping[Any, Any]) -> Function:
        """Replace parameters (by name or variable) with constants or other expressions."""
        made: Function = load("relax.binding_tools").bind_params(self, binding_map)
        return made

    def inline_functions(self, function_map: Mapping[Any, Function]) -> Function:
        """Inline calls to the given module functions (by name or GlobalVar)."""
        made: Function = load("relax.inline_functions")(self, function_map)
        return made


class ExternFunc(BaseFunc, ExprWithOp):
    """A packed function, by its global name."""

    global_symbol: str = field(role="attr", default=None)
    attrs: Any = cached(default=None)
    span: Any = field(role="ignore")

    def __init__(self, global_symbol: str, struct_info: StructInfoLike | None = None, span: Span | None = None) -> None:
        self.global_symbol = str(global_symbol)
        self.attrs = DictAttrs({})
        if struct_info is not None:
            struct_info = as_struct_info(struct_info)
            if not isinstance(struct_info, FuncStructInfo):
                raise CheckTypeError("the struct info of an ExternFunc must be a FuncStructInfo")
        self.struct_info_ = struct_info or FuncStructInfo.opaque_func(derive_func="relax.infer_by_sinfo_args")
        self.span = span

    @classmethod
    def _make(cls, **fields: Any) -> ExternFunc:
        return cls(fields["global_symbol"], None, fields.get("span"))

    def __call__(self, *args: Any, attrs: Attrs | Mapping[str, Any] | None = None) -> Call:
        return Call(self, args, attrs)


def _update_struct_info(expr: Expr, struct_info: StructInfoLike) -> None:
    """Give an expression its struct info. Raises InternalError if it has one already."""
    if expr.struct_info_ is not None:
        raise InternalError(
            f"expression {expr} has struct info {expr.struct_info_}, which cannot be overwritten with {struct_info}"
        )
    object.__setattr__(expr, "struct_info_", as_struct_info(struct_info))


def _convert(value: ArgLike) -> Expr:
    return load("relax.convert_to_expr")(value)


def extern(name: str, struct_info: StructInfoLike | None = None, span: Span | None = None) -> ExternFunc:
    """The packed function ``name``."""
    return ExternFunc(name, struct_info, span)


def const(value: Any, dtype: str | np.dtype[Any] | type | None = None) -> Constant:
    """A constant tensor. Python ints become int32 and floats float32 unless ``dtype`` says otherwise."""
    from ..ir.dtype import numpy_dtype

    wanted = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
    match value:
        case bool() | int() | float() | list() | tuple():
            array = np.array(value)
            if wanted is None and array.dtype == np.int64:
                wanted = np.dtype("int32")
            elif wanted is None and array.dtype == np.float64:
                wanted = np.dtype("float32")
            value = array.astype(wanted) if wanted is not None else array
        case np.ndarray() | np.generic():
            array = np.asarray(value)
            value = array.astype(wanted) if wanted is not None else array
        case _ if not hasattr(value, "numpy"):
            raise ValueError("value has to be scalar or NDArray")
    return Constant(value)


def make_shape(shape: Sequence[Any]) -> ShapeExpr:
    """A sequence of dimensions as a ShapeExpr."""
    if not isinstance(shape, (list, tuple)):
        raise ValueError("Wrong type")
    return ShapeExpr(shape)


def get_shape_of(expr: Expr) -> Expr:
    """The shape of a tensor expression: what its struct info says, else a ``shape_of`` call."""
    info = expr.struct_info_
    known = info.shape if isinstance(info, TensorStructInfo) else None
    return _op("shape_of", expr) if known is None else known


def te_tensor(value: Expr, tir_var_map: Mapping[Any, Any], name: str = "rxplaceholder") -> Tensor:
    """A TE placeholder with the shape and dtype of a tensor expression."""
    return load("relax.te_tensor")(value, tir_var_map, name)


from .struct_info import (  # noqa: E402  (the two modules need each other; this one goes first)
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    as_struct_info,
    TupleStructInfo,
)


def _call_global(callee: GlobalVar | Op, args: Sequence[Any]) -> Call | PrimCall:
    """``gv(x)``: graph arguments make a graph call, scalar ones a tir call."""
    if all(isinstance(a, (Expr, list, tuple)) for a in args):
        return Call(callee, [a if isinstance(a, Expr) else _convert(a) for a in args])
    if all(isinstance(a, (PrimExpr, int, float)) for a in args):
        ret = getattr(callee.struct_info_, "ret", None)
        return PrimCall(ret.dtype if isinstance(ret, PrimStructInfo) else "void", callee, args)
    raise RuntimeError(f"Do not know how to handle GlobalVar.__call__ for types {[type(a) for a in args]}")


type(CALL_GLOBAL).hook = staticmethod(_call_global)
STUB_MAKER.append(lambda name, info: ExternFunc(name, info if isinstance(info, FuncStructInfo) else None))
