"""The pass that gives attention kernels of its own on GPUs with tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from .... import op
from ....ir.expr import RelaxExpr
from ....ir.module import IRModule, functions_of
from ....ir.op import op_name_of
from ....ir.transform import Pass, PassContext, PassInfo
from ....relax.analysis import remove_all_unused
from ....relax.call_forms import call_tir
from ....relax.expr import Call, Function, TupleGetItem
from ....relax.expr_functor import PyExprMutator
from ....relax.scalars import const_int, prove_equal
from ....relax.struct_info import TensorStructInfo
from ....target import Target
from .chains import Chain, find_chains
from .combine import combine_kernel
from .layouts import Users
from .kernel import attention_kernel, partial_shapes
from .problem import AttentionProblem
from .masks import known_bias, mask_of
from .reading import bias_view, is_usable, of_sequences, read_problem, with_fresh_vars
from .tiling import Tiling, choose_tiling
from .views import View, view_of, without_repeats
from ....ir.plain import plain_float

__all__ = ["DispatchAttention"]

_OPERATORS = ("relax.nn.attention", "relax.nn.attention_bias", "relax.nn.attention_var_len")
_FIRST_WITH_KERNEL = 80


def _has_kernels(target: Target | None) -> bool:
    """Whether a target has the instructions that kernels use. Code for a target that names no architecture is sm_80's."""
    if target is None or str(getattr(target.kind, "name", target.kind)) != "cuda":
        return False
    digits = "".join(c for c in str(target.attrs.get("arch", "sm_80")).partition("sm_")[2] if c.isdigit())
    return int(digits or 0) >= _FIRST_WITH_KERNEL


@dataclass(frozen=True)
class _Task:
    """One attention of a graph: ``[batch, rows, heads, columns]`` tensors, and ``starts`` of the sequences in them if any.

    With ``heads_first`` the result is to lie in memory with heads before rows; ``window`` is that of a causal mask.
    """

    qkv: Sequence[Any]
    bias: Any
    scale: float
    causal: str | None
    heads_first: bool
    starts: Sequence[Any] = ()
    window: int | None = None


