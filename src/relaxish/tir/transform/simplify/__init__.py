"""Arithmetic simplification, dead code, common subexpressions and index types."""
