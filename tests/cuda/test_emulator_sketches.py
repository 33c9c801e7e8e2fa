"""Tensor-core sketches in emulation: candidates with random decisions give the product, and find what hurts them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import cuda_emulation

        yield cuda_emulation
    finally:
        sys.path.remove(str(BENCHMARKS))


def small_sketches(bench, name):
    """The sketches of a product that is quick to lower."""
    return bench.sketches_of(name, bench._gemm(64, 64, 64, "float32", 1e-3))


@pytest.mark.parametrize("kind", ["wmma/0", "wmma_pipeline/1", "mma/0", "mma_pipeline/0"])
def test_a_few_candidates(bench, kind):
    sketch = next(s for s in small_sketches(bench, "small") if s.name == f"small/{kind}")
    outcomes: list[str] = []
    for draw in itertools.islice(sketch.draws(), 40):
        outcome, details = bench.check(sketch, *draw)
        outcomes.append(outcome)
        assert outcome in ("ok", "illegal", "refused"), details
        if outcomes.count("ok") == 2:
            break
    assert outcomes.count("ok") == 2


def test_a_run_goes_on_where_it_was(bench, tmp_path):
    sketch = next(small_sketches(bench, "small"))
    journal = tmp_path / "journal"
    assert bench.run(sketch, 2, {}, journal) == []
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    known = bench._known(journal)[sketch.name]
    assert len(known) == len(records) and list(known.values()).count("ok") == 2
    bench.run(sketch, 2, known, journal)
    assert len(journal.read_text().splitlines()) == len(records)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["gemm_f32", "gemm_f16", "conv2d"])
def test_a_thousand_decisions(workload, tmp_path):
    """The bar: every sketch on 1000 random legal decisions."""
    command = [
        sys.executable,
        str(BENCHMARKS / "cuda_emulation.py"),
        "--workloads",
        workload,
        "--json",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
