"""Attributes of operator calls: a named record such as ``relax.attrs.PermuteDimsAttrs`` with Python attribute access."""

from __future__ import annotations

from ..ir.attrs import DictAttrs, make_node

__all__ = ["DictAttrs", "make_attrs"]

make_attrs = make_node
