"""The differential fuzzer of importers and pipelines: a sample each time, ten minutes when there is time."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import relaxish.testing.fuzz.__main__ as command  # noqa: E402
from relaxish.testing.fuzz import differential  # noqa: E402
from relaxish.testing.fuzz.differential import GraphFailure, check_graph, make_graph_case, shrink_graph  # noqa: E402
from relaxish.testing.fuzz.onnx_graphs import Dim, Value  # noqa: E402
from relaxish.testing.fuzz.onnx_model import exact_outputs  # noqa: E402

SAMPLE, MINUTES = 30, 10


def check(numbers, seconds: float) -> Counter[str]:
    end = time.monotonic() + seconds
    ends: Counter[str] = Counter()
    for number in numbers:
        found = check_graph(make_graph_case(number))
        assert not isinstance(found, GraphFailure), str(shrink_graph(found))
        ends[found] += 1
        if time.monotonic() > end:
            break
    return ends


@pytest.mark.parametrize("part", range(3))
def test_a_few_graphs(part):
    ends = check(range(700_000 + part, 700_000 + SAMPLE, 3), 600.0)
    assert ends["ok"] * 2 > sum(ends.values()), ends


def test_where_the_exact_judge_has_no_number_the_peer_is_the_judge():
    # The double pooling of the peer slides over an infinity that its window has left.
    value = Value("y", "float32", (Dim.of(3),), exact=False, bound=1.0)
    peer, exact = np.array([0.5, 2.0, np.inf], "float32"), np.array([np.nan, 2.0, np.nan])
    assert differential.wrong(np.array([0.5000001, 2.0, np.inf], "float32"), peer, exact, value) is None
    assert differential.wrong(np.array([0.51, 2.0, np.inf], "float32"), peer, exact, value)
    assert differential.wrong(np.array([0.5, 2.1, np.inf], "float32"), peer, exact, value)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(MINUTES))
def test_ten_minutes_of_graphs(part):
    ends = check(range(710_000 + 10_000 * part, 720_000 + 10_000 * part), 60.0)
    assert ends["ok"] * 2 > sum(ends.values()), ends


def test_a_case_is_its_number():
    first, again = make_graph_case(5), make_graph_case(5)
    assert first.route == again.route and first.graph.nodes == again.graph.nodes
    assert first.graph.nodes != make_graph_case(6).graph.nodes


def _spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = differential._ours

    def off_by_one(model, route, inputs):
        stage, made = ours(model, route, inputs)
        return stage, [part + part.dtype.type(1) if part.dtype.kind in "fi" else ~part for part in made]

    monkeypatch.setattr(differential, "_ours", off_by_one)


def test_wrong_results_are_found_and_written_as_tests(monkeypatch, tmp_path, capsys):
    _spoiled(monkeypatch)
    arguments = [
        "--kind",
        "onnx",
        "--seconds",
        "60",
        "--first",
        "700000",
        "--max-failures",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert command.main(arguments) == 1
    assert "fails at 'wrong'" in capsys.readouterr().out
    (written,) = tmp_path.iterdir()
    scope: dict[str, object] = {}
    exec(compile(written.read_text(), written.name, "exec"), scope)
    (test,) = (value for name, value in scope.items() if name.startswith("test_"))
    with pytest.raises(AssertionError):
        test()
    monkeypatch.undo()
    test()


@pytest.mark.parametrize("kind", ["schedule", "onnx", "onnx-operator", "torch", "hostile"])
def test_every_kind_has_a_command(kind, capsys, tmp_path):
    if kind == "torch":
        pytest.importorskip("torch")
    assert command.main(["--kind", kind, "--seconds", "0.5", "--first", "3", "--out", str(tmp_path)]) == 0
    assert "(" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_operators_that_fail_are_written_as_tests(monkeypatch, tmp_path):
    from relaxish.testing.fuzz import onnx_judges

    monkeypatch.setattr(onnx_judges, "check_operator", lambda case: onnx_judges.Verdict("wrong", "so it is said"))
    arguments = ["--kind", "onnx-operator", "--max-failures", "2", "--out", str(tmp_path)]
    assert command.main(arguments) == 2
    for written in tmp_path.iterdir():
        scope: dict[str, object] = {}
        exec(compile(written.read_text(), written.name, "exec"), scope)
        (test,) = (value for name, value in scope.items() if name.startswith("test_"))
        with pytest.raises(AssertionError, match="so it is said"):
            test()


def test_batch_normalisation_is_judged_as_inference():
    """The reference of older versions takes statistics of its input, in which one NaN spoils a whole channel."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    x[0, 1, 2] = np.nan
    scale, bias, mean = rng.standard_normal((3, 3)).astype("float32")
    variance = rng.random(3).astype("float32") + 0.5
    node = onnx.helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])
    info = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        [node], "g", [info(n, 11, None) for n in "xsbmv"], [info("y", 11, None)]
    )  # of 64 bits
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    found = exact_outputs(model, dict(zip("xsbmv", (x, scale, bias, mean, variance))))
    column = (slice(None), None)
    want = (x - mean[column]) / np.sqrt(variance[column] + 1e-5) * scale[column] + bias[column]
    assert found is not None
    np.testing.assert_allclose(found[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number", [51000136, 51000449, 51000624, 51000840, 51002283, 51002306])
def test_graphs_that_failed_once(number):
    assert check_graph(make_graph_case(number)) == "ok"
