"""LegalizeOps: every operator becomes a ``call_tir`` to the loops that compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule, functions_of
from ...ir.op import Op, op_name_of
from ...ir.prim import const_int
from ...ir.structural import structural_hash
from ...ir.transform import PassContext
from ...relax.expr import Call, Constant, Expr, ExternFunc, Function, ShapeExpr, Tuple, Var, is_call_of
from ...relax.expr_functor import PyExprMutator
from ...relax.op_table import op_record_of
from ...relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo, is_pure_function
from ...op.nn.attention import ATTENTION_KERNELS
from ...support.log import get_logger
from ...target.target import Target
from ...tir import PrimFunc
from ...tir.transform import ConvertSSA
from ..dead_code_elimination import DeadCodeElimination
from ...ir.declared_pass import ModuleRewrite
from ..kernel_origins import remember_operator

__all__ = ["LegalizeOps", "legalization_key"]

_CALLS = ("relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed")

Rule = Callable[[Any, Call], Any]


def _known(info: StructInfo | None) -> bool:
    match info:
        case TensorStructInfo():
            return info.dims() is not None
        case ShapeStructInfo():
            return info.values is not None
        case TupleStructInfo():
            return all(_known(f) for f in info.fields)
    return True


class _Legalizer(PyExprMutator):
    """Replaces operator calls, also those that a replacement brings in."""

    def __init__(self, mod: IRModule, custom: Mapping[str, Rule], warn: bool) -> None:
        super().__init__(mod)
        self.custom = custom
        self.warn = warn
        self.mod = mod
        self.cache: dict[Any, Call] = {}
        self.made_for_device = False

    def run(self) -> IRModule:
        for var, func in functions_of(self.mod, Function):
            self.var_remap_.clear()
            new = self.visit_expr(func)
            if new is not func:
                self.builder_.update_func(var, new)
        mod = self.builder_.get()
        if not self.made_for_device:
            return mod
        # Loops of which only the copies for devices are called go; the copies share no variables.
        done: IRModule = ConvertSSA()(DeadCodeElimination()(mod))
        return done

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not op_name_of(call):
            return call
        call = self.builder_.normalize(call)
        if not op_name_of(call):
            return call
        rule = self._rule(call)
        if rule is None:
            return call
        key = legalization_key(call)
        known = self.cache.get(key) if key is not None else None
        if known is not None:
            return _again(known, call)
        new = self._apply(rule, call)
        if is_call_of(new, "relax.call_tir") and self.custom.get(call.op.name) in (None, *ATTENTION_KERNELS.values()):
            func = self.builder_.get().functions.get(new.args[0])
            if isinstance(func, PrimFunc):
                remember_operator(func, new, call)
        if key is not None and _is_plain_call_tir(new, call):
            self.cache[key] = new
        return new

    def _rule(self, call: Call) -> Rule | None:
        """How to lower a call: the user's way, the operator's, or as a call of a packed function."""
        name = call.op.name
        known = _shapes_known(call)
        record = op_record_of(call.op)
        rule = self.custom.get(name) or (record.legalize if record is not None else None)
        if rule is not None and known:
            return rule
        packed = call.op.get_attr("FCallPacked")
        if packed is not None:
            return lambda builder, call: Call(ExternFunc(str(packed)), call.args, None, (call.struct_info,), call.span)
        if self.warn and name not in _CALLS:
            log = get_logger("relax.legalize")
            if known:
                log.warning("No legalization func for %s is found.", name)
            else:
                log.warning("Cannot legalize %s, missing known shapes for arguments and return value", call)
        return None

    def _apply(self, rule: Rule, call: Call) -> Any:
        # What a rule binds on the way is lowered in turn.
        if self.builder_.in_block() and self.builder_.current_block_is_dataflow():
            self.builder_.begin_dataflow_block()
        else:
            self.builder_.begin_binding_block()
        new = self.builder_.normalize(self._for_device(rule(self.builder_, call)))
        for binding in self.builder_.end_block().bindings:
            self.visit_binding(binding)
        if isinstance(new, Call) and _is_pure(call) and not _is_pure(new):
            new = Call(Op.get("relax.call_pure_packed"), (new.op, *new.args), new.attrs, new.sinfo_args, new.span)
        return new if new is call else self.visit_expr(new)

    def _for_device(self, new: Any) -> Expr:
        """A call of loops on a virtual device goes to a copy of the loops that carries the device's target."""
        target = _target_of(new.sinfo_args) if isinstance(new, Call) else None
        if target is None or not new.args or not isinstance(new.args[0], GlobalVar):
            return new
        var = new.args[0]
        func = self.builder_.get().functions[var]
        if not isinstance(func, PrimFunc):
            return new
        has = func.attrs.get("target") if func.attrs is not None else None
        if has is not None and has.kind.name == target.kind.name:
            return new
        self.made_for_device = True
        copy = self.builder_.add_func(func.with_attr("target", target), f"{var.name_hint}_{target.kind.name}")
        return Call(new.op, (copy, *new.args[1:]), new.attrs, new.sinfo_args, new.span)


