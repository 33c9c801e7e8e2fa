"""The verifier of graph programs.

What a well-formed program keeps to:

* every expression but an operator has struct info, and what a call is annotated with does not contradict what is
  inferred for it;
* variables, functions of the module and symbolic dimensions are defined before they are used; a variable is defined
  once, is a parameter of one function only, and a symbolic dimension occurs in one function only;
* variables bound in a branch end with it; dataflow variables live in the dataflow block that binds them;
* it is in A-normal form, with operators in the normal form of their own where they have one;
* a dataflow block holds no conditional and no call with effects, nor does a function that is marked pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.module import IRModule, functions_of
from ...ir.op import Op, op_name_of
from ...ir.prim import Var as TirVar
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...support.sequences import of_kind
from ...tir import PrimFunc
from ..expr import (
    Binding,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    is_leaf,
)
from ..op_table import op_record_of
from ..scalars import prim_vars
from ..struct_info import (
    BaseCheckResult,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .variables import find_impure_call, is_impure_call

__all__ = ["find_ill_formed", "well_formed"]


def _is_leaf_expr(expr: Expr) -> bool:
    return is_leaf(expr) and not isinstance(expr, PrimFunc)


class _Checker:
    """Collects messages; scopes are sets that grow and are restored."""

    def __init__(self, mod: IRModule | None, check_struct_info: bool) -> None:
        from ..block_builder import BlockBuilder

        self.mod = mod
        self.check_infos = check_struct_info
        self.errors: list[str] = []
        self.vars: set[Var] = set()
        self.dataflow_vars: set[Var] = set()
        self.recursive: set[Var] = set()
        self.symbols: set[TirVar] = set()
        #: In which outermost function each parameter and each symbolic variable occurs.
        self.owner: dict[Any, Function | None] = {}
        self.current: Function | None = None
        self.in_dataflow = False
        self.names: dict[Any, str] = {}
        self.checked_infos: set[int] = set()
        self.builder = BlockBuilder(mod)

    def error(self, message: str) -> None:
        self.errors.append(message)

    # --- struct info ----------------------------------------------------------------------------------------------

    def symbols_of(self, value: PrimExpr) -> None:
        """Symbolic variables of a scalar expression must be defined, and belong to this function."""
        for symbol in prim_vars(value):
            if symbol not in self.symbols:
                self.error(f"Symbolic Var {symbol.name} is not defined.")
            if self.current is not None and self.owner.setdefault(symbol, self.current) is not self.current:
                self.error(f"Symbolic Var {symbol.name} presents in different functions in the same Module.")

    def info(self, info: StructInfo | None) -> None:
        """Everything that a struct info mentions must be defined."""
        match info:
            case FuncStructInfo():
                if info.params is not None:
                    self.define_infos(info.params)
                    for param in info.params:
                        self.info(param)
                self.info(info.ret)
            case TupleStructInfo():
                for item in info.fields:
                    self.info(item)
            case TensorStructInfo():
                if isinstance(info.shape, ShapeExpr):
                    for dim in info.shape.values:
                        self.symbols_of(dim)
                elif info.shape is not None:
                    self.expr(info.shape)
            case ShapeStructInfo() | PrimStructInfo():
                for value in info.prim_exprs():
                    self.symbols_of(value)
            case _ if info is not None and hasattr(info, "tensor_sinfo"):
                self.info(info.tensor_sinfo)

    def define_infos(self, infos: Iterable[StructInfo | None]) -> None:
        """Define the symbols and shape variables that stand alone in struct infos of parameters (and of casts)."""
        for info in infos:
            match info:
                case TupleStructInfo():
                    self.define_infos(info.fields)
                case FuncStructInfo():
                    self.define_infos(info.params or ())
                case TensorStructInfo() if isinstance(info.shape, Var):
                    self.vars.add(info.shape)
                case _ if info is not None and hasattr(info, "tensor_sinfo"):
                    self.define_infos([info.tensor_sinfo])
                case StructInfo():
                    self.symbols.update(of_kind(info.prim_exprs(), TirVar))

    def known(self, expr: Expr) -> None:
        """The expression has struct info, and that is well formed."""
        if not self.check_infos:
            return
        info = expr.struct_info_
        if info is None:
            self.error(f"Expr must have struct_info populated.  Expr.type_key={type(expr).__name__}")
        else:
            self.info(info)

    # --- functions and blocks -------------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Scope at whose end its definitions are forgotten."""
        saved = set(self.vars), set(self.symbols)
        yield
        self.vars, self.symbols = saved

    def function(self, func: Function) -> None:
        outermost = self.current is None
        if outermost:
            self.current = func
        saved = self.in_dataflow, set(self.dataflow_vars)
        with self.scope():
            # Symbolic variables are not captured across functions.
            self.symbols = set()
            self.in_dataflow = False
            self.define_infos([p.struct_info_ for p in func.params])
            self.attributes(func)
            for param in func.params:
                self.define(param)
                if param in self.owner:
                    self.error(f"Relax variable {param.name_hint} is repeatedly used as parameters in function.")
                self.owner[param] = self.current
            if func.ret_struct_info is None:
                self.error("Function must have defined ret_struct_info")
            else:
                self.info(func.ret_struct_info)
            self.purity(func)
            if not isinstance(func.body, SeqExpr):
                self.error("The body of a function must be a SeqExpr.")
            else:
                self.sequence(func.body)
        self.in_dataflow, self.dataflow_vars = saved
        if outermost:
            self.current = None

    def attributes(self, func: Function) -> None:
        if _forced(func) and not func.is_pure:
            self.error(
                "Function has true for relax.force_pure but false for is_pure; relax.force_pure should be true only if "
                "is_pure is also true."
            )

    def purity(self, func: Function) -> None:
        if not self.check_infos or not func.is_pure or _forced(func) or func.body is None:
            return
        impure = find_impure_call(func.body)
        if impure is not None:
            self.error(
                f"Function is annotated as pure but contains an impure call: {impure}.  Please set relax.force_pure to "
                "true or use a pure operator variant (e.g., call_pure_packed) if it is necessary to override this "
                "judgment."
            )

    def sequence(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            dataflow = isinstance(block, DataflowBlock)
            saved, self.in_dataflow = self.in_dataflow, self.in_dataflow or dataflow
            for binding in block.bindings:
                self.binding(binding)
            self.in_dataflow = saved
            if dataflow:
                self.dataflow_vars = set()
        if not _is_leaf_expr(seq.body):
            self.error("SeqExpr bodies must be leaf expressions.")
        self.expr(seq.body)
        self.known(seq)

    def binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            self.expr(binding.value)
            self.define_infos([binding.struct_info])
            self.info(binding.struct_info)
            self.define(binding.var)
            return
        value = binding.value
        if isinstance(value, Function):
            self.recursive.add(binding.var)
        if isinstance(value, PrimFunc):
            self.error("Inline PrimFunc is disallowed in Relax IR.")
        else:
            self.expr(value)
        self.define(binding.var)
        declared, given = binding.var.struct_info_, getattr(value, "struct_info_", None)
        if self.check_infos and declared is not None and given is not None and declared is not given:
            if not declared.is_base_of(given):
                self.error(f"Expression of type {given} cannot be assigned to a variable of type {declared}")
        self.recursive.discard(binding.var)

    def define(self, var: Var) -> None:
        if isinstance(var, DataflowVar):
            if not self.in_dataflow:
                self.error(f"DataflowVar {var.name_hint} is defined outside DataflowBlock.")
            if var in self.dataflow_vars:
                self.error(f"DataflowVar {var.name_hint} is defined more than once.")
            self.dataflow_vars.add(var)
        else:
            if var in self.vars:
                self.error(f"Var {var.name_hint} is defined more than once.")
            self.vars.add(var)
        self.known(var)

    # --- expressions ----------------------------------------------------------------------------------------------

    def expr(self, value: Expr) -> None:
        if isinstance(value, Op):
            return
        if getattr(value, "struct_info_", None) is None:
            self.error(f"The checked_type_ of Expr {value} is nullptr.")
        match value:
            case Var():
                self.variable(value)
            case Call():
                self.call(value)
            case Tuple():
                for index, item in enumerate(value.fields):
                    self.nested(item, f"Tuple is not in ANF form, field {index} gets {type(item).__name__}")
                self.known(value)
            case TupleGetItem():
                self.nested(value.tuple_value, "The tuple value in a TupleGetItem node must be a leaf expression.")
                self.known(value)
            case ShapeExpr():
                for dim in value.values:
                    self.symbols_of(dim)
            case GlobalVar():
                self.global_var(value)
            case Function():
                self.function(value)
            case If():
                self.conditional(value)
            case SeqExpr():
                self.error(
                    "SeqExpr only serves as the function body in FunctionNode, or the true/false branch body in IfNode."
                )

    def nested(self, value: Expr, message: str) -> None:
        """A part that must be a leaf."""
        if _is_leaf_expr(value):
            self.expr(value)
        else:
            self.error(message)

    def variable(self, var: Var) -> None:
        if isinstance(var, DataflowVar):
            if not self.in_dataflow:
                self.error(f"DataflowVar {var.name_hint} is used outside DataflowBlock.")
            elif var not in self.dataflow_vars:
                self.error(f"DataflowVar {var.name_hint} is not defined.")
        elif var not in self.vars and var not in self.recursive:
            self.error(f"Var {var.name_hint} is not defined.")
        self.known(var)

    def global_var(self, var: GlobalVar) -> None:
        if self.mod is not None and (
            var.name_hint not in self.mod or self.mod.get_global_var(var.name_hint) is not var
        ):
            self.error(f"GlobalVar {var.name_hint} is not defined.")
        if var.struct_info_ is not None and not isinstance(var.struct_info_, FuncStructInfo):
            self.error(f"The struct_info_ of GlobalVar {var.name_hint} must be either FuncStructInfo.")
        if self.mod is not None and var in self.mod.functions:
            # The symbols of its struct info are the callee's own; those of a PrimFunc may be scalar parameters, which
            # the struct info does not name.
            return
        self.known(var)

    def conditional(self, value: If) -> None:
        if self.in_dataflow:
            self.error("If nodes are not allowed to appear in dataflow blocks.")
        self.nested(value.cond, "The condition for an if node must be a leaf expression.")
        for branch in (value.true_branch, value.false_branch):
            with self.scope():
                self.sequence(branch)
        self.known(value)

    def call(self, call: Call) -> None:
        if not op_name_of(call):
            # The callee's own symbols are not this function's.
            saved, self.current = self.current, None
            self.nested(call.op, "The called expression must be a leaf expression")
            self.current = saved
        for index, arg in enumerate(call.args):
            self.nested(arg, f"Call is not in ANF form, arg {index} gets {type(arg).__name__}")
        for info in call.sinfo_args:
            self.info(info)
        self.known(call)
        if self.in_dataflow and self.check_infos and _has_effect(call):
            self.error(f"Impure function call {call} occurs within a dataflow block.")
        self.operator_rules(call)
        if self.check_infos and call.struct_info_ is not None:
            self.inference(call)

    def operator_rules(self, call: Call) -> None:
        """Normal forms and demands of single operators."""
        record = op_record_of(call.op)
        if record is None:
            return
        if record.normalize is not None:
            try:
                after = record.normalize(self.builder, call)
            except (RelaxishError, TypeError, ValueError) as problem:
                self.error(f"calls to an operator with FNormalize must be normalized with it: {call}: {problem}")
                return
            if after is not call:
                self.error(
                    "If an operator defines an operator-specific normalization function (FNormalize), calls to that "
                    f"operator must be normalized with it.  However, normalization of {call} resulted in {after}"
                )
        if record.validate is not None:
            try:
                record.validate(call)
            except (RelaxishError, TypeError, ValueError) as problem:
                self.error(f"Operator-specific validation (FValidate) for {call.op.name} identified error: {problem}")

    def inference(self, call: Call) -> None:
        """Check a call's annotation against its inferred struct info."""
        if not all(_is_leaf_expr(arg) for arg in call.args):
            return
        try:
            made = self.builder.normalize(Call(call.op, call.args, call.attrs, call.sinfo_args))
        except (RelaxishError, TypeError, ValueError) as problem:
            self.error(
                "Each Relax expression must be able to have its StructInfo inferred.  However, inferring the struct "
                f"info of expression {call} resulted in the error: {problem}"
            )
            return
        if call.struct_info_.check(made.struct_info) is BaseCheckResult.FAIL_L0:
            self.error(
                "All information in StructInfo annotations must be correct.  However, while the expression "
                f"{call} is annotated as {call.struct_info_}, the expression outputs {made.struct_info}"
            )


def _forced(func: Function) -> bool:
    return bool(func.attrs.get("relax.force_pure")) if func.attrs is not None else False


def _has_effect(call: Call) -> bool:
    if not op_name_of(call) and getattr(call.op, "struct_info_", None) is None:
        return False
    return is_impure_call(call)


def find_ill_formed(obj: IRModule | Function, check_struct_info: bool = True) -> list[str]:
    """Messages about everything that is wrong with a module or function; empty if it is well formed."""
    checker = _Checker(obj if isinstance(obj, IRModule) else None, check_struct_info)
    if not isinstance(obj, IRModule):
        checker.expr(obj)
        return checker.errors
    for var, func in functions_of(obj, Function):
        symbol = func.attrs.get("global_symbol") if func.attrs is not None else None
        if symbol is not None and str(symbol) != var.name_hint:
            checker.error(f"Name in GlobalVar is not equal to name in gsymbol: {var.name_hint} != {symbol}")
        checker.expr(func)
    return checker.errors


def well_formed(obj: IRModule | Function, check_struct_info: bool = True) -> bool:
    """Whether a module (or function) keeps the rules. Each breach is logged as a warning.

    Without ``check_struct_info`` what is said about shapes, types and effects is not looked into.
    """
    errors = find_ill_formed(obj, check_struct_info)
    for message in errors:
        get_logger("relax.well_formed").warning("This IR is not well formed: %s", message)
    return not errors
