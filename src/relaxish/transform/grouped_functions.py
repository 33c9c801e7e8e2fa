"""Turning groups of bindings into functions: shared by FuseOps and FuseOpsByPattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..ir.op import Op
from ..ir.structural import structural_hash
from ..relax.analysis.struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..relax.analysis.variables import direct_uses, free_symbolic_vars
from ..relax.copying import renew_symbolic_vars
from ..relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_call_of,
)
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import const_int, prim_vars
from ..relax.struct_info import ShapeStructInfo, TensorStructInfo, TupleStructInfo, fields_of
from ..support.errors import InternalError
from ..tir import Var as TirVar
from .graph_partition import Group

__all__ = ["OperatorFusor", "fuse_by_groups"]


class _FunctionCreator(PyExprMutator):
    """Collects the bindings of one group, then makes its function."""

    def __init__(self, mod: IRModule, lift_constants: bool) -> None:
        super().__init__()
        self.lift_constants = lift_constants
        self.name_hint = "fused"
        self.bindings: list[Any] = []
        self.arguments: list[Any] = []
        self.params: list[Var] = []
        self.seen_args: dict[Any, Var] = {}
        self.defined: set[Var] = set()
        self.outputs: dict[Var, int] = {}
        self.partial: dict[Any, list[int]] = {}
        self.items: dict[tuple[Any, int], Var] = {}
        self.function: Function | None = None
        self.identity: Any = None
        self.constants = 0

    def append_binding(self, binding: Binding) -> None:
        value = binding.value
        self.bindings.append(binding)
        match value:
            case Call():
                self._append_call(value)
            case TupleGetItem():
                self._need(value.tuple_value)
                indices = self.partial.get(value.tuple_value)
                if indices is not None and value.index not in indices:
                    indices.append(value.index)
            case _:
                for item in fields_of(value):
                    self._need(item)
        self.defined.add(binding.var)
        if not binding.var.is_dataflow:
            self.append_output(binding.var)

    def _append_call(self, call: Call) -> None:
        if is_call_of(call, "relax.call_tir", "relax.call_tir_inplace"):
            self.name_hint += "_" + call.args[0].name_hint
            args = call.args[1].fields
        else:
            match call.op:
                case Op():
                    self.name_hint += "_" + call.op.name.replace(".", "_")
                case GlobalVar():
                    self.name_hint += "_" + call.op.name_hint.removeprefix("fused_")
            args = call.args
        for arg in args:
            self._need(arg)
            if isinstance(arg, Expr) and isinstance(arg.struct_info_, TupleStructInfo):
                # Used whole, so it stays one parameter.
                self.partial.pop(arg, None)

    def _need(self, expr: Expr) -> None:
        """Make a parameter of what the group does not define itself."""
        if expr in self.seen_args or expr in self.defined:
            return
        match expr:
            case Constant() if not self.lift_constants:
                return
            case Tuple() if any(v in self.defined for v in direct_uses(expr)):
                for item in expr.fields:
                    self._need(item)
                return
            case Var():
                name = expr.name_hint
            case _:
                name = f"param_{self.constants}"
                self.constants += 1
                if _is_literal(expr):
                    return
        param = Var(name, expr.struct_info)
        self.seen_args[expr] = param
        self.arguments.append(expr)
        self.params.append(param)
        self.var_remap_[expr] = param
        if isinstance(expr.struct_info_, TupleStructInfo):
            self.partial[expr] = []

    def append_output(self, var: Var) -> None:
        self.outputs.setdefault(var, len(self.outputs))

    def visit_expr(self, expr: Any) -> Any:
        param = self.seen_args.get(expr)
        return super().visit_expr(expr) if param is None else param

    def _split_partial_tuples(self) -> None:
        """A tuple of which only some fields are used is passed field by field."""
        for value, indices in self.partial.items():
            if not indices:
                continue
            position = self.arguments.index(value)
            param = self.params[position]
            fields = value.struct_info.fields
            args = [TupleGetItem(value, i) for i in indices]
            params = [Var(f"{param.name_hint}_{i}", fields[i]) for i in indices]
            for index, new in zip(indices, params):
                self.items[(value, index)] = new
            self.arguments[position : position + 1] = args
            self.params[position : position + 1] = params

    def key(self, attrs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Hashable values that determine the function: equal keys make equal functions. None where they are expensive
        to tell."""
        if self.partial:
            return None
        places: dict[Any, int] = {}
        infos = [_info_key(a.struct_info_) for a in self.arguments]
        for value in (*self.arguments, *(b.var for b in self.bindings)):
            places[value] = len(places)
        steps = [_value_key(b.value, places) for b in self.bindings]
        outputs = tuple(places[v] for v in self.outputs)
        if any(part is None for part in (*infos, *steps)):
            return None
        kinds = tuple(b.var.is_dataflow for b in self.bindings)
        return self.name_hint, tuple(infos), tuple(steps), outputs, kinds, tuple(sorted(map(repr, attrs.items())))

    def create(self, attrs: Mapping[str, Any]) -> None:
        """Build the function; a group nobody outside uses makes none."""
        if not self.outputs:
            return
        self._split_partial_tuples()
        self.builder_.begin_dataflow_block()
        results: list[Any] = [None] * len(self.outputs)
        for binding in self.bindings:
            value = binding.value
            output = self.outputs.get(binding.var)
            if isinstance(value, TupleGetItem) and (value.tuple_value, value.index) in self.items:
                item = self.items[(value.tuple_value, value.index)]
                self.var_remap_[binding.var] = item
                if output is not None:
                    results[output] = item
            elif output is not None:
                made = self.builder_.emit_output(self.visit_expr(value))
                self.var_remap_[binding.var] = made
                results[output] = made
            else:
                self.visit_binding(binding)
        block = self.builder_.end_block()
        result = results[0] if len(results) == 1 else Tuple(results)
        self.builder_.begin_scope(self.params)
        body = self.builder_.normalize(SeqExpr([block] if block.bindings else [], result))
        self.builder_.end_scope()
        if "Codegen" in attrs:
            self.name_hint += f"_{attrs['Codegen']}"
        all_attrs = {**attrs, "Primitive": True}
        func = Function(self.params, body, body.body.struct_info, True, all_attrs)
        free = free_symbolic_vars(func)
        if free:
            self.params.append(Var("tir_vars", ShapeStructInfo(free)))
            self.arguments.append(ShapeExpr(free))
            func = Function(self.params, body, body.body.struct_info, True, all_attrs)
        func.body.struct_info_ = func.ret_struct_info
        self.function = renew_symbolic_vars(func)


