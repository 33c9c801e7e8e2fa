"""Reductions of tuples without the components that nothing asks for."""

from __future__ import annotations

from collections.abc import Callable

from ._ir import CommReducer, PrimExpr, Reduce
from .functor import free_vars
from .rules import is_droppable


def keep_used_components(node: Reduce, simplify: Callable[[PrimExpr], PrimExpr]) -> Reduce:
    """``node`` with a simplified combiner, reduced to the components that its value depends on.

    Components with effects stay.
    """
    combiner = node.combiner
    results = [simplify(e) for e in combiner.result]
    count = len(results)
    used = {node.value_index}
    used.update(
        i for i in range(count)
        if not all(map(is_droppable, (node.source[i], combiner.identity_element[i], combiner.result[i])))
    )  # fmt: skip
    pending = list(used)
    while pending:
        needed = set(free_vars(results[pending.pop()]))
        for i in range(count):
            if i not in used and (combiner.lhs[i] in needed or combiner.rhs[i] in needed):
                used.add(i)
                pending.append(i)
    kept = sorted(used)
    identities = [simplify(combiner.identity_element[i]) for i in kept]
    same_results = all(a is b for a, b in zip(results, combiner.result))
    same_identities = all(a is combiner.identity_element[i] for a, i in zip(identities, kept))
    if len(kept) == count and same_results and same_identities:
        return node
    smaller = CommReducer(
        [combiner.lhs[i] for i in kept], [combiner.rhs[i] for i in kept], [results[i] for i in kept], identities
    )
    init = [node.init[i] for i in kept] if node.init else []
    source = [node.source[i] for i in kept]
    return Reduce(smaller, source, node.axis, node.condition, kept.index(node.value_index), init, node.span)


__all__ = ["keep_used_components"]
