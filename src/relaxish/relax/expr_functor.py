"""Visitors and mutators of graph programs, with one method a node kind.

Subclass :class:`PyExprVisitor` or :class:`PyExprMutator` and override ``visit_call_``, ``visit_var_binding_`` and so
on; call ``super()`` to go on below.  A mutator re-emits bindings through its ``builder_``, so that struct info follows
every change; a binding that did not change is kept as it is, which makes untouched parts cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING, TypeVar, cast

from ..ir.functor import Rewritable

from ..ir.expr import GlobalVar, PrimExpr
from ..ir.module import IRModule, functions_of
from ..ir.op import Op
from ..ir.source import Span
from ..tir import PrimFunc
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    ExternFunc,
    Function,
    Id,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from .struct_info import StructInfo

if TYPE_CHECKING:
    from .expr import Expr

__all__ = ["ExprFunctor", "PyExprMutator", "PyExprVisitor", "mutator", "rewrite_functions", "visitor"]

_E = TypeVar("_E", bound="Expr")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)

_METHODS: dict[type, str] = {
    Constant: "visit_constant_",
    Tuple: "visit_tuple_",
    Var: "visit_var_",
    DataflowVar: "visit_dataflow_var_",
    ShapeExpr: "visit_shape_expr_",
    ExternFunc: "visit_extern_func_",
    GlobalVar: "visit_global_var_",
    Function: "visit_function_",
    Call: "visit_call_",
    SeqExpr: "visit_seq_expr_",
    If: "visit_if_",
    Op: "visit_op_",
    TupleGetItem: "visit_tuple_getitem_",
    PrimValue: "visit_prim_value_",
    StringImm: "visit_string_imm_",
    DataTypeImm: "visit_data_type_imm_",
    PrimFunc: "visit_prim_func_",
}


class ExprFunctor:
    """Dispatch of ``visit_expr`` on the kind of expression."""

    #: Whether dataflow variables and blocks go to the methods of ordinary ones unless they have their own. Classes
    #: marked with :func:`visitor` or :func:`mutator` keep the kinds apart.
    _dataflow_is_ordinary = True

    def visit_expr(self, expr: Any) -> Any:
        """Visit any expression."""
        name = _METHODS.get(type(expr))
        if name is None:
            name = next((m for k, m in _METHODS.items() if isinstance(expr, k)), None)
            if name is None:
                raise TypeError(f"no visitor for {type(expr).__name__}")
        return getattr(self, name)(expr)

    def visit_binding(self, binding: Binding) -> None:
        """Visit any binding."""
        match binding:
            case VarBinding():
                self.visit_var_binding_(binding)
            case MatchCast():
                self.visit_match_cast_(binding)
            case _:
                raise TypeError(f"no visitor for binding {type(binding).__name__}")

    def visit_binding_block(self, block: BindingBlock) -> Any:
        """Visit any block."""
        if isinstance(block, DataflowBlock):
            return self.visit_dataflow_block_(block)
        return self.visit_binding_block_(block)

    def visit_var_def(self, var: Var) -> Any:
        """Visit the definition of a variable."""
        if isinstance(var, DataflowVar):
            return self.visit_dataflow_var_def_(var)
        return self.visit_var_def_(var)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """``var = value``."""
        raise NotImplementedError

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """A match_cast."""
        raise NotImplementedError

    def visit_binding_block_(self, block: BindingBlock) -> Any:
        """An ordinary block."""
        raise NotImplementedError

    def visit_dataflow_block_(self, block: DataflowBlock) -> Any:
        """A dataflow block."""
        return self.visit_binding_block_(block)

    def visit_var_def_(self, var: Var) -> Any:
        """The definition of an ordinary variable."""
        return var

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Any:
        """The definition of a dataflow variable."""
        return self.visit_var_def_(var)

    def visit_span(self, span: Span | None) -> Span | None:
        """A source position."""
        return span


class PyExprVisitor(ExprFunctor):
    """Walks everything; override what you care about."""

    def visit_constant_(self, op: Constant) -> None:
        """A constant."""
        self.visit_struct_info(op)

    def visit_tuple_(self, op: Tuple) -> None:
        """A tuple: visits its fields."""
        for item in op.fields:
            self.visit_expr(item)
        self.visit_struct_info(op)

    def visit_var_(self, op: Var) -> None:
        """A use of a variable."""
        self.visit_struct_info(op)

    def visit_dataflow_var_(self, op: DataflowVar) -> None:
        """A use of a dataflow variable."""
        if self._dataflow_is_ordinary:
            self.visit_var_(op)
        else:
            PyExprVisitor.visit_var_(self, op)

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        """A shape."""
        for value in op.values:
            self.visit_prim_expr(value)

    def visit_extern_func_(self, op: ExternFunc) -> None:
        """A packed function."""

    def visit_global_var_(self, op: GlobalVar) -> None:
        """A module function's name."""

    def visit_prim_func_(self, op: PrimFunc) -> None:
        """A loop-level function."""

    def visit_function_(self, op: Function) -> None:
        """A function: its parameters, then its body."""
        for param in op.params:
            self.visit_var_def(param)
        if op.body is not None:
            self.visit_expr(op.body)

    def visit_call_(self, op: Call) -> None:
        """A call: operator, arguments, struct-info arguments."""
        self.visit_expr(op.op)
        for arg in op.args:
            self.visit_expr(arg)
        for info in op.sinfo_args:
            self.visit_struct_info_node(info)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        """A sequence: blocks, then the result."""
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_if_(self, op: If) -> None:
        """A conditional."""
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_op_(self, op: Op) -> None:
        """An operator."""

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        """A projection."""
        self.visit_expr(op.tuple_value)

    def visit_prim_value_(self, op: PrimValue) -> None:
        """A scalar."""
        self.visit_prim_expr(op.value)

    def visit_string_imm_(self, op: StringImm) -> None:
        """A string."""

    def visit_data_type_imm_(self, op: DataTypeImm) -> None:
        """A dtype."""

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Visits the value, then the definition."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Visits the value, then the definition."""
        self.visit_expr(binding.value)
        self.visit_struct_info_node(binding.struct_info)
        self.visit_var_def(binding.var)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        """Visits each binding."""
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        """Visits each binding."""
        if self._dataflow_is_ordinary:
            self.visit_binding_block_(block)
        else:
            PyExprVisitor.visit_binding_block_(self, block)

    def visit_var_def_(self, var: Var) -> None:
        """The definition of a variable."""
        self.visit_struct_info(var)

    def visit_prim_expr(self, value: PrimExpr) -> None:
        """A scalar expression inside a shape or struct info; nothing by default."""

    def visit_struct_info(self, expr: Expr) -> None:
        """The struct info of an expression; nothing by default."""

    def visit_struct_info_node(self, info: StructInfo) -> None:
        """An explicit struct info of a call or match_cast; nothing by default."""