def _symbols_used(value: Expr) -> list[TirVar]:
    """The symbolic dimensions that a bound value is computed with."""
    infos = [value.struct_info_, *(value.sinfo_args if isinstance(value, Call) else ())]
    if isinstance(value, Call):
        infos += [arg.struct_info_ for arg in value.args if isinstance(arg, ShapeExpr | PrimValue | Tuple)]
    return [symbol for info in infos if info is not None for symbol in tir_vars_in_struct_info(info)]


def _is_literal(expr: Expr) -> bool:
    """Whether a scalar, a shape or a tuple of such is known at compile time, so that it stays inside the function."""
    match expr:
        case Tuple():
            return all(_is_literal(f) for f in expr.fields)
        case PrimValue():
            return not prim_vars(expr.value)
    return isinstance(expr, ShapeExpr) and not any(prim_vars(v) for v in expr.values)


def _info_key(info: object) -> tuple[Any, ...] | None:
    """A static tensor's shape, dtype and place; None for anything else."""
    if not isinstance(info, TensorStructInfo):
        return None
    dims = info.dims()
    sizes = None if dims is None else tuple(const_int(d) for d in dims)
    return None if sizes is None or None in sizes else (sizes, info.dtype, info.vdevice)


def _value_key(value: Expr, places: Mapping[Any, int]) -> tuple[Any, ...] | None:
    """A call of an operator on values of the group, by their places; None for anything else."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return None
    args = tuple(_leaf_key(a, places) for a in value.args)
    infos = tuple(_info_key(i) for i in (*value.sinfo_args, value.struct_info_))
    if any(part is None for part in (*args, *infos)):
        return None
    return value.op, args, None if value.attrs is None else structural_hash(value.attrs), infos


def _leaf_key(arg: Expr, places: Mapping[Any, int]) -> object:
    if arg in places:
        return places[arg]
    match arg:
        case Tuple():
            fields = tuple(_leaf_key(f, places) for f in arg.fields)
            return None if any(f is None for f in fields) else fields
        case GlobalVar() | Constant():
            return arg
        case ShapeExpr():
            sizes = tuple(const_int(v) for v in arg.values)
            return None if None in sizes else ("shape", sizes)
    return None


class OperatorFusor(PyExprMutator):
    """Rewrites dataflow blocks so that each group of bindings is one call of a new function."""

    def __init__(self, mod: IRModule, groups: Mapping[Any, Group], lift_constants: bool) -> None:
        super().__init__(mod)
        self.mod = mod
        self.groups = groups
        self.lift_constants = lift_constants
        self.creators: dict[Group, _FunctionCreator] = {}
        self.made: dict[Any, Function] = {}
        self.names: dict[Any, GlobalVar] = {}

    def _group(self, var: Expr) -> Group | None:
        group = self.groups.get(var)
        return group.find() if group is not None else None

    def _is_single(self, group: Group | None) -> bool:
        return group is None or (group.num_nodes == 1 and not group.attrs)

    def _collect(self, block: DataflowBlock) -> None:
        self.creators = {}
        for binding in block.bindings:
            group = self._group(binding.var)
            if not self._is_single(group):
                assert group is not None
                if group not in self.creators:
                    self.creators[group] = _FunctionCreator(self.mod, self.lift_constants)
                if isinstance(binding, MatchCast):
                    raise InternalError("match_cast cannot be part of a fused function")
                self.creators[group].append_binding(binding)
        for binding in block.bindings:
            current = self._group(binding.var)
            for used in direct_uses(binding.value):
                producer = self._group(used)
                if producer is not None and producer is not current and producer in self.creators:
                    self.creators[producer].append_output(used)
        for group, creator in self.creators.items():
            self._create(group, creator)

    def _create(self, group: Group, creator: _FunctionCreator) -> None:
        """Make the group's function, or find the equal one of an earlier group."""
        creator.identity = key = creator.key(group.attrs)
        known = self.made.get(key) if key is not None else None
        if known is not None:
            creator.function = known
            return
        creator.create(group.attrs)
        if creator.function is not None and key is not None:
            self.made[key] = creator.function

    def _name_of(self, creator: _FunctionCreator) -> GlobalVar:
        """The name of the group's function, which joins the module at its first call."""
        assert creator.function is not None
        known = self.names.get(creator.identity) if creator.identity is not None else None
        if known is None:
            known = self.builder_.add_func(creator.function, creator.name_hint)
            if creator.identity is not None:
                self.names[creator.identity] = known
        return known

    def _by_groups(self, block: DataflowBlock) -> list[Any]:
        """The bindings with those of a group together, every group after the groups it uses.

        A function of several outputs is called at the end of its group, and only then are its outputs there.
        """
        members: dict[Any, list[Any]] = {}
        owner: dict[Any, Any] = {}
        for binding in block.bindings:
            key = self._group(binding.var) or binding.var
            members.setdefault(key, []).append(binding)
            owner[binding.var] = key
        needs: dict[Any, dict[Any, None]] = {key: {} for key in members}
        for binding in block.bindings:
            key = owner[binding.var]
            for used in direct_uses(binding.value):
                other = owner.get(used)
                if other is not None and other is not key:
                    if key in needs[other]:
                        raise InternalError(
                            f"A cyclic dependency detected between the groups {binding.var.name_hint} and "
                            f"{used.name_hint} are in."
                        )
                    needs[key][other] = None
        # Symbolic dimensions are there after the binding that matches them.
        definer: dict[Any, Any] = {}
        for binding in block.bindings:
            key = owner[binding.var]
            for symbol in _symbols_used(binding.value):
                other = definer.get(symbol)
                if other is not None and other is not key:
                    needs[key][other] = None
            if isinstance(binding, MatchCast):
                for symbol in definable_tir_vars_in_struct_info(binding.struct_info):
                    definer.setdefault(symbol, key)
        ordered: list[Any] = []
        seen: set[Any] = set()
        for first in members:
            stack = [(first, False)]
            while stack:
                key, ready = stack.pop()
                if ready:
                    ordered.extend(members[key])
                elif key not in seen:
                    seen.add(key)
                    stack.append((key, True))
                    stack.extend((other, False) for other in reversed(needs[key]))
        return ordered

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self._collect(block)
        if not self.creators:
            return super().visit_dataflow_block_(block)
        self.builder_.begin_dataflow_block()
        pending: dict[Group, list[Var]] = {}
        for binding in self._by_groups(block):
            group = self._group(binding.var)
            if self._is_single(group):
                self.visit_binding(binding)
                continue
            assert group is not None
            creator = self.creators[group]
            if creator.function is None:
                continue
            multiple = len(creator.outputs) > 1
            if multiple and binding.var in creator.outputs:
                pending.setdefault(group, []).append(binding.var)
            if creator.bindings[-1] is binding:
                self._emit_call(binding, creator, pending.get(group, []) if multiple else None)
        return self.builder_.end_block()

    def _emit_call(self, binding: VarBinding, creator: _FunctionCreator, pending: list[Var] | None) -> None:
        assert creator.function is not None
        name = self._name_of(creator)
        args = [self.visit_expr(a) if not isinstance(a, (PrimValue, ShapeExpr)) else a for a in creator.arguments]
        args = [
            self.builder_.emit(a) if isinstance(a, TupleGetItem) else a  # an argument must be a leaf
            for a in args
        ]
        call = Call(name, args)
        if pending is None:
            (only,) = creator.outputs
            if only.is_dataflow:
                self.var_remap_[only] = self.builder_.emit(call)
            else:
                self.var_remap_[only] = self.builder_.emit_output(call)
            return
        result = self.builder_.emit(call)
        for var in pending:
            item = TupleGetItem(result, creator.outputs[var])
            if var.is_dataflow:
                self.var_remap_[var] = self.builder_.emit(item)
            else:
                self.var_remap_[var] = self.builder_.emit_output(item)


def fuse_by_groups(
    mod: IRModule, groups: Mapping[Any, Group], *, lift_constants: bool, only: set[str] | None = None
) -> IRModule:
    """Rewrite every graph function of the module (or those named in ``only``) by groups."""
    fusor = OperatorFusor(mod, groups, lift_constants)
    for var, func in functions_of(mod, Function):
        if only is not None and var.name_hint not in only:
            continue
        if func.attrs.get("Primitive") or func.attrs.get("Codegen") or func.attrs.get("Composite"):
            continue
        new = fusor.visit_expr(func)
        if new is not func:
            fusor.builder_.update_func(var, new)
    return fusor.builder_.get()
