"""JSON of programs, traces and targets as data: whatever is in it, the answer is a value or one kind of error."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults.hostile_text import Module, sample_trace
from faults.mutation import mutated_json
from relaxish import ir, tir
from relaxish.ir import load_json, save_json
from relaxish.support.errors import MalformedDataError, RelaxishError
from relaxish.support.untrusted import json_depth, parse_json
from relaxish.target import Target
from relaxish.tir.schedule import Trace


DOCUMENTS = {"module": save_json(Module), "function": save_json(Module["rows"])}
TRACE = json.dumps(sample_trace().as_json())
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from([-1, 10**9, "ir.IntImm", "tir.For", "relax.Function", "ir.Op", "", "=v1", "{", "float32", "None"]),
    st.lists(st.integers(-2, 40), max_size=3), st.just({}), st.just({"n": -1}), st.just({"n": 10**9}),
    st.just({"x": "target", "v": {"kind": 3}}), st.just({"a": "AAAA", "t": "object", "s": [3]}),
    st.just({"a": "AAAA", "t": "float32", "s": [-1, 2**40]}), st.just({"d": [[[1], 2]]}), st.just({"f": "no"}),
)  # fmt: skip


def _mutated(value: Any, data: st.DataObject) -> Any:
    """The document with some values replaced, dropped, doubled or moved."""
    return mutated_json(value, lambda items: data.draw(st.sampled_from(items)), lambda: data.draw(VALUES))


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_programs(data: st.DataObject) -> None:
    document = json.loads(DOCUMENTS[data.draw(st.sampled_from(sorted(DOCUMENTS)))])
    try:
        load_json(json.dumps(_mutated(document, data)))
    except RelaxishError:
        pass


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_traces(data: st.DataObject) -> None:
    text = json.dumps(_mutated(json.loads(TRACE), data))
    sch = tir.Schedule(Module["rows"], seed=1)
    try:
        Trace.apply_json_to_schedule(text, sch)
    except RelaxishError:
        pass


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_traces_of_records(data: st.DataObject) -> None:
    """As tuning databases replay them."""
    try:
        trace = Trace.from_json(_mutated(json.loads(TRACE), data))
        trace.apply_to_schedule(tir.Schedule(Module["rows"], seed=1))
    except RelaxishError:
        pass


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_targets(data: st.DataObject) -> None:
    config = Target("cuda -arch=sm_80", host="llvm -mcpu=skylake-avx512 -mattr=+avx,+fma").export()
    for spec in (lambda c: c, json.dumps):
        try:
            Target(spec(_mutated(config, data)))
        except RelaxishError:
            pass


@pytest.mark.parametrize("seed", range(150))
def test_damaged_text(seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice([*DOCUMENTS.values(), TRACE])
    at = rng.randrange(len(text))
    damaged = rng.choice([text[:at], text[:at] + chr(rng.randrange(0x110000)) + text[at + 1 :], text[at:] + text[:at]])
    for load in (load_json, Trace.from_json):
        try:
            load(damaged)
        except RelaxishError:
            pass


@pytest.mark.parametrize("depth", [600, 5_000, 100_000, 3_000_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_documents(depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    for text in (opening * depth, opening * depth + "1" + closing * depth):
        for load in (load_json, Trace.from_json, lambda t: parse_json(t, "it")):
            with pytest.raises(MalformedDataError):
                load(text)


def test_deep_documents_under_a_raised_limit() -> None:
    from relaxish.support.depth import deep_programs

    with deep_programs(), pytest.raises(MalformedDataError, match="nested deeper"):
        load_json("[" * 3_000_000)


def test_deep_programs_in_flat_documents() -> None:
    document = json.loads(save_json(tir.Var("x", "int32") + 1))
    top = document["nodes"][-1]
    for _ in range(20_000):
        document["nodes"].append({**top, "a": {"n": len(document["nodes"]) - 1}})
    with pytest.raises(MalformedDataError, match="nested deeper"):
        load_json(json.dumps(document))


def test_nodes_may_be_many_and_brackets_in_strings_do_not_count() -> None:
    wide = ir.load_json(save_json([tir.IntImm("int32", i) for i in range(20_000)]))
    assert len(wide) == 20_000 and wide[-1].value == 19_999
    assert json_depth('{"a": ["[[[[", "\\"[["]}') == 2
    assert parse_json(json.dumps("[" * 5_000), "it") == "[" * 5_000


@pytest.mark.parametrize(
    "bad", ["", "{}", "[]", "null", "3", '"x"', "NaN", '{"format": "relaxish-ir"}', b"\xff\xfe", 5, None]
)
def test_what_is_no_document(bad: Any) -> None:
    with pytest.raises(ValueError, match="not a relaxish IR JSON document"):
        load_json(bad)


TEXTS = [
    "sch._run(1)",
    "sch.mod()",
    "sch.show()",
    "sch.trace.append(1)",
    "sch.get_block.__globals__",
    "__import__('os').mkdir('hacked')",
    "b = sch.get_block(__import__('os').mkdir('hacked'))",
    "b = sch.get_block(name='b', func_name='main')\nsch.transform_layout(b, ('read', 0), lambda i=open('hacked', 'w'): i)",
    "b = sch.get_block(name='b', func_name='main')\nsch.annotate(b, 'x', [open('hacked', 'w')])",
    "import os",
    "x = " + "-" * 100_000 + "1",
    "(" * 10_000,
    "def f(",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_traces(text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RelaxishError):
        Trace.apply_python_to_schedule(text, tir.Schedule(Module["rows"]))
    assert not list(tmp_path.iterdir())


def test_whole_traces_replay() -> None:
    expected = tir.Schedule(Module["rows"], seed=1)
    sample_trace().apply_to_schedule(expected)
    for apply, form in (
        (Trace.apply_json_to_schedule, TRACE),
        (Trace.apply_python_to_schedule, sample_trace().as_python()),
    ):
        sch = tir.Schedule(Module["rows"], seed=1)
        apply(form, sch)
        ir.assert_structural_equal(sch.mod, expected.mod)
