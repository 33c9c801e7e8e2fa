"""LegalizeOps: every operator becomes a ``call_tir`` to the loops that compute it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.prim import IntImm
from ..ir.structural import structural_hash
from ..ir.transform import Pass, PassContext
from ..relax.expr import Call, Constant, ExternFunc, Function, ShapeExpr, Tuple, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..support.log import get_logger
from .base import as_module_pass

__all__ = ["LegalizeOps"]

_NEVER_LEGALIZED = ("relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed", "relax.call_inplace_packed",
                    "relax.call_tir_inplace", "relax.call_tir_with_grad")  # fmt: skip


def _known(info: StructInfo | None) -> bool:
    if isinstance(info, TensorStructInfo):
        return info.dims() is not None
    if isinstance(info, ShapeStructInfo):
        return info.values is not None
    if isinstance(info, TupleStructInfo):
        return all(_known(f) for f in info.fields)
    return True


class _Legalizer(PyExprMutator):
    """Replaces operator calls, also those that a replacement brings in."""

    def __init__(self, mod: IRModule, custom: Mapping[str, Callable[..., Any]], warn: bool) -> None:
        super().__init__(mod)
        self.custom = custom
        self.warn = warn
        self.mod = mod
        self.cache: dict[Any, Call] = {}

    def run(self) -> IRModule:
        for var, func in list(self.mod.functions.items()):
            if isinstance(func, Function):
                self.var_remap_.clear()
                new = self.visit_expr(func)
                if new is not func:
                    self.builder_.update_func(var, new)
        return self.builder_.get()

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        if not isinstance(call.op, Op) or call.op.name in _NEVER_LEGALIZED:
            return call
        return self._legalize(self.builder_.normalize(call))

    def _legalize(self, call: Any) -> Any:
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        name = call.op.name
        record = op_record_of(call.op)
        rule = self.custom.get(name) or (record.legalize if record is not None else None)
        if rule is None:
            packed = call.op.get_attr("FCallPacked")
            if packed is not None:
                from ..relax.call_forms import call_pure_packed

                info = call.struct_info
                if record is not None and not record.pure:
                    return Call(ExternFunc(str(packed)), call.args, None, (info,), call.span)
                return call_pure_packed(str(packed), *call.args, sinfo_args=info)
            if self.warn and not name.startswith(("relax.call_", "relax.memory", "relax.builtin", "relax.vm")):
                get_logger("relax.legalize").warning("no legalization of %s is found", name)
            return call
        needs_shapes = call.op.get_attr("RequiresArgumentShapes")
        if name not in self.custom and needs_shapes is not False:
            if not all(_known(arg.struct_info_) for arg in call.args) or (
                not call.op.get_attr("FDataDependent") and not _known(call.struct_info_)
            ):
                return call
        key = _cache_key(call)
        known = self.cache.get(key) if key is not None else None
        if known is not None:
            return _again(known, call)
        with _target_of(call):
            new = rule(self.builder_, call)
        new = self.builder_.normalize(new)
        if key is not None and _is_plain_call_tir(new, call):
            self.cache[key] = new
        if new is call or not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        if new.op is call.op and new.op.name not in _NEVER_LEGALIZED:
            return new
        return new if new.op.name in _NEVER_LEGALIZED else self._legalize(new)


def _cache_key(call: Call) -> Any:
    """What decides the legalised form of a call on variables of static or shared symbolic shapes, or None."""
    infos = []
    for arg in call.args:
        info = arg.struct_info_
        if not isinstance(info, TensorStructInfo) or not isinstance(info.shape, ShapeExpr):
            return None
        # A rule may look into a constant scalar, but not into a constant tensor.
        if not isinstance(arg, Var) and not (isinstance(arg, Constant) and info.shape.values):
            return None
        dims = tuple(d.value if isinstance(d, IntImm) else d for d in info.shape.values)
        infos.append((dims, info.dtype, info.vdevice, isinstance(arg, Var)))
    attrs = None if call.attrs is None else structural_hash(call.attrs)
    return call.op, attrs, tuple(infos), len(set(call.args)) == len(call.args)


def _is_plain_call_tir(new: Any, call: Call) -> bool:
    """Whether the result is one ``call_tir`` on exactly the operator's arguments."""
    if not isinstance(new, Call) or not isinstance(new.op, Op) or new.op.name != "relax.call_tir":
        return False
    args = getattr(new.args[1], "fields", ())
    return len(args) == len(call.args) and all(a is b for a, b in zip(args, call.args))


def _again(known: Call, call: Call) -> Call:
    made = Call(known.op, (known.args[0], Tuple(call.args), *known.args[2:]), known.attrs, known.sinfo_args, call.span)
    made.struct_info_ = known.struct_info_
    return made


def _target_of(call: Call) -> Any:
    """The target scope of the virtual device a call's result lives on."""
    info = call.struct_info_
    device = info.vdevice if isinstance(info, TensorStructInfo) else None
    target = getattr(device, "target", None)
    return target if hasattr(target, "__enter__") else contextlib.nullcontext()


def LegalizeOps(  # noqa: N802  (public name of the pass)
    customize_legalize_map: Mapping[str, Callable[..., Any]] | None = None, enable_warning: bool = False
) -> Pass:
    """Lower operators to ``call_tir``.

    ``lv = R.add(x, y)`` becomes ``lv = R.call_tir(cls.add, (x, y), out_sinfo=...)`` plus ``@T.prim_func add``.
    ``customize_legalize_map`` maps operator names to functions ``(BlockBuilder, Call) -> Expr`` that go first.
    Operators on tensors of unknown shape stay.
    """

    def run(mod: IRModule) -> IRModule:
        if PassContext.current().config.get("relax.transform.apply_legalize_ops", True) is False:
            return mod
        return _Legalizer(mod, dict(customize_legalize_map or {}), enable_warning).run()

    return as_module_pass(run, "LegalizeOps")
