"""``relaxish lab``: what it prints and writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from relaxish.cli import cli
from relaxish.support.errors import RelaxishError


def run(*args: str) -> str:
    result = CliRunner().invoke(cli, ["lab", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_compare_prints_a_table_and_writes_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = run("compare", "-t", "softmax", "-s", "random", "-s", "grid", "-n", "30", "--seeds", "2", "-o", str(out))
    assert "mean rank" in text and "softmax" in text
    assert sorted(p.name for p in out.iterdir()) == ["metrics.csv", "runs.csv", "softmax.svg", "table.txt"]
    assert len((out / "runs.csv").read_text().splitlines()) == 1 + 2 * 2 * 30
    with pytest.raises(RelaxishError, match="no strategy 'guess'"):
        run("compare", "-s", "guess")
    with pytest.raises(RelaxishError, match="--noise"):
        run("compare", "--noise", "loud")


def test_ablate_reads_a_file(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "a.yaml"
    file.write_text(
        "tasks: [softmax]\ntrials: 10\nseeds: 2\nbase: {strategy: random}\nvariants: {other: {strategy: grid}}\n"
    )
    assert "base : other" in run("ablate", str(file))


def test_record_writes_a_space(tmp_path: Path) -> None:
    from relaxish import lab

    text = run("record", "softmax", "-o", str(tmp_path / "s.npz"), "--sample", "2", "--rounds", "1")
    assert "2 of 1936 programs" in text and len(lab.load_space(tmp_path / "s.npz")) == 2
