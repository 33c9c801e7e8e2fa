"""The parser proper, which dialects extend through :mod:`.dispatch`."""

from . import diagnostics, dispatch, doc, doc_core, entry, error, evaluator, parser, utils

__all__ = ["diagnostics", "dispatch", "doc", "doc_core", "entry", "error", "evaluator", "parser", "utils"]
