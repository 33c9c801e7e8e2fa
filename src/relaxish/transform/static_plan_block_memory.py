"""StaticPlanBlockMemory: tensors whose lives do not overlap share storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..arith.analyzer import Analyzer
from ..arith.int_set import from_range
from ..ir import dtype as dt
from ..ir.expr import GlobalVar, PrimExpr, Range
from ..ir.module import IRModule
from ..ir.op import Op, op_name_of
from ..ir.prim import IntImm, const_ints
from ..ir.prim import StringImm as PrimString
from ..relax.analysis.struct_info import tir_vars_in_struct_info
from ..relax.analysis.variables import direct_uses
from ..relax.expr import (
    BindingBlock,
    Call,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    If,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..relax.scalars import fresh_analyzer
from ..relax.struct_info import ObjectStructInfo
from ..support.errors import RelaxishError
from ..tir import PrimFunc
from .base import map_relax_functions
from .memory_tokens import Token, TokenPool
from ..ir.plain import plain_bool
from ..ir.declared_pass import ModuleRewrite

__all__ = ["StaticPlanBlockMemory"]

_ALLOC = "relax.builtin.alloc_tensor"
# Operators and packed functions whose result is their argument's memory.
_ALIASES = frozenset(
    {
        "relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset", "vm.builtin.reshape", "vm.builtin.require",
    }
)  # fmt: skip
_PLAN_OUTPUT = "relax.memory_plan_dynamic_func_output"
_MAX_INT64 = (1 << 63) - 1


class _Bounds:
    """Upper bounds of dimensions, from the attributes ``tir_var_upper_bound`` and ``tir_non_negative_var``.

    They hold for symbolic variables of the function's signature only.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.domains: dict[Any, Any] = {}

    def declare(self, func: Function) -> None:
        """Take in what a function's attributes say."""
        bounds = {_text(k, "key of attr `tir_var_upper_bound`"): _positive(v) for k, v in _items(func)}
        free = {
            _text(n, "element of attr `tir_non_negative_var`") for n in func.attrs.get("tir_non_negative_var") or ()
        }
        if not bounds and not free:
            return
        for var in tir_vars_in_struct_info(func.struct_info):
            if var.name in bounds:
                values = Range.from_min_extent(IntImm("int64", 0), IntImm("int64", bounds[var.name] + 1))
                self.analyzer.bind(var, values, allow_override=True)
                self.domains[var] = from_range(values)
            elif var.name in free:
                self.analyzer.mark_global_non_neg_value(var)

    def of(self, dim: PrimExpr) -> PrimExpr:
        """The largest value of a dimension, or the dimension where none is known."""
        if isinstance(dim, IntImm):
            return dim
        most = self.analyzer.const_int_bound(dim).max_value
        if most < _MAX_INT64:
            return IntImm("int64", most)
        values = self.analyzer.int_set(dim, self.domains)
        return values.max_value if values.has_upper() else dim


def _items(func: Function) -> list[tuple[Any, Any]]:
    given = func.attrs.get("tir_var_upper_bound")
    return [] if given is None else list(given.items())


def _text(value: str, what: str) -> str:
    if isinstance(value, PrimString):
        value = value.value
    if not isinstance(value, str):
        raise RelaxishError(f"The entry {what} should be string. However {type(value).__name__} is got.")
    return value


def _positive(value: Any) -> int:
    if isinstance(value, IntImm):
        value = value.value
    if not isinstance(value, int):
        raise RelaxishError(
            f"The entry value of attr `tir_var_upper_bound` should be integer. However {type(value).__name__} is got."
        )
    if value <= 0:
        raise RelaxishError(
            f"The entry value of attr `tir_var_upper_bound` should be a positive integer, while {value} is got."
        )
    return value


def _byte_count(dims: list[Any], dtype: str) -> PrimExpr:
    """The size as a constant times the product of the symbolic dimensions."""
    factor = dt.nbytes(dtype)
    symbolic: Any = IntImm("int64", 1)
    for dim in dims:
        if isinstance(dim, IntImm):
            factor *= dim.value
        else:
            symbolic = symbolic * dim
    return IntImm("int64", factor) * symbolic


