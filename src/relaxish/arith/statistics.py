"""Counters of the rewrite simplifier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RewriteSimplifyStats:
    """Counters of the simplifier's work since they were last set to zero."""

    nodes_visited: int = 0
    constraints_entered: int = 0
    rewrites_attempted: int = 0
    rewrites_performed: int = 0
    max_recursive_depth: int = 0
    num_recursive_rewrites: int = 0
