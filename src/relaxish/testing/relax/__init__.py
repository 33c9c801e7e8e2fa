"""Test helpers of the graph level: packed functions for machine tests, a small layer library, model factories."""

from __future__ import annotations

from . import ast_printer, attention, lib_comparator, matmul, nn, runtime_builtin, transform, vm
from .ast_printer import dump_ast
from .attention import get_relax_attention_module, get_relax_stacked_attention_module
from .matmul import get_relax_matmul_module
from .nn import emit, emit_te

__all__ = [
    "ast_printer",
    "attention",
    "dump_ast",
    "emit",
    "emit_te",
    "get_relax_attention_module",
    "get_relax_matmul_module",
    "get_relax_stacked_attention_module",
    "lib_comparator",
    "matmul",
    "nn",
    "runtime_builtin",
    "transform",
    "vm",
]
