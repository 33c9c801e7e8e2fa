"""Groups of functions that call each other in a circle."""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.module import IRModule, functions_of
from ..expr import Function
from .variables import all_global_vars

__all__ = ["detect_recursion"]


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """Each group of mutually recursive graph functions (a single one if it calls itself), sorted by name."""
    graph = {v.name_hint: f for v, f in functions_of(mod, Function)}
    callees = {n: [g.name_hint for g in all_global_vars(f) if g.name_hint in graph] for n, f in graph.items()}
    groups = []
    for component in _components(callees):
        if len(component) > 1 or component[0] in callees[component[0]]:
            groups.append([mod.get_global_var(n) for n in sorted(component)])
    return sorted(groups, key=lambda g: g[0].name_hint)


def _components(graph: dict[str, list[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    out: list[list[str]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, edges = work[-1]
            following = next((t for t in edges if t not in index or t in on_stack), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        item = stack.pop()
                        on_stack.discard(item)
                        component.append(item)
                        if item == node:
                            break
                    out.append(component)
            elif following in index:
                low[node] = min(low[node], index[following])
            else:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(graph[following])))
    return out