class _Planner:
    """Finds what each allocation of a function is used for, then serves the requests in program order.

    Tokens follow values: a variable's entry is a token, a tuple of entries, or None.
    """

    def __init__(self, mod: IRModule, bounds: _Bounds) -> None:
        self.mod = mod
        self.bounds = bounds
        self.values: dict[Var, Any] = {}
        self.of_call: dict[Call, Token] = {}
        self.events: list[tuple[str, Any]] = []

    def plan(self, func: Function) -> None:
        """Plan one function, its branches and local functions included."""
        self.bounds.declare(func)
        self.sequence(func.body)
        pool = TokenPool(self.bounds.analyzer)
        for kind, item in self.events:
            if kind == "leave":
                pool.forget(item)
            elif item.planned:
                if kind == "alloc":
                    pool.serve(item)
                else:
                    item.storage.uses_left -= 1
                    if item.storage.uses_left == 0:
                        pool.release(item.storage)

    def entry(self, value: Expr) -> Any:
        """Memory that a leaf expression holds on to."""
        match value:
            case Var():
                return self.values.get(value)
            case Tuple():
                return tuple(self.entry(f) for f in value.fields)
            case TupleGetItem():
                whole = self.entry(value.tuple_value)
                return whole[value.index] if isinstance(whole, tuple) else whole
        return None

    def drop(self, value: Expr) -> None:
        """Leave alone what may live on outside the block."""
        for token in _leaves(self.entry(value)):
            token.planned = False

    def sequence(self, seq: SeqExpr) -> None:
        """Go through the bindings of a body or a branch."""
        for block in seq.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self.value(binding.value, block)
        self.drop(seq.body)

    def value(self, value: Expr, block: BindingBlock) -> Any:
        """Note what a bound value uses; gives what its variable holds on to."""
        match value:
            case Call():
                return self.call(value, block)
            case If():
                self.drop(value.cond)
                for branch in (value.true_branch, value.false_branch):
                    self.nested(branch)
                return None
            case Function():
                self.bounds.declare(value)
                for var in direct_uses(value):
                    self.drop(var)
                self.nested(value.body)
                return None
        return self.entry(value)

    def nested(self, seq: SeqExpr) -> None:
        """A sequence whose memory no one outside can reach."""
        self.sequence(seq)
        self.events.append(("leave", {id(block) for block in seq.blocks}))

    def call(self, call: Call, block: BindingBlock) -> Any:
        """Note what a call allocates or uses."""
        name = op_name_of(call)
        if name == _ALLOC:
            shape = call.struct_info.shape
            if not isinstance(shape, ShapeExpr):
                return None
            dims = [self.bounds.of(dim) for dim in shape.values]
            dtype = call.args[1].value
            token = Token(_byte_count(dims, dtype), dtype, call.args[3].value, block)
            self.of_call[call] = token
            self.events.append(("alloc", token))
            return token
        if name in _ALIASES or (isinstance(call.op, ExternFunc) and call.op.global_symbol in _ALIASES):
            return self.entry(call.args[0])
        for arg in call.args:
            if self._only_reads(call):
                for token in _leaves(self.entry(arg)):
                    token.planned = token.planned and token.block is block
                    token.uses += 1
                    self.events.append(("use", token))
            else:
                self.drop(arg)
        return None

    def _only_reads(self, call: Call) -> bool:
        """Whether the callee keeps nothing of its arguments once it is done."""
        if isinstance(call.op, GlobalVar):
            return call.op in self.mod and isinstance(self.mod[call.op], PrimFunc)
        return isinstance(call.op, ExternFunc) or op_name_of(call) == "relax.vm.call_tir_dyn"


def _leaves(entry: Any) -> Iterator[Token]:
    if isinstance(entry, tuple):
        for part in entry:
            yield from _leaves(part)
    elif entry is not None:
        yield entry


