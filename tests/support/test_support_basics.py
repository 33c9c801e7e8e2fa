"""Errors, diagnostics, knobs, logs, thread counts."""

from __future__ import annotations

import logging
import os

import pytest

from relaxish.support import config, errors, log, threads
from relaxish.support.diagnostics import DiagnosticContext, fail
from relaxish.support.span import SourceSpan

SOURCE = "def f(x):\n    z = x + y\n    return z\n"


def test_error_classes():
    assert errors.TVMError is errors.RelaxishError
    assert issubclass(errors.DiagnosticError, errors.TVMError)
    err = errors.MissingExtraError("onnx", "onnx", "the ONNX importer")
    assert isinstance(err, ImportError) and err.extra == "onnx"
    assert "relaxish[onnx]" in str(err) and "ONNX importer" in str(err)


def test_snippet_points_at_the_place():
    span = SourceSpan("m.py", 2, 2, 13, 14)
    err = fail("undefined variable 'y'", span, label="not defined", notes=["help: did you mean 'x'?"], source=SOURCE)
    lines = str(err).splitlines()
    assert lines[0] == "error: undefined variable 'y'"
    assert lines[1].strip() == "--> m.py:2:13"
    assert lines[3].endswith("z = x + y")
    assert lines[3].index("y", 8) == lines[4].index("^")
    assert lines[4].endswith("^ not defined") and lines[5].strip() == "= help: did you mean 'x'?"


def test_multi_line_snippet_and_missing_source():
    span = SourceSpan("m.py", 1, 3, 1, 13)
    text = str(fail("too long", span, source=SOURCE))
    assert text.count("^") > 20 and "return z" in text
    assert "nowhere.py:1:1" in str(fail("lost", SourceSpan("nowhere.py", 1, 1, 1, 2)))


def test_context_raises_only_on_errors():
    context = DiagnosticContext(SOURCE)
    context.warning("careful", SourceSpan("m.py", 1, 1, 1, 4))
    assert context.render().startswith("warning: careful")
    context.error("bad")
    with pytest.raises(errors.DiagnosticError) as caught:
        context.render()
    assert len(caught.value.diagnostics) == 2


def test_spans_merge():
    a, b = SourceSpan("m", 1, 1, 5, 8), SourceSpan("m", 3, 4, 1, 2)
    assert a.merge(b) == b.merge(a) == SourceSpan("m", 1, 4, 5, 2)


def test_knob_precedence(monkeypatch):
    monkeypatch.setenv("RELAXISH_NUM_THREADS", "3")
    assert config.NUM_THREADS.value == 3 and threads.num_threads(8) == 3
    with config.NUM_THREADS.override(5):
        assert threads.num_threads() == 5
    monkeypatch.setenv("RELAXISH_NUM_THREADS", "many")
    with pytest.raises(errors.RelaxishError, match="RELAXISH_NUM_THREADS='many'"):
        config.NUM_THREADS.value
    monkeypatch.delenv("RELAXISH_NUM_THREADS")
    assert threads.num_threads(8) == 8
    assert threads.num_threads() == len(os.sched_getaffinity(0))


def test_code_key_follows_code_knobs_only():
    before = config.code_key()
    with config.CHECK.override(not config.CHECK.value):
        assert config.code_key() == before
    with config.FAST_MATH.override(not config.FAST_MATH.value):
        assert config.code_key() != before
    assert "RELAXISH_CACHE_DIR" in config.describe()


def test_log_channel_is_silent_by_default():
    logger = log.get_logger("vm")
    assert logger.name == "relaxish.vm"
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("relaxish").handlers)
