"""VMShapeLower: symbolic dimensions live in a heap of integers at run time, and struct infos become checks."""

from __future__ import annotations
from dataclasses import field

from typing import Any, NamedTuple

from ..ir.expr import PrimExpr
from ..ir.module import IRModule, functions_of
from ..ir.prim import IntImm, const_ints
from ..ir.prim import Var as TirVar
from ..ir.source import Reason, Span
from ..ir.structural import same_expression, structural_hash
from ..relax.call_forms import call_builtin_with_ctx
from ..relax.expr import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
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
from ..relax.expr_functor import PyExprMutator, PyExprVisitor
from ..relax.scalars import prim_vars
from ..relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..support.errors import InternalError
from ..tir import BufferLoad, BufferStore, PrimFunc, stmt_seq, decl_buffer
from .bundle_model_params import num_input_of
from ..ir.declared_pass import ModuleRewrite

__all__ = ["VMShapeLower"]

_VOID = TupleStructInfo(())
_OBJECT = ObjectStructInfo()
_ASSERT_IMM, _STORE, _NO_OP, _ASSERT_LOAD = range(4)
_USE_IMM, _LOAD = range(2)


class _Slot:
    """One cell of the heap."""

    __slots__ = ("computed", "expr", "index", "missing", "users")

    def __init__(self, expr: PrimExpr, index: int) -> None:
        self.expr = expr
        self.index = index
        self.computed = False
        #: Cells computed from this one, and how many cells this one still waits for.
        self.users: list[_Slot] = []
        self.missing = 0


class _Slots:
    """Cells by expression; equal expressions share one."""

    def __init__(self) -> None:
        self.order: list[_Slot] = []
        self.by_object: dict[Any, _Slot] = {}
        self.by_hash: dict[int, list[_Slot]] = {}

    def add(self, expr: PrimExpr) -> _Slot:
        known = self.by_object.get(expr)
        if known is not None:
            return known
        bucket: list[_Slot] = [] if isinstance(expr, TirVar) else self.by_hash.setdefault(structural_hash(expr), [])
        slot = next((s for s in bucket if same_expression(s.expr, expr)), None)
        if slot is None:
            slot = _Slot(expr, len(self.order))
            self.order.append(slot)
            bucket.append(slot)
        self.by_object[expr] = slot
        return slot

    def link(self) -> None:
        """Note which cells each cell is computed from. Raises InternalError if a variable has none."""
        for slot in self.order:
            if isinstance(slot.expr, TirVar):
                continue
            for var in prim_vars(slot.expr):
                source = self.by_object.get(var)
                if source is None:
                    raise InternalError(f"Var {var} is not defined in the function but is referenced by {slot.expr}")
                source.users.append(slot)
                slot.missing += 1


class _Collector(PyExprVisitor):
    """Finds every expression that needs a cell: in shapes, scalars and the struct info of what is used."""

    def __init__(self, slots: _Slots) -> None:
        self.slots = slots

    def collect(self, func: Function) -> None:
        """Go through a function of the module."""
        for param in func.params:
            self.info(param.struct_info_)
        self.visit_expr(func.body)
        self.info(func.ret_struct_info)

    def visit_prim_expr(self, value: PrimExpr) -> None:
        if not isinstance(value, IntImm) and value.dtype == "int64":
            self.slots.add(value)

    def info(self, info: StructInfo | None) -> None:
        """The expressions of a struct info."""
        match info:
            case TensorStructInfo():
                if info.shape is not None:
                    self.visit_expr(info.shape)
            case ShapeStructInfo():
                for dim in info.values or ():
                    self.visit_prim_expr(dim)
            case PrimStructInfo():
                if info.value is not None:
                    self.visit_prim_expr(info.value)
            case TupleStructInfo():
                for item in info.fields:
                    self.info(item)

    def visit_struct_info(self, expr: Expr) -> None:
        self.info(expr.struct_info_)

    def visit_constant_(self, op: Constant) -> None:
        """Nothing symbolic."""

    def visit_var_def_(self, var: Var) -> None:
        """A definition needs no cell; uses do."""

    def visit_function_(self, op: Function) -> None:
        """A local function stands for itself."""

    def visit_call_(self, op: Call) -> None:
        self.visit_expr(op.op)
        for info in op.sinfo_args:
            self.info(info)
        for arg in op.args:
            self.visit_expr(arg)
        self.info(op.struct_info_)

    def visit_if_(self, op: If) -> None:
        super().visit_if_(op)
        self.info(op.struct_info_)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        super().visit_tuple_getitem_(op)
        self.info(op.struct_info_)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        super().visit_seq_expr_(op)
        self.info(op.struct_info_)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_expr(binding.value)  # a shape may be written out there, and nowhere else
        self.info(binding.struct_info)


