"""StaticPlanBlockMemory: tensors whose lives do not overlap share storage."""

from __future__ import annotations

from typing import Any

from ..ir import dtype as dt
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.prim import IntImm
from ..ir.prim import Var as TirVar
from ..ir.transform import Pass
from ..relax.expr import (
    BindingBlock,
    Call,
    DataTypeImm,
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
from ..relax.scalars import const_int, prim_vars, substitute_prim
from ..relax.analysis.struct_info import tir_vars_in_struct_info
from ..relax.struct_info import ObjectStructInfo, TupleStructInfo
from ..tir import PrimFunc
from .base import as_module_pass, map_relax_functions, rebuild_body

__all__ = ["StaticPlanBlockMemory"]

_ALLOC = "relax.builtin.alloc_tensor"
_RANGE = 16


class _Token:
    """One allocation request and later the storage that serves it."""

    __slots__ = ("bytes", "dtype", "first", "last", "reusable", "scope", "shape", "storage", "var", "device")

    def __init__(self, var: Var, call: Call, size: int, position: int) -> None:
        self.var = var
        self.shape = call.args[0]
        self.dtype = call.args[1].value
        self.device = call.args[2]
        self.scope = call.args[3]
        self.bytes = size
        self.first = position
        self.last = position
        self.reusable = True
        self.storage: _Storage | None = None


class _Storage:
    __slots__ = ("bytes", "dtype", "index", "owner", "tokens", "var")

    def __init__(self, owner: _Token, index: int) -> None:
        self.owner = owner
        self.bytes = owner.bytes
        self.dtype = owner.dtype
        self.index = index
        self.tokens: list[_Token] = [owner]
        self.var: Var | None = None


def _bounds(func: Function) -> dict[TirVar, Any]:
    """Symbolic variables with an upper bound, from the function's attribute ``tir_var_upper_bound``."""
    given = func.attrs.get("tir_var_upper_bound") or {}
    items: dict[Any, Any] = dict(given)
    table = {str(k): int(getattr(v, "value", v)) for k, v in items.items()}
    out: dict[TirVar, Any] = {}
    for param in func.params:
        for var in tir_vars_in_struct_info(param.struct_info):
            if var.name in table:
                out[var] = IntImm("int64", table[var.name])
    return out


def _size(call: Call, bounds: dict[TirVar, Any]) -> int | None:
    if not isinstance(call.args[0], ShapeExpr):
        return None
    total = dt.nbytes(call.args[1].value)
    for dim in call.args[0].values:
        value = const_int(substitute_prim(dim, bounds)) if prim_vars(dim) else const_int(dim)
        if value is None:
            return None
        total *= value
    return total


class _Planner:
    """Lives of the tensors that one block allocates."""

    def __init__(self, mod: IRModule, bounds: dict[TirVar, Any]) -> None:
        self.mod = mod
        self.bounds = bounds
        self.tokens: dict[Var, _Token] = {}
        self.groups: dict[Var, list[_Token]] = {}
        self.position = 0

    def run(self, body: SeqExpr) -> list[_Token]:
        block_of: dict[Var, int] = {}
        for number, block in enumerate(body.blocks):
            for binding in block.bindings:
                self.position += 1
                block_of[binding.var] = number
                self._binding(binding, number, block_of)
        for token in self._of(body.body):
            token.reusable = False
        return [t for t in self.tokens.values() if t.reusable]

    def _of(self, value: Any) -> list[_Token]:
        if isinstance(value, Var):
            return self.groups.get(value, [])
        if isinstance(value, Tuple):
            return [t for f in value.fields for t in self._of(f)]
        if isinstance(value, TupleGetItem):
            return self._of(value.tuple_value)
        return []

    def _use(self, value: Any) -> None:
        for token in self._of(value):
            token.last = self.position

    def _binding(self, binding: Any, number: int, block_of: dict[Var, int]) -> None:
        value = binding.value
        if isinstance(value, Call):
            self._call(binding.var, value)
        elif isinstance(value, (Var, Tuple, TupleGetItem)):
            self.groups[binding.var] = self._of(value)
            self._use(value)
        else:
            # Branches and local functions: whatever they touch must keep its own memory.
            from ..relax.analysis.variables import direct_uses

            for used in direct_uses(value):
                for token in self._of(used):
                    token.reusable = False
            if isinstance(value, If):
                return

    def _call(self, var: Var, call: Call) -> None:
        name = call.op.name if isinstance(call.op, Op) else ""
        if name == _ALLOC:
            size = _size(call, self.bounds)
            if size is not None:
                token = self.tokens[var] = _Token(var, call, size, self.position)
                self.groups[var] = [token]
            return
        if name in ("relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset"):
            self.groups[var] = self._of(call.args[0])
        elif not self._is_kernel(call):
            # A callee that may keep its arguments.
            if not isinstance(call.op, (Op, ExternFunc)):
                for arg in call.args:
                    for token in self._of(arg):
                        token.reusable = False
            elif _may_alias(var):
                self.groups[var] = [t for a in call.args for t in self._of(a)]
        for arg in call.args:
            self._use(arg)

    def _is_kernel(self, call: Call) -> bool:
        from ..ir.expr import GlobalVar

        if isinstance(call.op, GlobalVar):
            return call.op in self.mod and isinstance(self.mod[call.op], PrimFunc)
        return isinstance(call.op, Op) and call.op.name == "relax.vm.call_tir_dyn"


def _may_alias(var: Var) -> bool:
    """Whether a packed function's result might be (part of) one of its arguments."""
    info = var.struct_info_
    return not (isinstance(info, TupleStructInfo) and not info.fields)


def _assign(tokens: list[_Token]) -> list[_Storage]:
    """Best fit in program order: the smallest free storage that is large enough, else the largest smaller one."""
    storages: list[_Storage] = []
    free: dict[tuple[str, int], list[_Storage]] = {}
    ends: dict[int, list[_Token]] = {}
    done = 0
    for token in sorted(tokens, key=lambda t: t.first):
        for position in range(done, token.first + 1):
            for ended in ends.pop(position - 1, ()):
                assert ended.storage is not None
                free.setdefault(_key(ended), []).append(ended.storage)
        done = token.first + 1
        storage = _request(free.get(_key(token), []), token)
        if storage is None:
            storage = _Storage(token, len(storages))
            storages.append(storage)
        else:
            free[_key(token)].remove(storage)
            storage.bytes = max(storage.bytes, token.bytes)
            storage.tokens.append(token)
        token.storage = storage
        ends.setdefault(token.last, []).append(token)
    return storages


def _key(token: _Token) -> tuple[str, int]:
    return token.scope.value, const_int(token.device.value) or 0


def _request(free: list[_Storage], token: _Token) -> _Storage | None:
    size = token.bytes
    larger = [s for s in free if size <= s.bytes <= size * _RANGE]
    if larger:
        return min(larger, key=lambda s: (s.bytes, s.index))
    smaller = [s for s in free if size <= s.bytes * _RANGE and s.bytes < size]
    return max(smaller, key=lambda s: (s.bytes, -s.index)) if smaller else None


def _rewrite(body: SeqExpr, tokens: list[_Token], bounds: dict[TirVar, Any]) -> list[BindingBlock]:
    by_var = {t.var: t for t in tokens if t.storage is not None}
    blocks = []
    binding: Any
    for block in body.blocks:
        out: list[Any] = []
        for binding in block.bindings:
            token = by_var.get(binding.var)
            if token is None:
                out.append(binding)
                continue
            storage = token.storage
            assert storage is not None
            if storage.var is None:
                storage.var = Var("storage", ObjectStructInfo())
                out.append(VarBinding(storage.var, _alloc_storage(storage)))
            call = Call(
                Op.get("relax.memory.alloc_tensor"),
                (storage.var, PrimValue(0), token.shape, DataTypeImm(token.dtype)),
            )
            call.struct_info_ = binding.var.struct_info_
            out.append(VarBinding(binding.var, call, binding.span))
        blocks.append(type(block)(out, block.span))
    return blocks


def _alloc_storage(storage: _Storage) -> Call:
    owner = storage.owner
    call = Call(
        Op.get("relax.memory.alloc_storage"),
        (ShapeExpr([storage.bytes]), owner.device, StringImm(owner.scope.value), DataTypeImm(owner.dtype)),
    )
    call.struct_info_ = ObjectStructInfo()
    return call


def _plan(mod: IRModule, func: Function) -> Function:
    bounds = _bounds(func)
    tokens = _Planner(mod, bounds).run(func.body)
    if not tokens:
        return func
    _assign(tokens)
    return rebuild_body(func, _rewrite(func.body, tokens, bounds))


def StaticPlanBlockMemory() -> Pass:  # noqa: N802  (public name of the pass)
    """Give allocations of known size storage that is reused once its tensor is dead.

    ``R.builtin.alloc_tensor`` becomes ``R.memory.alloc_storage`` (once for each storage) plus
    ``R.memory.alloc_tensor``.  Symbolic dimensions count with their bound in the function attribute
    ``tir_var_upper_bound``; what the function returns keeps its own allocation.
    """

    def run(mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: _plan(mod, func))

    return as_module_pass(run, "StaticPlanBlockMemory")
