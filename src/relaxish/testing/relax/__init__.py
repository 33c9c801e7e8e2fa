"""Test helpers of the graph level: packed functions for machine tests, a small layer library, model factories."""

from __future__ import annotations

from . import ast_printer, matmul, nn, transform, vm
from .ast_printer import dump_ast
from .matmul import get_relax_matmul_module
from .nn import emit, emit_te

__all__ = ["ast_printer", "dump_ast", "emit", "emit_te", "get_relax_matmul_module", "matmul", "nn", "transform", "vm"]
