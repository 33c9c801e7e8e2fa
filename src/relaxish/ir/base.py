"""Shared parts of all kinds of IR, under the module path of the public API."""

from .env_func import EnvFunc
from .node import Node
from .serial import load_json, save_json
from .source import SequentialSpan, SourceName, Span
from .structural import (
    assert_structural_equal,
    get_first_structural_mismatch,
    structural_equal,
    structural_hash,
)

__all__ = [
    "EnvFunc", "Node", "SequentialSpan", "SourceName", "Span", "assert_structural_equal",
    "get_first_structural_mismatch", "load_json", "save_json", "structural_equal", "structural_hash",
]  # fmt: skip
