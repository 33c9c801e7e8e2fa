"""Frames of graph functions."""

from __future__ import annotations

from typing import Any
from typing_extensions import Self

from .... import relax
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ....ir.prim import Var as TirVar
from ....relax.expr import Expr
from ....relax.struct_info import StructInfo
from ..base import IRBuilder, IRBuilderFrame, Namer
from ..ir import IRModuleFrame, decl_function, def_function

__all__ = ["BlockFrame", "ElseFrame", "FunctionFrame", "IfFrame", "SeqExprFrame", "ThenFrame", "current_seq"]


def _name_var(var: relax.Var, name: str) -> None:
    var.name_hint = var.vid.name_hint = name


Namer.table[relax.Var] = _name_var


def function_frame(method: str) -> FunctionFrame:
    """The function being written. Raises ValueError if there is none."""
    frame = IRBuilder.current().find(FunctionFrame)
    if frame is None:
        raise ValueError(f"Function frame not find. Please ensure '{method}' is called under R.function()")
    return frame


def current_seq() -> SeqExprFrame:
    """The sequence that emitted bindings go to."""
    frame = IRBuilder.current().find(SeqExprFrame)
    if frame is None:
        raise ValueError("Block frame not find. Please ensure relax code is written under R.function()")
    return frame


class SeqExprFrame(IRBuilderFrame):
    """A sequence of binding blocks; plain bindings gather in blocks of their own between dataflow blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Any] = []
        self.builder: Any = None

    def __enter__(self) -> Self:
        if self.builder is None:
            around = current_seq()
            self.builder = around.builder
            around.flush()
        super().__enter__()
        self.begin()
        return self

    def finish(self) -> None:
        self.flush()
        around = current_seq()
        around.blocks.extend(self.blocks)
        around.begin()

    def flush(self) -> None:
        """Close the open block into the sequence."""
        block = self.builder.end_block()
        if block.bindings:
            self.blocks.append(block)

    def begin(self) -> None:
        """Open a plain block."""
        self.builder.begin_binding_block()


class FunctionFrame(SeqExprFrame):
    """``R.function``"""

    def __init__(self, is_pure: bool = True, is_private: bool = False) -> None:
        super().__init__()
        self.name: str | None = None
        self.params: list[Any] = []
        self.ret_struct_info: Any = None
        self.is_pure = is_pure
        self.is_private = is_private
        self.attrs: dict[str, Any] = {}
        self.output: Any = None
        self.outer_symbols: list[Any] = []
        self.builder = relax.BlockBuilder(normalizes_operators=False)

    def __enter__(self) -> Self:
        self._scope()
        return super().__enter__()

    def _scope(self) -> None:
        outer = []
        if self.outer_symbols:
            outer.append(relax.Var("outer", relax.ShapeStructInfo(self.outer_symbols)))
        self.builder.begin_scope([*outer, *self.params])

    def add_param(self, var: Expr) -> None:
        """Add a parameter; the symbols of its struct info are defined from then on."""
        self.params.append(var)
        self.builder.end_scope()
        self._scope()

    def finish(self) -> None:
        if self.output is None:
            raise ValueError("A Relax function must have a return value. Please use `return` to return an Expr")
        self.flush()
        body = self.builder.normalize(relax.SeqExpr(self.blocks, self.output))
        attrs = dict(self.attrs)
        if not self.is_private and self.name is not None and "global_symbol" not in attrs:
            attrs["global_symbol"] = self.name
        # What the caller sees may mention only what the parameters define.
        self.builder.end_scope()
        self._scope()
        body.struct_info_ = self.builder.erase_for_scope(body.struct_info_)
        self.builder.end_scope()
        func = relax.Function(self.params, body, self.ret_struct_info, self.is_pure, attrs, self.entry_span)
        builder = IRBuilder.current()
        if not builder.frames:
            if builder.result is not None:
                raise ValueError("Builder.result has already been set")
            builder.result = func
            return
        frame = builder.find(IRModuleFrame)
        if frame is None:
            raise ValueError("Cannot find where to insert Relax.Function")
        if self.name is None:
            raise ValueError(
                "The function name must be defined before exiting the function scope, if it's defined in a Module"
            )
        if self.name not in frame.global_vars:
            decl_function(self.name, func)
        def_function(self.name, func)


class _Replace(Mutator):
    """Replaces variables, keeping what is known of the expressions around."""

    def __init__(self, values: dict[int, Any]) -> None:
        super().__init__()
        self.values = values

    def visit_Var(self, node: TirVar) -> TirVar | Expr:
        return self.values.get(id(node), node)

    def visit_StructInfo(self, node: StructInfo) -> StructInfo:
        return node

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def default_visit(self, node: Any) -> Any:
        made = super().default_visit(node)
        if made is not node and getattr(node, "struct_info_", None) is not None and made.struct_info_ is None:
            made.struct_info_ = node.struct_info_
        return made


class BlockFrame(IRBuilderFrame):
    """``R.dataflow``: a block without side effects, whose outputs outlive it."""

    def __init__(self, is_dataflow: bool = True) -> None:
        super().__init__()
        self.is_dataflow = is_dataflow
        self.output_vars: list[Any] = []
        self.ended = False
        self.seq: Any = None

    def __enter__(self) -> Self:
        self.seq = current_seq()
        self.seq.flush()
        super().__enter__()
        if self.is_dataflow:
            self.seq.builder.begin_dataflow_block()
        else:
            self.seq.builder.begin_binding_block()
        return self

    def finish(self) -> None:
        block = self.seq.builder.end_block()
        parts = [block] if block.bindings else []
        if self.is_dataflow and self.output_vars:
            parts = self._publish(parts)
        self.seq.blocks.extend(parts)
        self.seq.begin()

    def _publish(self, parts: list[Any]) -> list[Any]:
        """Turn the output variables into ones that may be used after the block."""
        fresh: dict[int, Any] = {}
        bound = {id(b.var) for p in parts for b in p.bindings}
        outputs = []
        for var in self.output_vars:
            if id(var) not in bound:
                raise ValueError(
                    f"An output variable is not emitted by this dataflow block. Please make sure all dataflow "
                    f"output variables are emitted exactly by this block: {var.name_hint}"
                )
            made = relax.Var(var.name_hint, var.struct_info_, var.span)
            fresh[id(var)] = made
            outputs.append(made)
        self.output_vars = outputs
        replace = _Replace(fresh)
        function = function_frame("R.dataflow")
        if function.output is not None:
            # The function returned from inside the block.
            function.output = replace.visit(function.output)
        made_parts = []
        for part in parts:
            bindings = []
            for binding in part.bindings:
                changes = {"var": fresh.get(id(binding.var), binding.var), "value": replace.visit(binding.value)}
                bindings.append(binding.with_fields(**changes))
            made_parts.append(type(part)(bindings))
        for part in made_parts:
            for binding in part.bindings:
                self.seq.builder.note_binding(binding)
        return made_parts


class IfFrame(IRBuilderFrame):
    """``R.If`` with ``R.Then`` and ``R.Else`` inside."""

    def __init__(self, condition: Expr) -> None:
        super().__init__()
        self.condition = condition
        self.then_expr: Any = None
        self.else_expr: Any = None
        self.var: Any = None
        self.var_name = ""
        self.names: list[str] = []

    def __enter__(self) -> Self:
        if any(isinstance(f, BlockFrame) and f.is_dataflow for f in IRBuilder.current().frames):
            raise ValueError("Cannot create an IfFrame inside a dataflow block.")
        return super().__enter__()

    def finish(self) -> None:
        if self.then_expr is None:
            raise ValueError("The body of then part is expected to be defined before exiting.")
        if self.else_expr is None:
            raise ValueError("The body of else part is expected to be defined before exiting.")
        if self.names[0] != self.names[1]:
            raise ValueError(
                f"This last binding of both branches must provide the same variable. However, the R.Then branch "
                f"provides variable {self.names[0]}, while the R.Else branch provides variable {self.names[1]}"
            )
        self.var_name = self.names[0]
        seq = current_seq()
        self.var = seq.builder.emit(relax.If(self.condition, self.then_expr, self.else_expr, self.entry_span))
        Namer.name(self.var, self.var_name)


class _BranchFrame(SeqExprFrame):
    """One branch; its last binding is its value."""

    method = ""

    def __enter__(self) -> Self:
        frame = IRBuilder.current().last(IfFrame)
        if frame is None:
            raise ValueError(f"IfThenElse frame not found. Please ensure '{self.method}' is called under R.If()")
        self.builder = current_seq().builder
        self.builder.begin_inner_scope()
        return super().__enter__()

    def finish(self) -> None:
        self.flush()
        self.builder.end_scope()
        frame = IRBuilder.current().last(IfFrame)
        assert frame is not None
        expr, name = self._value()
        frame.names.append(name)
        if self.method == "R.Then":
            frame.then_expr = expr
        else:
            frame.else_expr = expr

    def _value(self) -> tuple[Any, str]:
        if not self.blocks:
            raise ValueError(f"Empty body is not allowed for '{self.method}' statements.")
        last_block = self.blocks[-1]
        last = last_block.bindings[-1]
        if isinstance(last.var, relax.DataflowVar):
            raise ValueError(f"A non-dataflow var is expected in the last binding of '{self.method}'.")
        bindings = list(last_block.bindings[:-1])
        body: Any
        if isinstance(last, relax.VarBinding) and _is_leaf_or_tuple(last.value):
            body = last.value
        else:
            bindings.append(last)
            body = last.var
        blocks = list(self.blocks[:-1])
        if bindings:
            blocks.append(type(last_block)(bindings))
        seq = relax.SeqExpr(blocks, body)
        seq.struct_info_ = self.builder.erase_for_scope(last.var.struct_info_)
        return seq, last.var.name_hint


class ThenFrame(_BranchFrame):
    """The branch taken."""

    method = "R.Then"


class ElseFrame(_BranchFrame):
    """The branch not taken."""

    method = "R.Else"


def _is_leaf_or_tuple(value: Expr) -> bool:
    from ....relax.expr import is_leaf

    return isinstance(value, relax.Tuple) or bool(is_leaf(value))