class DispatchAttention(Pass):
    """Replaces attention of float16 and bfloat16 by kernels that keep the scores in registers (:mod:`.kernel`).

    Before and after (transposes of operands and result are read through, repeated biases are not written out)::

        q1 = R.permute_dims(q, axes=[0, 2, 1, 3])                   out = R.call_tir(cls.attention, (q, k, v, mask), ...)
        q2 = R.permute_dims(q1, axes=[0, 2, 1, 3])
        bias = R.broadcast_to(mask, R.shape([1, 12, 128, 128]))
        out = R.nn.attention_bias(q2, k, v, bias)

    Attention that is written out as products and a softmax is found, too (:mod:`.chains`). What no kernel fits stays as
    it is.
    """

    def __init__(self, target: Target | None = None) -> None:
        super().__init__(PassInfo(0, "DispatchAttention"))
        self.target = target

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with its attentions replaced.

        Each runs on the target of its result's virtual device; without one on the pass's target, else that in scope.
        """
        target = self.target if self.target is not None else Target.current()
        rewriter = _AttentionDispatcher(mod, target)
        for gvar, func in functions_of(mod, Function):
            made = rewriter.rewrite(func)
            if made is not func:
                rewriter.builder_.update_func(gvar, made)
        return rewriter.builder_.get() if rewriter.found else mod


class _AttentionDispatcher(PyExprMutator):
    def __init__(self, mod: IRModule, target: Target | None) -> None:
        super().__init__(mod)
        self.target = target
        self.found = False
        self.here = False
        self.chains: dict[Call, Chain] = {}
        self.users: Users | None = None

    def rewrite(self, func: Function) -> Function:
        """The function with its attentions replaced; the same if it has none."""
        self.here, self.chains, self.users = False, find_chains(func), None
        self.func = func
        made = self.visit_expr(func)
        if not self.here:
            return func
        self.found = True
        cleaned: Function = remove_all_unused(made)
        return cleaned

    def visit_call_(self, op: Call) -> RelaxExpr:
        chain = self.chains.get(op)
        call = super().visit_call_(op)
        if chain is not None:
            made = self._of_chain(chain, call, self._wants_transposed(op))
            return call if made is None else made
        name = op_name_of(call)
        if name in _OPERATORS and (call.attrs.window_size is None or call.attrs.causal_mask is not None):
            made = self._of_operator(op, call)
            return call if made is None else made
        if self.here and name == "relax.permute_dims":
            return self._as_reshape(call)
        return call

    def _of_operator(self, op: Call, call: Call) -> RelaxExpr | None:
        """The kernel for a call of an operator, whose result lies in memory as its users want it."""
        scale = call.attrs.scale
        factor = 1 / sqrt(_last(call.args[0]) or 1) if scale is None else plain_float(scale)
        ragged = len(call.args) > 4
        task = _Task(
            call.args[:3], call.args[3] if len(call.args) == 4 else None, factor, call.attrs.causal_mask,
            self._wants_transposed(op), call.args[3:5] if ragged else (), const_int(call.attrs.window_size),
        )  # fmt: skip
        made = self._kernel(task, call.struct_info)
        return made if made is None or not task.heads_first else self._turned(made)

    def _wants_transposed(self, call: Call) -> bool:
        if self.users is None:
            self.users = Users(self.func)
        return self.users.wants_transposed(call)

    def _turned(self, value: RelaxExpr) -> RelaxExpr:
        """A tensor with its second and third axes exchanged."""
        return op.permute_dims(self.builder_.emit(value), [0, 2, 1, 3])

    def _as_reshape(self, call: Call) -> RelaxExpr:
        """Transposes that undo each other are at most a reshape."""
        view = view_of(call, self.lookup_binding)
        if view is None or not view.is_packed or view.dtype != call.struct_info.dtype:
            return call
        whole = View.whole(view.source)
        if whole is not None and whole.shape == view.shape:
            return view.source
        return op.reshape(view.source, call.struct_info.shape)

    def _of_chain(self, chain: Chain, call: Call, rows_first: bool) -> RelaxExpr | None:
        """The attention of a chain; the products have heads before rows, and the result too unless ``rows_first``."""
        q, k, v = (self.visit_expr(e) for e in (chain.q, chain.k_transposed, chain.v))
        four = [self.builder_.emit(x) for x in (
            op.permute_dims(q, [0, 2, 1, 3]), op.permute_dims(k, [0, 3, 1, 2]), op.permute_dims(v, [0, 2, 1, 3]),
        )]  # fmt: skip
        bias = None if chain.bias is None else chain.emit_bias(self.builder_, self.visit_expr)
        batch, heads, rows, columns = call.struct_info.dims()
        info = TensorStructInfo([batch, rows, heads, columns], q.struct_info.dtype, call.struct_info.vdevice)
        made = self._kernel(_Task(four, bias, chain.scale, None, not rows_first), info)
        if made is None:
            return None
        made = self._turned(made) if rows_first else made
        dtype = call.struct_info.dtype
        return made if info.dtype == dtype else op.astype(self.builder_.emit(made), dtype)

    # -- one attention ---------------------------------------------------------------------------------------

    def _kernel(self, task: _Task, info: TensorStructInfo) -> RelaxExpr | None:
        """A call of a kernel, or None where none fits. ``info`` is the result's, of axes batch, rows, heads, columns."""
        target = info.vdevice.target if info.vdevice is not None else self.target
        if target is None or not _has_kernels(target):
            return None
        views = self._operands(task.qkv)
        bias = None if task.bias is None else bias_view(task.bias, self.lookup_binding)
        if views is None or (task.bias is not None and bias is None):
            return None
        bias, causal, window = self._mask(views, bias, task)
        problem = read_problem(views, bias, task.scale, causal, task.heads_first)
        if problem is not None and task.starts:
            length = _table_length(task.starts)
            problem = None if length is None else of_sequences(problem, length)
        if problem is not None and window is not None:
            problem = replace(problem, window=window)
        tiling = None if problem is None else choose_tiling(problem, target)
        if problem is None or tiling is None:
            return None
        args = [x.source for x in views] + ([bias.source] if bias is not None else []) + [*task.starts]
        self.here = True
        if task.heads_first:
            batch, rows, heads, columns = info.dims() or ()
            info = TensorStructInfo([batch, heads, rows, columns], info.dtype, info.vdevice)
        return self._call(problem, tiling, args, info)

    def _mask(
        self, views: list[View], bias: View | None, task: _Task
    ) -> tuple[View | None, str | None, int | None]:  # fmt: skip
        """(bias, causal mask, its window); a bias that is known to be nothing, or a mask, is no bias."""
        asked = bias, task.causal, task.window
        array = None if bias is None else known_bias(bias, self.lookup_binding)
        rows, keys = const_int(views[0].shape[1]), const_int(views[1].shape[1])
        if bias is None or array is None or rows is None or keys is None:
            return asked
        mask = mask_of(array, rows, keys)
        if mask is None:
            return asked
        name, window = mask
        if name == "":
            return None, task.causal, task.window
        if task.causal not in (None, name) or (task.window is not None and window not in (None, task.window)):
            return asked
        return None, name, task.window if window is None else window

    def _operands(self, qkv: Sequence[RelaxExpr]) -> list[View] | None:
        """Queries, keys and values in the memory they are in; heads of keys without the repeats of a group."""
        views = [view_of(x, self.lookup_binding) for x in qkv]
        grouped = [without_repeats(x, 2, self.lookup_binding) for x in qkv[1:]]
        if all(g is not None for g in grouped) and len({g[1] for g in grouped if g is not None}) == 1:
            views[1:] = [g[0] for g in grouped if g is not None and is_usable(g[0])] or views[1:]
        chosen = [v if v is not None and is_usable(v) else View.whole(x) for v, x in zip(views, qkv, strict=False)]
        return None if len(chosen) != 3 or any(v is None for v in chosen) else [v for v in chosen if v is not None]

    def _call(self, problem: AttentionProblem, tiling: Tiling, args: list[Any], info: TensorStructInfo) -> RelaxExpr:
        fresh = with_fresh_vars(problem)
        kernel = self.builder_.add_func(attention_kernel(fresh, tiling), "attention")
        if tiling.parts == 1:
            return call_tir(kernel, args, info)
        shapes = partial_shapes(problem, tiling)
        parts = self.builder_.emit(call_tir(kernel, args, [TensorStructInfo(list(s), "float32") for s in shapes]))
        combine = self.builder_.add_func(combine_kernel(fresh, tiling), "combine_attention")
        pair = [self.builder_.emit(TupleGetItem(parts, i)) for i in range(2)]
        return call_tir(combine, pair, info)


def _last(expr: RelaxExpr) -> int | None:
    dims = expr.struct_info.dims()
    return None if dims is None else const_int(dims[-1])


def _table_length(starts: Sequence[Any]) -> Any:
    """The length of the tables of starts of queries and keys; None unless both have the same, in int32."""
    infos = [x.struct_info for x in starts]
    dims = [info.dims() for info in infos]
    if any(info.dtype != "int32" or not d or len(d) != 1 for info, d in zip(infos, dims, strict=True)):
        return None
    length, other = dims[0][0], dims[1][0]
    number = const_int(length)
    return (length if number is None else number) if prove_equal(length, other) else None