class PyExprMutator(ExprFunctor):
    """Rebuilds a program; ``builder_`` collects the bindings of the block being rebuilt."""

    def __init__(self, mod: IRModule | None = None) -> None:
        from .block_builder import BlockBuilder

        self.builder_ = BlockBuilder(mod)
        self.var_remap_: dict[Any, Var] = {}
        self.vid_remap_: dict[Id, Var] = {}

    def visit_expr(self, expr: Rewritable[_R]) -> _R:
        """Visit and normalise."""
        return self.builder_.normalize(ExprFunctor.visit_expr(self, expr))

    def visit_expr_post_order(self, expr: _E) -> _E:
        """Visit the children of ``expr`` with the default rules, then normalise: what ``super().visit_x_`` does."""
        name = _METHODS[type(expr)]
        return self.builder_.normalize(getattr(PyExprMutator, name)(self, expr))

    def visit_prim_expr(self, value: PrimExpr) -> PrimExpr:
        """A scalar expression of a shape or struct info; unchanged by default."""
        return value

    def visit_struct_info_node(self, info: StructInfo) -> StructInfo:
        """A struct info; by default its scalar expressions and shape variables are visited."""
        return info.map(self.visit_prim_expr, self._shape_var)

    def _shape_var(self, var: Var) -> Expr:
        return self.var_remap_.get(var, var)

    def visit_constant_(self, op: Constant) -> Expr:
        """A constant."""
        return op

    def visit_tuple_(self, op: Tuple) -> Expr:
        """A tuple."""
        fields = [self.visit_expr(f) for f in op.fields]
        return op if _same(fields, op.fields) else Tuple(fields, op.span)

    def visit_var_(self, op: Var) -> Expr:
        """A use of a variable: what it was renamed to."""
        if self.vid_remap_ and op.vid in self.vid_remap_:
            return self.vid_remap_[op.vid]
        return self.var_remap_.get(op, op)

    def visit_dataflow_var_(self, op: DataflowVar) -> Expr:
        """A use of a dataflow variable."""
        return self.visit_var_(op) if self._dataflow_is_ordinary else PyExprMutator.visit_var_(self, op)

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        """A shape."""
        values = [self.visit_prim_expr(v) for v in op.values]
        return op if _same(values, op.values) else ShapeExpr(values, op.span)

    def visit_extern_func_(self, op: ExternFunc) -> Expr:
        """A packed function."""
        return op

    def visit_global_var_(self, op: GlobalVar) -> Expr:
        """A module function's name."""
        return op

    def visit_prim_func_(self, op: PrimFunc) -> PrimFunc:
        """A loop-level function."""
        return op

    def visit_function_(self, op: Function) -> Any:
        """A function: parameters, then the body in a scope of its own."""
        params = [self.visit_var_def(p) for p in op.params]
        body = self.visit_with_new_scope(op.body, params)
        if _same(params, op.params) and body is op.body:
            return op
        ret = self.visit_struct_info_node(op.ret_struct_info)
        known = body.struct_info_ if body is not None else None
        if known is not None and not known.is_base_of(ret):
            # The annotation stays only where the body merely lost precision; otherwise the body decides.
            ret = known
        return Function(params, body, ret, op.is_pure, op.attrs, op.span)

    def visit_call_(self, op: Call) -> Any:
        """A call."""
        callee = self.visit_expr(op.op)
        args = [self.visit_expr(a) for a in op.args]
        infos = [self.visit_struct_info_node(s) for s in op.sinfo_args] if op.sinfo_args else op.sinfo_args
        if callee is op.op and _same(args, op.args) and _same(infos, op.sinfo_args):
            return op
        return Call(callee, args, op.attrs, infos, op.span)

    def visit_seq_expr_(self, op: SeqExpr) -> SeqExpr:
        """A sequence."""
        blocks = []
        changed = False
        for block in op.blocks:
            new = self.visit_binding_block(block)
            if new.bindings:
                blocks.append(new)
            changed = changed or new is not block
        self.builder_.begin_binding_block()
        body = self.visit_expr(op.body)
        prologue = self.builder_.end_block()
        if prologue.bindings:
            blocks.append(prologue)
            changed = True
        if not changed and body is op.body:
            return op
        return SeqExpr(blocks, body, op.span)

    def visit_if_(self, op: If) -> Expr:
        """A conditional; each branch has its own scope."""
        cond = self.visit_expr(op.cond)
        true_branch = self.visit_with_inner_scope(op.true_branch)
        false_branch = self.visit_with_inner_scope(op.false_branch)
        if cond is op.cond and true_branch is op.true_branch and false_branch is op.false_branch:
            return op
        return If(cond, true_branch, false_branch, op.span)

    def visit_op_(self, op: Op) -> Expr:
        """An operator."""
        return op

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        """A projection."""
        value = self.visit_expr(op.tuple_value)
        return op if value is op.tuple_value else TupleGetItem(value, op.index, op.span)

    def visit_prim_value_(self, op: PrimValue) -> Expr:
        """A scalar."""
        value = self.visit_prim_expr(op.value)
        return op if value is op.value else PrimValue(value, op.span)

    def visit_string_imm_(self, op: StringImm) -> Expr:
        """A string."""
        return op

    def visit_data_type_imm_(self, op: DataTypeImm) -> Expr:
        """A dtype."""
        return op

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Visits the value and emits the binding again."""
        self.reemit_binding(binding, self.visit_expr(binding.value))

    def reemit_binding(self, binding: VarBinding, new_value: Expr) -> None:
        """Emit ``binding`` with another value; later uses of its variable follow."""
        new_var = self.visit_var_def(binding.var)
        if new_var is binding.var and new_value is binding.value:
            self.builder_.emit_normalized(binding)
            return
        info = new_value.struct_info_
        if info is not None:
            new_var = self.with_struct_info(new_var, info)
        self._remap(binding.var, new_var)
        self.builder_.emit_normalized(VarBinding(new_var, new_value, binding.span))

    def _remap(self, old: Var, new: Var) -> None:
        """Later uses of ``old`` are ``new``, also where :meth:`set_var_remap` said otherwise."""
        if new is not old:
            self.var_remap_[old] = new
        if old.vid in self.vid_remap_:
            self.vid_remap_[old.vid] = new

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Visits the value and emits the binding again."""
        value = self.visit_expr(binding.value)
        info = self.visit_struct_info_node(binding.struct_info)
        var = self.visit_var_def(binding.var)
        if value is binding.value and info is binding.struct_info and var is binding.var:
            self.builder_.emit_normalized(binding)
            return
        var = self.with_struct_info(var, info)
        self._remap(binding.var, var)
        self.builder_.emit_normalized(MatchCast(var, value, info, binding.span))

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        """An ordinary block."""
        return self._visit_block(block, dataflow=False)

    def visit_dataflow_block_(self, block: DataflowBlock) -> Any:
        """A dataflow block."""
        return self._visit_block(block, dataflow=True)

    def _visit_block(self, block: BindingBlock, *, dataflow: bool) -> BindingBlock:
        if dataflow:
            self.builder_.begin_dataflow_block()
        else:
            self.builder_.begin_binding_block()
        for binding in block.bindings:
            self.visit_binding(binding)
        new = self.builder_.end_block()
        return block if _same(new.bindings, block.bindings) else new

    def visit_var_def_(self, var: Var) -> Var:
        """The definition of a variable; a changed struct info makes a new variable."""
        if var in self.var_remap_:
            return self.var_remap_[var]
        if self.vid_remap_ and var.vid in self.vid_remap_:
            return self.vid_remap_[var.vid]
        info = var.struct_info_
        if info is None:
            return var
        new = self.visit_struct_info_node(info)
        if new is info:
            return var
        made = (DataflowVar if var.is_dataflow else Var)(var.vid, new, var.span)
        self.var_remap_[var] = made
        return made

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Var:
        """The definition of a dataflow variable, which stays one whatever :meth:`visit_var_def_` makes of it."""
        made = self.visit_var_def_(var)
        return made if isinstance(made, DataflowVar) else DataflowVar(made.vid, made.struct_info_, made.span)

    def visit_with_new_scope(self, expr: Expr, params: Sequence[Var] | None = None) -> SeqExpr:
        """Visit a function body in a fresh scope in which ``params`` define their symbolic variables."""
        self.builder_.begin_scope(tuple(params) if params is not None else ())
        result = self._seq(expr)
        self.builder_.end_scope()
        return result

    def visit_with_inner_scope(self, expr: Expr) -> SeqExpr:
        """Visit a branch in a scope that inherits the surrounding definitions."""
        self.builder_.begin_inner_scope()
        result = self._seq(expr)
        self.builder_.end_scope()
        return result

    def _seq(self, expr: Expr) -> SeqExpr:
        if isinstance(expr, SeqExpr):
            return self.visit_expr(expr)
        self.builder_.begin_binding_block()
        body = self.visit_expr(expr)
        block = self.builder_.end_block()
        return self.builder_.normalize(SeqExpr((block,) if block.bindings else (), body))

    def lookup_binding(self, var: Expr) -> Expr | None:
        """The value bound to a variable in the program being built; None where there is none."""
        return self.builder_.lookup_binding(var)

    def with_struct_info(self, var: Var, struct_info: StructInfo | None) -> Var:
        """The variable itself if it has that struct info, else a fresh one of the same kind that has."""
        if struct_info is None or var.struct_info_ is struct_info:
            return var
        if var.struct_info_ is not None:
            from ..ir.structural import structural_equal

            if structural_equal(var.struct_info_, struct_info):
                return var
        return (DataflowVar if var.is_dataflow else Var)(var.vid, struct_info, var.span)

    def set_var_remap(self, vid: Id, var: Var) -> None:
        """Uses of the variable with identity ``vid`` become ``var``."""
        self.vid_remap_[vid] = var

    def get_var_remap(self, vid: Id) -> Var:
        """New variable for the one with identity ``vid``. Raises KeyError if it was not renamed."""
        if vid in self.vid_remap_:
            return self.vid_remap_[vid]
        for key, value in self.var_remap_.items():
            if key.vid is vid:
                return value
        raise KeyError(vid.name_hint)


