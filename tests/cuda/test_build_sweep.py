"""The sweep over programs and targets (``benchmarks/cuda_build_sweep.py``): a few candidates, and its bookkeeping."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import cuda_build_sweep

        yield cuda_build_sweep
    finally:
        sys.path.remove(str(BENCHMARKS))


CASES = [
    ("cuda", "all_whole_7x13"),
    ("cuda", "take"),
    ("v100", "odd_bfloat16_bfloat16"),
    ("tensor-core", "prime_float16_float32"),
    pytest.param("hopper", "nt_bfloat16_float32", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_candidates_are_right(bench, kind, name):
    journal = bench.Journal(None)
    args = argparse.Namespace(count=1, emulate=1, compile=0, masks=int(kind == "hopper"))
    for sketch in bench.sketches(kind, name):
        bench.run(sketch, args, journal)
    assert not journal.summary()["failures"]
    assert sum(counts.get("ok", 0) for counts in journal.summary()["sketches"].values())


def test_a_failure_is_counted_and_kept(bench, tmp_path):
    path = tmp_path / "journal"
    record = {"sketch": "cuda/take/0", "sort": "cuda threads", "drawn": "seed", "number": 1, "emulated": True}
    bench.Journal(path).add(**record, outcome="wrong", details="1 of 2 are off by up to 3")
    bench.Journal(path).add(**record | {"number": 2}, outcome="ok", details="")
    journal = bench.Journal(path)
    assert journal.known("cuda/take") and not journal.known("cuda/pad")
    summary = json.loads(json.dumps(journal.summary()))
    assert summary["sketches"] == {"cuda threads": {"wrong": 1, "ok": 1, "emulated": 2}}
    assert [r["number"] for r in summary["failures"]] == [1]


@pytest.mark.slow
def test_every_program_can_be_made(bench):
    assert all(make() is not None for _, make in bench.PROGRAMS.values())
    assert len(bench._jobs(None)) > 2 * len(bench.PROGRAMS)


@pytest.mark.slow
def test_two_products_whose_copies_share_names(bench):
    """Blocks to be tensorised are told apart where a second product brought the same names."""
    first = next(bench.sketches("tensor-core", "two_layers"))
    made = (first.candidate(trace, number) for _, number, trace in first.draws(0))
    assert next(sch for sch in made if sch is not None).mod["main"].script().count("tvm_mma_sync") >= 2
