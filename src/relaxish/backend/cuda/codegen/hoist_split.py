"""HoistOverSplit: what happens to all parts of a split tensor alike happens to the whole, before it is split."""

from __future__ import annotations

from collections.abc import Sequence, Callable
from dataclasses import dataclass, field
from typing import Any

from ....ir.declared_pass import ModuleRewrite
from ....ir.module import IRModule
from ....relax.analysis.variables import direct_uses
from ....relax.expr import Call, Constant, Expr, Function, TupleGetItem, Var, VarBinding, is_call_of
from ....relax.expr_functor import PyExprMutator
from ....relax.op_table import op_function
from ....relax.scalars import const_int
from ....relax.struct_info import TensorStructInfo
from ....transform.base import map_relax_functions
from ....ir.plain import plain_int
from ....relax.utils import followed

__all__ = ["HoistOverSplit", "known_at_compile_time"]

# Through these a tensor is known when the model is compiled if what they take is.
_FOLDED = frozenset({"relax.astype", "relax.permute_dims", "relax.reshape", "relax.concat"})


def known_at_compile_time(expr: Expr, values: Any) -> bool:
    """Whether a tensor is made of constants alone; ``values`` are the bindings of variables."""
    expr = followed(expr, values.get)
    if isinstance(expr, Constant):
        return True
    if not is_call_of(expr, *_FOLDED):
        return False
    return all(known_at_compile_time(a, values) for a in expr.args if isinstance(a.struct_info_, TensorStructInfo))


@dataclass
class _Program:
    """The bindings of a function and who reads each variable; None stands for the function's result."""

    values: dict[Var, Any] = field(default_factory=dict)
    readers: dict[Var, list[Var | None]] = field(default_factory=dict)

    @staticmethod
    def of(func: Function) -> _Program:
        made = _Program()
        for block in func.body.blocks:
            for binding in block.bindings:
                made.values[binding.var] = binding.value
                for used in direct_uses(binding.value):
                    made.readers.setdefault(used, []).append(binding.var)
        for used in direct_uses(func.body.body):
            made.readers.setdefault(used, []).append(None)
        return made

    def only_reader(self, var: Var) -> Var | None:
        found = self.readers.get(var, [])
        return found[0] if len(found) == 1 else None


class _Hoister(PyExprMutator):
    """One round: of every split that allows it, the first step of its parts."""

    def __init__(self, mod: IRModule, func: Function) -> None:
        super().__init__(mod)
        self.p = _Program.of(func)
        self.gone: set[Var] = set()
        self.parts: dict[Var, tuple[Any, int]] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if binding.var in self.gone:
            return
        if binding.var in self.parts:
            whole, index = self.parts[binding.var]
            self.reemit_binding(binding, self.builder_.normalize(TupleGetItem(whole, index)))
            return
        if is_call_of(binding.value, "relax.split") and self._hoist(binding):
            return
        super().visit_var_binding_(binding)

    def _hoist(self, binding: VarBinding) -> bool:
        split: Any = binding.value
        items = [(v, self.p.values.get(v)) for v in self.p.readers.get(binding.var, []) if v is not None]
        taken = {e.index: v for v, e in items if isinstance(e, TupleGetItem)}
        count = len(binding.var.struct_info.fields)
        if len(taken) != count or len(self.p.readers[binding.var]) != count:
            return False
        ends = [self.p.only_reader(taken[i]) for i in range(count)]
        if any(e is None or not isinstance(self.p.values.get(e), Call) for e in ends):
            return False
        step = self._step([(taken[i], self.p.values[e]) for i, e in enumerate(ends) if e is not None], split)
        if step is None:
            return False
        whole = self.builder_.emit(step(self.visit_expr(split.args[0])))
        made = self.builder_.emit(Call(split.op, (whole, *split.args[1:]), split.attrs))
        self.gone |= set(taken.values())
        self.parts.update({e: (made, i) for i, e in enumerate(ends) if e is not None})
        return True

    def _step(self, calls: Sequence[tuple[Var, Any]], split: Any) -> Callable[[Expr], Expr] | None:
        """What the parts have in common, as a function of the whole; None if it is nothing."""
        first = calls[0][1]
        if all(is_call_of(c, "relax.astype") and c.attrs.dtype == first.attrs.dtype for _, c in calls):
            return lambda whole: op_function("astype")(whole, first.attrs.dtype)
        if not all(is_call_of(c, "relax.add") and c.args[0] is part for part, c in calls):
            return None
        biases = [c.args[1] for _, c in calls]
        last = split.args[0].struct_info.ndim - 1
        if plain_int(split.attrs.axis) % (last + 1) != last:
            return None
        for (part, _), bias in zip(calls, biases, strict=True):
            width = const_int(part.struct_info.dims()[-1])
            dims = bias.struct_info.dims()
            if dims is None or [const_int(d) for d in dims] != [width] or width is None:
                return None
            if not known_at_compile_time(bias, self.p.values):
                return None

        def add_all(whole: Expr) -> Expr:
            together = self.builder_.emit(op_function("concat")([self._constant(b) for b in biases], 0))
            return op_function("add")(whole, together)

        return add_all

    def _constant(self, expr: Any) -> Expr:
        """A tensor made of constants, once more: it may be bound further down."""
        expr = followed(expr, self.p.values.get)
        if isinstance(expr, Constant):
            return expr
        args = [self._constant(a) if isinstance(a.struct_info_, TensorStructInfo) else a for a in expr.args]
        return self.builder_.emit(Call(expr.op, args, expr.attrs, expr.sinfo_args))


class HoistOverSplit(ModuleRewrite):
    """Conversions and biases of all parts of a tensor, such as merged projections, are those of the tensor.

    Before and after::

        parts = R.split(y, 3, axis=-1)                        z = R.add(R.astype(y, "float16"), R.concat((b0, b1, b2)))
        q = R.add(R.astype(parts[0], "float16"), b0)    ->    parts = R.split(z, 3, axis=-1)
        k = R.add(R.astype(parts[1], "float16"), b1)          q, k, v = parts[0], parts[1], parts[2]
        v = R.add(R.astype(parts[2], "float16"), b2)

    The biases must be known at compile time, so that putting them together costs nothing.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        def hoist(func: Function) -> Function:
            while True:
                hoister = _Hoister(mod, func)
                made: Function = hoister.visit_expr(func)
                if not hoister.parts:
                    return func
                func = made

        return map_relax_functions(mod, lambda _, func: hoist(func))
