"""Shared parts of the passes that hand operators to libraries and special kernels."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.expr import Expr, Function
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..target import Target
from ..transform.base import as_module_pass
from ..transform.fuse_ops_by_pattern import PatternCheckContext
from ..ir.prim import const_int

__all__ = ["BackendDispatcher", "has_leaking_intermediate_variables", "workspace_annotator"]

_BYTES = {"float16": 2, "float32": 4}


class BackendDispatcher(PyExprMutator):
    """A mutator that knows for which target each of its calls will run."""

    @staticmethod
    def is_gpu_target(target: Target) -> bool:
        """Whether the target is a GPU."""
        return "gpu" in target.keys

    def _get_target(self, sinfo: StructInfo) -> Target:
        """The target of the virtual device the result lives on, else the one in scope.

        Raises ValueError if there is neither.
        """
        match sinfo:
            case TensorStructInfo():
                if sinfo.vdevice is not None:
                    return sinfo.vdevice.target
            case TupleStructInfo():
                for field in sinfo.fields:
                    found = self._get_target(field)
                    if found is not Target.current():
                        return found
        target = Target.current()
        if target is None:
            raise ValueError(
                "Target not found. Please ensure that the target is annotated within the module, "
                "or alternatively, execute this within a specified target context."
            )
        return target

    @staticmethod
    def get_shape_dtype(expr: Expr) -> tuple[Any, str]:
        """Shape and dtype of a tensor."""
        info = expr.struct_info
        return info.shape, info.dtype


def has_leaking_intermediate_variables(context: PatternCheckContext) -> bool:
    """Whether a value inside the match is used outside of it, so that fusing would lose it."""
    output = context.value_to_bound_var[context.matched_expr]
    inner = [var for var in context.matched_bindings if var is not output]
    if not all(var.is_dataflow for var in inner):
        return True  # visible outside of its block
    return any(user not in context.matched_bindings for var in inner for user in context.var_usages.get(var, ()))


class _Workspaces(PyExprMutator):
    """Notes on each attention that goes to the library how much scratch memory it may ask for: its output's size."""

    def __init__(self, mod: IRModule, library: str) -> None:
        super().__init__(mod)
        self.library = library

    def visit_function_(self, op: Function) -> Function:
        composite = op.attrs.get("Composite")
        if composite is not None:
            if "attention" in composite and self.library in composite:
                return op.with_attr("WorkspaceSize", _output_bytes(op))
            return op
        body = self.visit_expr(op.body)
        made = Function(op.params, body, op.ret_struct_info, op.is_pure, op.attrs, op.span)
        if self.library in str(op.attrs.get("global_symbol") or ""):
            inner = body.blocks[0].bindings[0].value
            size = inner.attrs.get("WorkspaceSize") if isinstance(inner, Function) else None
            if size is not None:
                return made.with_attr("WorkspaceSize", size)
        return made


def _output_bytes(func: Function) -> int:
    info = func.ret_struct_info
    size = _BYTES[info.dtype]
    for dim in info.shape:
        extent = const_int(dim)
        if extent is None:
            return 8  # not known before the call; the kernels for such shapes bring their own
        size *= extent
    return size


def workspace_annotator(library: str) -> Pass:
    """The pass that sets ``WorkspaceSize`` on the functions for ``library`` that compute an attention."""

    def run(mod: IRModule) -> IRModule:
        annotator = _Workspaces(mod, library)
        return rewrite_functions(annotator, mod)

    return as_module_pass(run, "annotate_workspace")
