"""MakeUnpackedAPI: functions take plain pointers and scalars, the convention of bare-metal code."""

from __future__ import annotations


from ....ir.expr import GlobalVar, PrimExpr
from ....ir.module import IRModule, functions_of
from ....ir.prim import Call, IntImm
from ....ir.types import PrimType
from ...function import PrimFunc
from ...stmt import AttrStmt, Evaluate, SeqStmt, Stmt
from ..base import LoweringError, StmtExprMutator, call, is_call, merge_nest
from ....ir.declared_pass import ModuleRewrite


class _Calls(StmtExprMutator):
    """Array arguments of calls to functions that take plain pointers become those pointers."""

    def __init__(self, unpacked: set[GlobalVar]) -> None:
        self.unpacked = unpacked

    def visit_Call(self, e: Call) -> PrimExpr:
        node = self.default_visit(e)
        if not isinstance(node.op, GlobalVar) or node.op not in self.unpacked:
            return node
        args = [a.args[0] if is_call(a, "tvm_stack_make_array") else a for a in node.args]
        return node.with_fields(args=tuple(args))


def requires_unpacked_api(func: PrimFunc) -> bool:
    """Whether a function is called from outside and has no calling convention yet."""
    return int(func.get_attr("calling_conv") or 0) == 0 and func.get_attr("global_symbol") is not None


def make_unpacked(func: PrimFunc) -> PrimFunc:
    """The unpacked form of one function. Raises ValueError if it has no target."""
    target = func.get_attr("target")
    if target is None:
        raise LoweringError(
            "MakeUnpackedAPI required the function to be annotated with tvm::attr::kTarget (target), but the function "
            f"only has attributes {dict(func.attrs.items())}"
        )
    if target.host is None:
        return func
    params = [func.buffer_map[p].data if p in func.buffer_map else p for p in func.params]
    nest: list[Stmt] = []
    if func.buffer_map:
        node = "default"
        nest.append(AttrStmt(node, "device_id", 0, Evaluate(0)))
        nest.append(AttrStmt(node, "device_type", target.get_target_device_type(), Evaluate(0)))
    done = Evaluate(call("int32", "ret", IntImm("int32", 0)))
    body = merge_nest(nest, SeqStmt([func.body, done]))
    made = PrimFunc(params, body, PrimType("int32"), None, func.attrs, func.span)
    return made.with_attr("target", target.host)


def lower(mod: IRModule) -> IRModule:
    """Give all externally visible functions the unpacked convention."""
    unpacked = {v for v, f in functions_of(mod, PrimFunc) if requires_unpacked_api(f)}
    out, changed = mod.clone(), False
    for var, func in functions_of(mod, PrimFunc):
        body = _Calls(unpacked).visit(func.body)
        new = func if body is func.body else func.with_body(body)
        if var in unpacked:
            new = make_unpacked(new)
        if new is not func:
            out.update_func(var, new)
            changed = True
    return out if changed else mod


class MakeUnpackedAPI(ModuleRewrite, name="tir.MakeUnpackedAPI"):
    """Give externally visible functions plain parameters: a data pointer for each buffer, scalars as they are.

    Before::

        def main(A: T.Buffer((16,), "float32")): ...

    After::

        def main(A: T.handle("float32")) -> T.int32:
            ...
            return 0

    Raises ValueError for a function without a target.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return lower(mod)