class _Check(NamedTuple):
    """How a value is checked: even if it is known to fit, only where its shape is symbolic, with which text."""

    always: bool
    dynamic_only: bool
    context: str


class _Todo(NamedTuple):
    value: Any
    pattern: tuple[PrimExpr, ...]
    context: str


class _ShapeLowerer(PyExprMutator):
    def __init__(self, mod: IRModule, emit_context: bool) -> None:
        super().__init__(mod)
        self.emit_context = emit_context
        self.slots = _Slots()
        self.heap: Any = None
        self.ready: list[_Slot] = []
        self.name = ""

    def rewrite(self, name: str, func: Function) -> Function:
        """One function with its checks and computations."""
        self.name = name
        self.slots, self.ready = _Slots(), []
        _Collector(self.slots).collect(func)
        self.slots.link()
        builder = self.builder_
        builder.begin_scope(func.params)
        builder.begin_binding_block()
        builder.emit_normalized(self._heap_binding())
        todos: list[_Todo] = []
        inputs = num_input_of(func)
        for index, param in enumerate(func.params):
            info = param.struct_info
            context = f"ErrorContext(fn={name}, loc=param[{index}], param={param.name_hint}, annotation="
            # Weights follow the inputs: their static parts were checked when they were made.
            dynamic_only = inputs is not None and index >= inputs
            self._check(info, param, _Check(True, dynamic_only, self._context(context, info)), todos)
        self._settle(todos)
        blocks = [builder.end_block()]
        body = self.visit_expr(func.body)
        blocks.extend(body.blocks)
        builder.begin_binding_block()
        todos = []
        info = func.ret_struct_info
        context = self._context(f"ErrorContext(fn={name}, loc=return, annotation=", info)
        self._check(info, body.body, _Check(False, False, context), todos)
        self._match(todos, True)
        blocks.append(builder.end_block())
        new_body = builder.normalize(SeqExpr([b for b in blocks if b.bindings], body.body))
        builder.end_scope()
        return Function(func.params, new_body, func.ret_struct_info, func.is_pure, func.attrs, func.span)

    def _context(self, head: str, info: StructInfo, reason: Span | None = None) -> str:
        why = f", {reason.text}" if isinstance(reason, Reason) else ""
        return f"{head}{info}{why}) " if self.emit_context else ""

    def _heap_binding(self) -> VarBinding:
        if not self.slots.order:
            from ..ir.op import Op

            value: Any = self.builder_.normalize(Call(Op.get("relax.null_value"), ()))
            self.heap = Var("shape_heap", ObjectStructInfo())
        else:
            info = TensorStructInfo(None, "int64", None, 1)
            value = call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", [PrimValue(len(self.slots.order))], sinfo_args=[info]
            )
            value = self.builder_.normalize(value)
            self.heap = Var("shape_heap", info)
        return VarBinding(self.heap, value)

    def _emit(self, func: str, args: list[Any]) -> None:
        self.builder_.emit(Call(ExternFunc(f"vm.builtin.{func}"), args, None, (_VOID,)), "_")

    def _settle(self, todos: list[_Todo]) -> None:
        """Match, compute what became computable, then match the rest against it."""
        rest = self._match(todos, False)
        self._compute()
        self._match(rest, True)

    def _check(self, info: StructInfo, value: Expr, how: _Check, todos: list[_Todo]) -> None:
        """Emit checks of the kind of ``value``; dimensions to match are added to ``todos``."""
        known = value.struct_info_
        if not how.always and known is not None and info.is_base_of(known):
            return
        text = StringImm(how.context)
        match info:
            case TensorStructInfo():
                self._check_tensor(info, value, how, todos)
            case ShapeStructInfo():
                if how.always or not ShapeStructInfo(ndim=info.ndim).is_base_of(known):
                    self._emit("check_shape_info", [value, PrimValue(info.ndim), text])
                if info.values is not None:
                    todos.append(_Todo(value, info.values, how.context))
            case PrimStructInfo():
                if how.always or not PrimStructInfo(info.dtype).is_base_of(known):
                    self._emit("check_prim_value_info", [value, DataTypeImm(info.dtype), text])
                if info.value is not None and info.dtype == "int64":
                    todos.append(_Todo(value, (info.value,), how.context))
            case TupleStructInfo():
                self._check_tuple(info, value, how, todos)
            case FuncStructInfo() if how.always or not isinstance(known, FuncStructInfo):
                self._emit("check_func_info", [value, text])

    def _check_tensor(self, info: TensorStructInfo, value: Expr, how: _Check, todos: list[_Todo]) -> None:
        dims = info.shape.values if isinstance(info.shape, ShapeExpr) else None
        if how.dynamic_only and dims is not None and const_ints(dims) is not None:
            return
        coarse = TensorStructInfo(None, info.dtype, None, info.ndim)
        if how.always or not coarse.is_base_of(value.struct_info_):
            dtype = DataTypeImm(info.dtype or "void")
            self._emit("check_tensor_info", [value, PrimValue(info.ndim), dtype, StringImm(how.context)])
        if dims is not None:
            todos.append(_Todo(value, dims, how.context))
        elif info.shape is not None:
            raise InternalError("cannot match a tensor against a shape given by a variable")

    def _check_tuple(self, info: TupleStructInfo, value: Expr, how: _Check, todos: list[_Todo]) -> None:
        known = value.struct_info_
        if isinstance(known, TupleStructInfo) and len(known.fields) != len(info.fields):
            raise TypeError(f"{how.context} during match-cast we find tuple size mismatch")
        if how.always or not isinstance(known, TupleStructInfo):
            self._emit("check_tuple_info", [value, PrimValue(len(info.fields)), StringImm(how.context)])
        for index, part in enumerate(info.fields):
            # Not bound here: a field that needs no check is not read.
            item: Any
            if isinstance(value, Tuple):
                item = value.fields[index]
            elif isinstance(known, TupleStructInfo):
                item = TupleGetItem(value, index)
            else:
                item = Call(ExternFunc("vm.builtin.tuple_getitem"), (value, PrimValue(index)), None, _OBJECT)
                item.struct_info_ = _OBJECT
            self._check(part, item, how, todos)

    def _match(self, todos: list[_Todo], need_values: bool) -> list[_Todo]:
        """Emit matches; returns the items that still hold an expression without a value."""
        rest = []
        for item in todos:
            codes = [self._match_code(e, need_values) for e in item.pattern]
            if any(code == _NO_OP for code, _ in codes):
                rest.append(item)
            if all(code == _NO_OP for code, _ in codes):
                continue
            flat = [PrimValue(v) for pair in codes for v in pair]
            text = StringImm(item.context)
            if isinstance(item.value.struct_info_, PrimStructInfo):
                self._emit("match_prim_value", [item.value, self.heap, *flat, text])
            else:
                self._emit("match_shape", [item.value, self.heap, PrimValue(len(codes)), *flat, text])
        return rest

    def _match_code(self, expr: PrimExpr, need_value: bool) -> tuple[int, int]:
        if isinstance(expr, IntImm):
            return _ASSERT_IMM, expr.value
        slot = self.slots.add(expr)
        if slot.computed:
            return _ASSERT_LOAD, slot.index
        if need_value:
            raise InternalError(f"PrimExpr {expr} is not computed")
        if isinstance(expr, TirVar):
            slot.computed = True
            self.ready.append(slot)
            return _STORE, slot.index
        return _NO_OP, 0

    def _compute(self) -> None:
        """Emit a host function that fills every cell whose variables are all known by now."""
        todo: list[_Slot] = []
        for defined in self.ready:
            for user in defined.users:
                user.missing -= 1
                if user.missing == 0:
                    todo.append(user)
        self.ready = []
        if not todo:
            return
        cells = {s.expr: s for s in self.slots.order if isinstance(s.expr, TirVar)}
        heap = decl_buffer([IntImm("int64", len(self.slots.order))], "int64", "H")
        loads: dict[Any, Any] = {v: BufferLoad(heap, [IntImm("int64", s.index)]) for v, s in cells.items()}
        stores: list[Any] = []
        for slot in todo:
            slot.computed = True
            value = _replace(slot.expr, loads)
            stores.append(BufferStore(heap, value, [IntImm("int64", slot.index)]))
        handle = TirVar("var_H", "handle")
        func = PrimFunc(
            [handle],
            stmt_seq(*stores),
            None,
            {handle: heap},
            {"tir.is_host_func": 1},
        )
        name = self.builder_.add_func(func, "shape_func")
        self.builder_.emit(Call(name, (self.heap,)), "_")

    def _make_code(self, expr: PrimExpr) -> tuple[int, int]:
        if isinstance(expr, IntImm):
            return _USE_IMM, expr.value
        slot = self.slots.add(expr)
        if not slot.computed:
            raise InternalError(f"PrimExpr {expr} in function {self.name} has not been computed")
        return _LOAD, slot.index

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        if const_ints(op.values) is not None:
            return op
        flat = [PrimValue(v) for e in op.values for v in self._make_code(e)]
        args = (self.heap, PrimValue(len(op.values)), *flat)
        return Call(ExternFunc("vm.builtin.make_shape"), args, None, (ShapeStructInfo(ndim=len(op.values)),))

    def visit_prim_value_(self, op: PrimValue) -> Expr:
        value = op.value
        if value.dtype != "int64" or isinstance(value, IntImm) or not prim_vars(value):
            return op
        args = (self.heap, *(PrimValue(v) for v in self._make_code(value)))
        return Call(ExternFunc("vm.builtin.make_prim_value"), args, None, (op.struct_info_,))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value = self.visit_expr(binding.value)
        todos: list[_Todo] = []
        context = self._context("ErrorContext(match_cast, struct_info=", binding.struct_info, binding.span)
        self._check(binding.struct_info, value, _Check(False, False, context), todos)
        self._settle(todos)
        if value is binding.value:
            self.builder_.emit_normalized(binding)
        else:
            self.builder_.emit_normalized(MatchCast(binding.var, value, binding.struct_info, binding.span))

    def visit_struct_info_node(self, info: StructInfo) -> StructInfo:
        return info

    def visit_function_(self, op: Function) -> Expr:
        raise InternalError("VMShapeLower does not work for local functions; run LambdaLift first")


def _replace(expr: PrimExpr, loads: dict[Any, Any]) -> PrimExpr:
    from ..tir.functor import substitute

    return substitute(expr, loads)


class VMShapeLower(ModuleRewrite):
    """Lower symbolic shapes to run-time calls.

    Every function first checks its arguments against their annotations (``vm.builtin.check_tensor_info``,
    ``match_shape``), storing symbolic dimensions in a heap; composite ones are computed there by a generated host
    function; shapes used as values are built by ``vm.builtin.make_shape``.  With ``emit_err_ctx`` each check
    carries text that names function, parameter and annotation.
    """

    emit_err_ctx: bool = field(default=True, kw_only=True)

    def rewrite(self, mod: IRModule) -> IRModule:
        lower = _ShapeLowerer(mod, self.emit_err_ctx)
        for var, func in functions_of(mod, Function):
            lower.builder_.update_func(var, lower.rewrite(var.name_hint, func))
        return lower.builder_.get()