def _shapes_known(call: Call) -> bool:
    """Whether all shapes that lowering needs are known: those of the arguments, and of what does not depend on data."""
    if call.op.get_attr("RequiresArgumentShapes") is False:
        return True
    if not all(_known(arg.struct_info_) for arg in call.args):
        return False
    return "dynamic" in call.op.name or _known(call.struct_info_)


def _is_pure(call: Call) -> bool:
    if op_name_of(call):
        return bool(call.op.get_attr("FPurity"))
    info = call.op.struct_info_
    return bool(is_pure_function(info))


def legalization_key(call: Call) -> tuple[Any, ...] | None:
    """Hashable values that determine the legalised form of a call on variables of static or shared symbolic shapes, or
    None."""
    infos = []
    for arg in call.args:
        info = arg.struct_info_
        if not isinstance(info, TensorStructInfo) or not isinstance(info.shape, ShapeExpr):
            return None
        # A rule may look into a constant scalar, but not into a constant tensor.
        if not isinstance(arg, Var) and not (isinstance(arg, Constant) and info.shape.values):
            return None
        dims = tuple(const_int(d, d) for d in info.shape.values)
        infos.append((dims, info.dtype, info.vdevice, isinstance(arg, Var)))
    attrs = None if call.attrs is None else structural_hash(call.attrs)
    return call.op, attrs, tuple(infos), len(set(call.args)) == len(call.args)


def _is_plain_call_tir(new: Expr, call: Call) -> bool:
    """Whether the result is one ``call_tir`` on exactly the operator's arguments."""
    if not is_call_of(new, "relax.call_tir"):
        return False
    args = getattr(new.args[1], "fields", ())
    return len(args) == len(call.args) and all(a is b for a, b in zip(args, call.args))


def _again(known: Call, call: Call) -> Call:
    made = Call(known.op, (known.args[0], Tuple(call.args), *known.args[2:]), known.attrs, known.sinfo_args, call.span)
    made.struct_info_ = known.struct_info_
    return made


def _target_of(infos: Sequence[StructInfo]) -> Target | None:
    """The target of the first virtual device that results live on, or None."""
    for info in infos:
        match info:
            case TensorStructInfo():
                target = getattr(info.vdevice, "target", None)
                if target is not None:
                    return target
            case TupleStructInfo():
                return _target_of(info.fields)
    return None


class LegalizeOps(ModuleRewrite):
    """Lower operators to ``call_tir``.

    ``lv = R.add(x, y)`` becomes ``lv = R.call_tir(cls.add, (x, y), out_sinfo=...)`` plus ``@T.prim_func add``.
    ``customize_legalize_map`` maps operator names to functions ``(BlockBuilder, Call) -> Expr`` that go first.
    Operators on tensors of unknown shape stay.
    """

    customize_legalize_map: Mapping[str, Callable[..., Any]] | None = None
    enable_warning: bool = False

    def rewrite(self, mod: IRModule) -> IRModule:
        if PassContext.current().config.get("relax.transform.apply_legalize_ops", True) is False:
            return mod
        return _Legalizer(mod, dict(self.customize_legalize_map or {}), self.enable_warning).run()
