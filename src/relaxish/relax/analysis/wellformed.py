"""The verifier of graph programs."""

from __future__ import annotations

from typing import Any

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.module import IRModule
from ...ir.op import Op
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ..expr import (
    Call,
    DataflowBlock,
    DataflowVar,
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
from .struct_info import (
    BaseCheckResult,
    definable_tir_vars_in_struct_info,
    prim_exprs_in_struct_info,
    struct_info_base_check,
    tir_vars_in_struct_info,
)
from .variables import is_impure_call

__all__ = ["collect_non_negative_expressions", "find_ill_formed", "well_formed"]


def collect_non_negative_expressions(sinfo: Any) -> list[PrimExpr]:
    """Dimensions that occur in shapes, and so are known to be at least zero."""
    from ..struct_info import PrimStructInfo, TupleStructInfo

    if isinstance(sinfo, PrimStructInfo):
        return []
    if isinstance(sinfo, TupleStructInfo):
        out: dict[PrimExpr, None] = {}
        for item in sinfo.fields:
            out.update(dict.fromkeys(collect_non_negative_expressions(item)))
        return list(out)
    return list(dict.fromkeys(prim_exprs_in_struct_info(sinfo)))


class _Checker:
    """Collects messages; scopes are sets that grow and are restored."""

    def __init__(self, mod: IRModule | None, check_struct_info: bool) -> None:
        self.mod = mod
        self.check_infos = check_struct_info
        self.errors: list[str] = []
        self.vars: set[Var] = set()
        self.symbols: set[Any] = set()
        self.seen_vars: set[Var] = set()
        self.pure: str | None = None

    def error(self, message: str) -> None:
        self.errors.append(message)

    def define(self, var: Var, where: str) -> None:
        if var in self.seen_vars:
            self.error(f"variable {var.name_hint} is defined more than once")
        self.seen_vars.add(var)
        self.vars.add(var)
        if self.check_infos and var.struct_info_ is None:
            self.error(f"variable {var.name_hint} ({where}) has no struct info")

    def symbols_of(self, info: Any, where: str) -> None:
        for symbol in tir_vars_in_struct_info(info) if info is not None else ():
            if symbol not in self.symbols:
                self.error(f"symbolic variable {symbol.name} in {where} is not defined")

    def function(self, func: Function, name: str) -> None:
        outer = (set(self.vars), set(self.symbols), self.pure)
        for param in func.params:
            if param.struct_info_ is not None:
                self.symbols.update(definable_tir_vars_in_struct_info(param.struct_info_))
        for param in func.params:
            if isinstance(param, DataflowVar):
                self.error(f"parameter {param.name_hint} of {name} is a DataflowVar")
            self.define(param, f"parameter of {name}")
            self.symbols_of(param.struct_info_, f"parameter {param.name_hint} of {name}")
        forced = func.attrs.get("relax.force_pure") if func.attrs is not None else None
        if forced and not func.is_pure:
            self.error(f"function {name} has relax.force_pure but is_pure is False")
        self.pure = name if func.is_pure and not forced else None
        if self.check_infos and func.ret_struct_info is None:
            self.error(f"function {name} has no ret_struct_info")
        if isinstance(func.body, SeqExpr):
            self.sequence(func.body)
        self.vars, self.symbols, self.pure = outer

    def sequence(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            dataflow = isinstance(block, DataflowBlock)
            inner: list[Var] = []
            for binding in block.bindings:
                self.binding(binding, dataflow)
                if isinstance(binding.var, DataflowVar):
                    inner.append(binding.var)
                    if not dataflow:
                        self.error(f"DataflowVar {binding.var.name_hint} is bound outside a dataflow block")
            self.vars.difference_update(inner)
        if not is_leaf(seq.body):
            self.error("the result of a SeqExpr must be a leaf expression; run Normalize")
        self.expr(seq.body)
        if self.check_infos and seq.struct_info_ is None:
            self.error("a SeqExpr has no struct info; run Normalize")

    def binding(self, binding: Any, dataflow: bool) -> None:
        value = binding.value
        if isinstance(value, Function):
            # A local function may call itself.
            self.vars.add(binding.var)
            self.function(value, binding.var.name_hint)
        elif isinstance(value, If):
            if dataflow:
                self.error("an If may not stand inside a dataflow block")
            self.expr(value.cond)
            for branch in (value.true_branch, value.false_branch):
                outer = (set(self.vars), set(self.symbols))
                self.sequence(branch)
                self.vars, self.symbols = outer
        elif isinstance(value, SeqExpr):
            self.error(f"the value bound to {binding.var.name_hint} is a SeqExpr; run Normalize")
        else:
            self.expr(value, dataflow)
        if isinstance(binding, MatchCast):
            self.symbols.update(definable_tir_vars_in_struct_info(binding.struct_info))
            self.symbols_of(binding.struct_info, f"match_cast of {binding.var.name_hint}")
        elif binding.var.struct_info_ is not None and self.check_infos:
            self.symbols_of(binding.var.struct_info_, f"the struct info of {binding.var.name_hint}")
        self.define(binding.var, "binding")

    def expr(self, value: Any, dataflow: bool = False) -> None:
        if isinstance(value, Var):
            if value not in self.vars:
                kind = "DataflowVar" if isinstance(value, DataflowVar) else "Var"
                self.error(f"{kind} {value.name_hint} is used but not defined in this scope")
        elif isinstance(value, Call):
            self.call(value, dataflow)
        elif isinstance(value, Tuple):
            for item in value.fields:
                if not is_leaf(item):
                    self.error("a field of a Tuple must be a leaf expression; run Normalize")
                self.expr(item)
        elif isinstance(value, TupleGetItem):
            self.expr(value.tuple_value)
        elif isinstance(value, ShapeExpr):
            for dim in value.values:
                for symbol in prim_vars(dim):
                    if symbol not in self.symbols:
                        self.error(f"symbolic variable {symbol.name} in a shape is not defined")
        elif isinstance(value, GlobalVar) and self.mod is not None and value.name_hint not in self.mod:
            self.error(f"GlobalVar {value.name_hint} is not a function of the module")

    def call(self, call: Call, dataflow: bool) -> None:
        if isinstance(call.op, Op):
            record = op_record_of(call.op)
            if record is not None and record.validate is not None:
                try:
                    record.validate(call)
                except Exception as problem:
                    self.error(str(problem))
        elif not isinstance(call.op, Function):
            self.expr(call.op)
        for arg in call.args:
            if not is_leaf(arg):
                self.error(f"an argument of {getattr(call.op, 'name', 'a call')} must be a leaf expression; run Normalize")
            else:
                self.expr(arg)
        for info in call.sinfo_args:
            self.symbols_of(info, "the struct info of a call")
        if self.check_infos and call.struct_info_ is None:
            self.error(f"a call of {getattr(call.op, 'name', 'a function')} has no struct info; run Normalize")
        elif self.check_infos:
            self.inference(call)
        if (dataflow or self.pure is not None) and _effect(call):
            where = "a dataflow block" if dataflow else f"the pure function {self.pure}"
            self.error(f"an impure call of {getattr(call.op, 'name', None) or getattr(call.op, 'name_hint', 'a function')} stands in {where}")


    def inference(self, call: Call) -> None:
        """What a call is annotated with must not contradict what is inferred for it."""
        from ..block_builder import BlockBuilder

        try:
            made = BlockBuilder(self.mod).normalize(Call(call.op, call.args, call.attrs, call.sinfo_args))
        except (RelaxishError, TypeError, ValueError) as problem:
            self.error(f"the struct info of {call} cannot be inferred: {problem}")
            return
        if struct_info_base_check(call.struct_info_, made.struct_info_) is BaseCheckResult.FAIL_L0:
            self.error(
                f"all information in struct info annotations must be correct, but {call} is annotated as "
                f"{call.struct_info_}, while {made.struct_info_} is inferred for it"
            )


def _effect(call: Call) -> bool:
    if not isinstance(call.op, Op) and call.op.struct_info_ is None:
        return False
    return is_impure_call(call)


def find_ill_formed(obj: Any, check_struct_info: bool = True) -> list[str]:
    """Messages about everything that is wrong with a module or function; empty if it is well formed."""
    mod = obj if isinstance(obj, IRModule) else None
    checker = _Checker(mod, check_struct_info)
    items = mod.functions.items() if mod is not None else [(None, obj)]
    for var, func in items:
        if not isinstance(func, Function):
            continue
        symbol = func.attrs.get("global_symbol") if func.attrs is not None else None
        name = var.name_hint if var is not None else "the function"
        if var is not None and symbol is not None and str(symbol) != var.name_hint:
            checker.error(f"function {name} has the global_symbol {symbol}; run NormalizeGlobalVar")
        checker.function(func, name)
    return checker.errors


def well_formed(obj: Any, check_struct_info: bool = True) -> bool:
    """Whether a module (or function) keeps the rules: everything defined before use and once, A-normal form, struct
    infos present, no effects where none are allowed. Each breach is logged as a warning.
    """
    errors = find_ill_formed(obj, check_struct_info)
    for message in errors:
        get_logger("relax.well_formed").warning("%s", message)
    return not errors
