"""EquateSizes: sizes that operators need equal, and that nothing proves to be, are checked when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..ir.expr import PrimExpr
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..ir.source import Reason
from ..ir.declared_pass import ModuleRewrite
from ..op.inference import sizes_taken_equal
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, DataflowVar, Expr, Function, MatchCast, ShapeExpr, Tuple, TupleGetItem, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import Legalize, op_record_of, OpRecord
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..tir import Var as TirVar
from .base import map_relax_functions
from .legalize_ops import LegalizeOps

__all__ = ["EquateSizes", "LegalizeOpenSizes", "cast_because"]

_Pair = tuple[PrimExpr, PrimExpr]
#: More rounds than any operator has pairs of dimensions that hide one another.
_ROUNDS = 32


def cast_because(builder: BlockBuilder, value: Expr, info: StructInfo, why: str) -> Var:
    """Emit a match_cast whose error at run time ends with ``why``."""
    kind: type[Var] = DataflowVar if builder.current_block_is_dataflow() else Var
    var = kind(builder.get_unique_name("lv"), info)
    builder.emit_normalized(MatchCast(var, builder.normalize(value), info, Reason(why)))
    return var


class _Equate(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        record = op_record_of(call.op) if isinstance(call, Call) else None
        if record is None or record.legalize is None:
            return call
        if not any(map(_open, call.args)):
            return call
        return self._equated(self._named(self.builder_.normalize(call)), record)

    def _equated(self, call: Call, record: OpRecord) -> Call:
        """The call with arguments whose types say what it needs equal, after checks that it is."""
        done: list[_Pair] = []
        for _ in range(_ROUNDS):
            with sizes_taken_equal() as found:
                record.infer(call, self.builder_)
            new = [(a, b) for a, b in found if not any(prove_equal(a, x) and prove_equal(b, y) for x, y in done)]
            if not new:
                break
            for pair in new:
                call = self._with_equal(call, *pair)
            done += new
        return call

    def _named(self, call: Call) -> Call:
        """The call of tensors of known rank whose dimensions have names at least."""
        names: dict[Expr, Expr] = {}

        def named(x: Expr) -> Expr:
            info = x.struct_info
            if not isinstance(info, TensorStructInfo) or info.dims() is not None or info.ndim < 0:
                return x
            if x not in names:
                dims = [TirVar("n", "int64") for _ in range(info.ndim)]
                names[x] = self.builder_.match_cast(x, TensorStructInfo(dims, info.dtype, info.vdevice))
            return names[x]

        return self._with_arguments(call, [self._each(self._fields(arg), named) for arg in call.args])

    def _fields(self, arg: Expr) -> Expr:
        """A tuple by its fields, each bound."""
        info = arg.struct_info
        if isinstance(arg, Tuple) or not isinstance(info, TupleStructInfo) or not _open(arg):
            return arg
        return Tuple([self.builder_.emit(TupleGetItem(arg, k)) for k in range(len(info.fields))])

    def _with_equal(self, call: Call, one: PrimExpr, other: PrimExpr) -> Call:
        """Check that two sizes are equal; arguments that have ``other``, or the one that is no number, get the first."""
        if const_int(other) is not None:
            one, other = other, one
        tensors = list(_tensors(call.args))
        if const_int(one) is None and not any(_has(x, other) for x in tensors):
            one, other = other, one
        whose = _names([x for size in (one, other) for x in tensors if _has(x, size)] or tensors)
        why = f"because {op_name_of(call)} needs sizes of {whose} that are equal: {one} and {other}"
        if not any(_has(x, other) for x in tensors):
            cast_because(self.builder_, ShapeExpr([other]), ShapeStructInfo([one]), why)
            return call
        casts: dict[Expr, Expr] = {}

        def cast(x: Expr) -> Expr:
            if x not in casts and _has(x, other):
                info = x.struct_info
                dims = [one if prove_equal(d, other) else d for d in info.dims()]
                casts[x] = cast_because(self.builder_, x, TensorStructInfo(dims, info.dtype, info.vdevice), why)
            return casts.get(x, x)

        return self._with_arguments(call, [self._each(arg, cast) for arg in call.args])

    def _each(self, arg: Expr, change: Callable[[Expr], Expr]) -> Expr:
        """An argument with tensors, or fields of tuples, that ``change`` gives."""
        if isinstance(arg, Tuple):
            fields = [change(x) for x in arg.fields]
            return arg if all(a is b for a, b in zip(fields, arg.fields)) else Tuple(fields, arg.span)
        return change(arg)

    def _with_arguments(self, call: Call, args: Sequence[Expr]) -> Call:
        if all(a is b for a, b in zip(args, call.args)):
            return call
        return self.builder_.normalize(Call(call.op, tuple(args), call.attrs, call.sinfo_args, call.span))


def _tensors(args: Sequence[Expr]) -> Iterator[Expr]:
    """Arguments, and the fields of those that are tuples, that are tensors."""
    for arg in args:
        if isinstance(arg, Tuple):
            yield from _tensors(arg.fields)
        elif isinstance(arg.struct_info, TensorStructInfo):
            yield arg


def _has(x: Expr, size: PrimExpr) -> bool:
    info = x.struct_info_
    return isinstance(info, TensorStructInfo) and any(prove_equal(d, size) for d in info.dims() or ())


def _names(values: Sequence[Expr]) -> str:
    names = [repr(x.name_hint) if isinstance(x, Var) else "a constant" for x in dict.fromkeys(values)]
    return " and ".join(names)


def _open(arg: Expr) -> bool:
    """Whether a size is no number."""
    return any(map(_open, arg.fields)) if isinstance(arg, Tuple) else _has_open_size(arg.struct_info_)


def _has_open_size(info: StructInfo | None) -> bool:
    match info:
        case TensorStructInfo():
            dims = info.dims()
            return info.ndim != 0 if dims is None else any(const_int(d) is None for d in dims)
        case ShapeStructInfo():
            return info.values is None or any(const_int(d) is None for d in info.values)
        case TupleStructInfo():
            return any(map(_has_open_size, info.fields))
    return False


class EquateSizes(ModuleRewrite):
    """Check at run time what operators take for granted of symbolic sizes.

    ::

        z = R.add(x, y)   # (a, 4), (b, 4)    ->      y1 = R.match_cast(y, R.Tensor((a, 4), "float32"))
                                                      z = R.add(x, y1)

    Dimensions of which it cannot be proved that they are what an operator needs (those of operands that meet, the
    reduction of a product, the number of elements of a reshape) are taken to be, and the run says where they are not.
    Tensors of unknown dimensions get names for them.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        def equated(_: object, func: Function) -> Function:
            made: Function = _Equate(mod).visit_expr(func)
            return made

        return map_relax_functions(mod, equated)


class LegalizeOpenSizes(ModuleRewrite):
    """Legalise what LegalizeOps left because kernels write the sizes of their results in another form.

    ``kernels`` are operators that go by the name of a function of their own, as for LegalizeOps.
    """

    kernels: Mapping[str, Legalize] | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        for _ in range(_ROUNDS):
            equated = EquateSizes()(mod)
            if equated is mod:
                break
            mod = LegalizeOps(self.kernels)(equated)
        return mod
