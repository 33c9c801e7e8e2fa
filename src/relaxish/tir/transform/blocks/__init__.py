"""Passes over programs with blocks: allocation, layout and reductions, up to LowerOpaqueBlock."""
