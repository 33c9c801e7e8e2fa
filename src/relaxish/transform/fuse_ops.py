"""FuseOps: groups ``call_tir`` bindings of a dataflow block into functions that FuseTIR makes one kernel each."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.transform import PassContext
from ..relax.analysis.tir_pattern import OpPatternKind as K
from ..relax.analysis.variables import direct_uses
from ..relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_call_of,
)
from ..relax.struct_info import fields_of
from ..support.sequences import of_kind
from .graph_partition import ForwardGraph, GraphNode, partition
from .grouped_functions import fuse_by_groups
from ..ir.plain import plain_int
from ..ir.declared_pass import ModuleRewrite

__all__ = ["FuseOps", "build_forward_graph"]


class _GraphCreator:
    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.graph = ForwardGraph()

    def run(self) -> ForwardGraph:
        for func in of_kind(self.mod.functions.values(), Function):
            if not func.attrs.get("Codegen") and not func.attrs.get("Primitive"):
                for param in func.params:
                    self.graph.place(self.graph.create(param))
                self._seq(func.body)
        return self.graph

    def _seq(self, body: SeqExpr) -> None:
        for block in body.blocks:
            if block.is_dataflow:
                for binding in block.bindings:
                    self._binding(binding)
            else:
                self._plain_block(block)

    def _plain_block(self, block: BindingBlock) -> None:
        """Ordinary blocks are not fused, but blocks inside them may be."""
        from ..relax.expr import If

        for binding in block.bindings:
            value = binding.value
            match value:
                case If():
                    self._seq(value.true_branch)
                    self._seq(value.false_branch)
                case Function():
                    for param in value.params:
                        self.graph.place(self.graph.create(param))
                    self._seq(value.body)
            self.graph.place(self.graph.create(binding.var))

    def _binding(self, binding: Binding) -> None:
        graph = self.graph
        node = graph.create(binding.var)
        value = binding.value
        if isinstance(binding, VarBinding):
            node.extern_ref = not binding.var.is_dataflow
            match value:
                case Call():
                    self._call(value, node)
                case TupleGetItem():
                    node.pattern = K.INJECTIVE
                    self._leaf(value.tuple_value, node, K.INJECTIVE)
                case _:
                    for used in direct_uses(value):
                        self._leaf(used, node, K.OPAQUE)
        graph.place(node)

    def _call(self, call: Call, node: GraphNode) -> None:
        args: Any = call.args
        if is_call_of(call, "relax.call_tir", "relax.call_tir_inplace"):
            func = self.mod[call.args[0]] if call.args[0] in self.mod else None
            if func is not None and func.attrs is not None:
                pattern = func.attrs.get("op_pattern", K.OPAQUE)
                node.pattern = plain_int(pattern)
            args = fields_of(call.args[1])
        for arg in args:
            self._leaf(arg, node, node.pattern)

    def _leaf(self, leaf: Expr, node: GraphNode, pattern: int) -> None:
        if isinstance(leaf, Tuple):
            for item in leaf.fields:
                self._leaf(item, node, pattern)
            return
        if not isinstance(leaf, (Var, Constant)):
            return
        source = self.graph.nodes.get(leaf)
        if source is None:
            source = self.graph.create(leaf)
            self.graph.place(source)
        source.outputs.append((node, pattern))


def build_forward_graph(mod: IRModule) -> ForwardGraph:
    """The dataflow graph over all functions of the module."""
    return _GraphCreator(mod).run()


class FuseOps(ModuleRewrite):
    """Group operators into ``Primitive`` functions.

    ::

        lv = R.call_tir(cls.conv2d, (x, w), ...)      ->   gv = cls.fused_conv2d_relu(x, w)
        gv = R.call_tir(cls.relu, (lv,), ...)

    A heavy operator takes the elementwise ones that follow it, elementwise ones join each other and a reduction they
    feed.  The option ``relax.FuseOps.max_depth`` of the PassContext bounds the size of a group (256).
    """

    fuse_opt_level: int = -1

    def rewrite(self, mod: IRModule) -> IRModule:
        context = PassContext.current()
        level = context.opt_level if self.fuse_opt_level == -1 else self.fuse_opt_level
        depth = int(context.config.get("relax.FuseOps.max_depth", 256))
        groups = partition(build_forward_graph(mod), level, depth)
        return fuse_by_groups(mod, groups, lift_constants=True)