class _Writer:
    """Writes a function with its allocations as planned."""

    def __init__(self, planner: _Planner, plan_output: bool) -> None:
        self.planner = planner
        self.plan_output = plan_output

    def function(self, func: Function) -> Function:
        """The function with its body rewritten."""
        body = self.sequence(func.body)
        if body is func.body:
            return func
        return Function(func.params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)

    def sequence(self, seq: SeqExpr) -> SeqExpr:
        """A body or branch with its bindings rewritten."""
        blocks = [self.block(block) for block in seq.blocks]
        if all(new is old for new, old in zip(blocks, seq.blocks)):
            return seq
        made = SeqExpr(blocks, seq.body, seq.span)
        made.struct_info_ = seq.struct_info_
        return made

    def block(self, block: BindingBlock) -> BindingBlock:
        """A block with its bindings rewritten."""
        out: list[Any] = []
        changed = False
        binding: Any
        for binding in block.bindings:
            new = self.value(binding.value, out.append)
            if new is not binding.value:
                changed = True
                binding = VarBinding(binding.var, new, binding.span)
            out.append(binding)
        return type(block)(out, block.span) if changed else block

    def value(self, value: Any, emit: Callable[[VarBinding], None]) -> Any:
        """A bound value rewritten; storage it needs is emitted before it."""
        match value:
            case If():
                branches = [self.sequence(value.true_branch), self.sequence(value.false_branch)]
                if branches[0] is value.true_branch and branches[1] is value.false_branch:
                    return value
                made = If(value.cond, branches[0], branches[1], value.span)
                made.struct_info_ = value.struct_info_
                return made
            case Function():
                return self.function(value)
        if op_name_of(value) != _ALLOC:
            return value
        token = self.planner.of_call.get(value)
        if token is not None and token.planned:
            storage = token.storage
            assert storage is not None
            if storage.var is None:
                storage.var = _allocate(storage.size, value, storage.dtype, storage.scope, emit)
            return _tensor_in(storage.var, value)
        shape = value.struct_info.shape
        if self.plan_output and isinstance(shape, ShapeExpr) and const_ints(shape.values) is None:
            size: Any = None
            for dim in shape.values:
                most = self.planner.bounds.of(dim)
                size = most if size is None else size * most
            dtype = value.args[1].value
            size = size * IntImm("int64", dt.nbytes(dtype))
            return _tensor_in(_allocate(size, value, dtype, value.args[3].value, emit), value)
        return value


def _allocate(size: PrimExpr, request: Call, dtype: str, scope: str, emit: Callable[[VarBinding], None]) -> Var:
    args = (ShapeExpr([size]), request.args[2], StringImm(scope), DataTypeImm(dtype))
    call = Call(Op.get("relax.memory.alloc_storage"), args)
    call.struct_info_ = ObjectStructInfo()
    var = Var("storage", ObjectStructInfo())
    emit(VarBinding(var, call))
    return var


def _tensor_in(storage: Var, request: Call) -> Call:
    shape = request.struct_info.shape
    args = (storage, PrimValue(0), shape, DataTypeImm(request.args[1].value))
    call = Call(Op.get("relax.memory.alloc_tensor"), args, None, None, request.span)
    call.struct_info_ = request.struct_info_
    return call


class StaticPlanBlockMemory(ModuleRewrite):
    """Give allocations storage that is reused once its tensor is dead.

    ``R.builtin.alloc_tensor`` becomes ``R.memory.alloc_storage`` (once for each storage) plus
    ``R.memory.alloc_tensor``; tensors of one dtype and scope share within a block.  Symbolic dimensions count with
    their bound in the function attribute ``tir_var_upper_bound``; without one, tensors of provably equal size share.
    What the function returns keeps its own allocation, unless the attribute
    ``relax.memory_plan_dynamic_func_output`` asks for storage of the largest size for it too.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        bounds = _Bounds(fresh_analyzer())

        def plan(_: GlobalVar, func: Function) -> Function:
            planner = _Planner(mod, bounds)
            planner.plan(func)
            wanted = func.attrs.get(_PLAN_OUTPUT)
            plan_output = wanted is not None and plain_bool(wanted)
            new = _Writer(planner, plan_output).function(func)
            return new.without_attr(_PLAN_OUTPUT) if plan_output else new

        return map_relax_functions(mod, plan)