def _same(new: Sequence[Any], old: Sequence[Any]) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old))


def _decorated(cls: _C, **members: object) -> _C:
    """A class derived from the user's, which is its ``_cls``. Raises TypeError if that derives from a decorated one."""
    for base in cls.__mro__:
        if "_cls" in vars(base):
            raise TypeError(
                f"Inheritance from a decorated object `{base.__name__}` is not allowed. "
                f"Please inherit from `{base.__name__}._cls`."
            )
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    made: Any = type(cls.__name__, (cls,), {**named, "_cls": cls, "_dataflow_is_ordinary": False, **members})
    return cast(_C, made)


def visitor(cls: _C) -> _C:
    """Mark a visitor class: its methods for ordinary variables and blocks do not get those of dataflow blocks.

    The class as it was written is the attribute ``_cls`` of the marked one; derived classes inherit from that.

    ::

        @relax.expr_functor.visitor
        class CountCalls(PyExprVisitor): ...
    """
    return _decorated(cls)


def mutator(cls: _C) -> _C:
    """Mark a mutator class: its methods for ordinary variables do not get those of dataflow blocks.

    A class with its own ``__init__`` that forgets ``super().__init__()`` still gets a builder. The class as it was
    written is the attribute ``_cls``.
    """
    original: Callable[..., None] | None = vars(cls).get("__init__")
    if original is None:
        return _decorated(cls)

    def __init__(self: PyExprMutator, *args: object, **kwargs: object) -> None:  # noqa: N807
        PyExprMutator.__init__(self, args[0] if args and isinstance(args[0], IRModule) else None)
        original(self, *args, **kwargs)

    return _decorated(cls, __init__=__init__)


def rewrite_functions(rewriter: PyExprMutator, mod: IRModule) -> IRModule:
    """Send the graph functions of a module through a mutator, whose builder takes those that changed.

    Returns the builder's module.
    """
    for var, func in functions_of(mod, Function):
        new = rewriter.visit_expr(func)
        if new is not func:
            rewriter.builder_.update_func(var, new)
    return rewriter.builder_.get()
