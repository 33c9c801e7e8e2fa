"""TopologicalSort: another order of the bindings in dataflow blocks."""

from __future__ import annotations

from collections import deque
from typing import Any

from ..relax.expr import Binding, BindingBlock, DataflowBlock, Expr, Function, Var
from ..relax.expr_functor import PyExprMutator, PyExprVisitor
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite
from ..ir.module import IRModule

__all__ = ["TopologicalSort"]

#: The two ends of every function's graph.
_INPUT, _OUTPUT = "input", "output"


class _Graph(PyExprVisitor):
    """Which values use which, in the order in which they do: parameters come from the input, results go to the output.

    Values that use nothing count as coming from the input, unused ones as going to the output.
    """

    def __init__(self, func: Function) -> None:
        self.users: dict[Any, list[Any]] = {_INPUT: []}
        self.needs: dict[Any, list[Any]] = {_OUTPUT: []}
        self.current: Any = _OUTPUT
        self.bound: list[Var] = []
        for param in func.params:
            self._edge(_INPUT, param)
        self.visit_expr(func.body)
        unused = [var for var in self.bound if var not in self.users]
        for var in [var for var in self.bound if var not in self.needs]:
            self._edge(_INPUT, var)
        self.needs[_OUTPUT][:0] = unused
        for var in unused:
            self.users[var] = [_OUTPUT]

    def _edge(self, source: Expr | str, user: Expr | str) -> None:
        self.users.setdefault(source, []).append(user)
        self.needs.setdefault(user, []).append(source)

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self._edge(_INPUT, param)
        self.visit_expr(op.body)

    def visit_binding(self, binding: Binding) -> None:
        outer, self.current = self.current, binding.var
        super().visit_binding(binding)
        self.current = outer

    def visit_var_def(self, var: Var) -> None:
        self.bound.append(var)

    def visit_var_(self, op: Var) -> None:
        self._edge(op, self.current)


class _Sorter(PyExprMutator):
    def __init__(self, func: Function, depth: bool, from_inputs: bool) -> None:
        super().__init__()
        self.depth = depth
        self.from_inputs = from_inputs
        graph = _Graph(func)
        following, waits_for = (graph.users, graph.needs) if from_inputs else (graph.needs, graph.users)
        self.following = {value: self._in_order(found) for value, found in following.items()}
        self.waits_for = {value: set(found) for value, found in waits_for.items()}

    def _in_order(self, found: list[Any]) -> list[Any]:
        """Each value once, in the order in which it is put on the stack or queue.

        The last one put on the stack is taken first, so the users of a value go there in reverse.
        """
        if not self.depth:
            return list(dict.fromkeys(found))
        if self.from_inputs:
            return list(dict.fromkeys(found))[::-1]
        return list(dict.fromkeys(reversed(found)))[::-1]

    def order(self) -> list[Any]:
        """All values, each after everything it waits for."""
        done: dict[Any, None] = {}
        todo: deque[Any] = deque([_INPUT if self.from_inputs else _OUTPUT])
        while todo:
            value = todo.pop() if self.depth else todo.popleft()
            if value in done:
                continue
            done[value] = None
            for each in self.following.get(value, ()):
                if each not in done and all(needed in done for needed in self.waits_for[each]):
                    todo.append(each)
        return list(done)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        bindings = {binding.var: binding for binding in block.bindings}
        order = [value for value in self.order() if value in bindings]
        if not self.from_inputs:
            order.reverse()
        if order != list(bindings):
            block = DataflowBlock([bindings[var] for var in order], block.span)
        return super().visit_dataflow_block_(block)


class TopologicalSort(ModuleRewrite):
    """Reorder bindings of dataflow blocks: ``depth-first`` or ``breadth-first``, ``from-inputs`` or ``from-outputs``.

    Depth first from the inputs follows each value to its users at once, breadth first computes all values of one
    distance first; from the outputs every value is computed as late as possible.

    Raises ValueError for another order or direction.
    """

    order: str = "depth-first"
    direction: str = "from-inputs"

    def __post_init__(self) -> None:
        if self.order not in ("depth-first", "breadth-first"):
            raise ValueError(
                f'Invalid value for traversal order: "{self.order}".  '
                'Allowed values are "depth-first" or "breadth-first"'
            )
        if self.direction not in ("from-inputs", "from-outputs"):
            raise ValueError(
                f'Invalid value for starting location: "{self.direction}".  '
                'Allowed values are "from-inputs" or "from-outputs"'
            )

    def rewrite(self, mod: IRModule) -> IRModule:
        how = self.order == "depth-first", self.direction == "from-inputs"
        return map_relax_functions(mod, lambda _, func: _Sorter(func, *how).visit_expr(func))
