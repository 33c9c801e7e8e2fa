"""The quick part of the fault campaign: every campaign for a second; ``make faults`` runs them at length."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faults import run

QUICK = 1.0


@pytest.mark.parametrize("name", run.campaign_names())
def test_campaign_finds_nothing(name):
    figures = run.run_apart(name, QUICK, seed=1)
    assert run.faults_of(figures) == 0, figures


def test_faults_are_counted():
    assert run.faults_of({"tried": 5, "refused": 5}) == 0
    assert run.faults_of({"tried": 5, "wrong": 2, "hung": 1}) == 3
    assert run.faults_of({"tried": 0}) == 1


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("import os; os.abort()", "crashed"),
        ("print('no figures')", "crashed"),
        ("import time; time.sleep(600)", "hung"),
    ],
)
def test_a_campaign_that_dies_is_a_fault(tmp_path, monkeypatch, body, fault):
    script = tmp_path / "run.py"
    script.write_text(body)
    monkeypatch.setattr(run, "__file__", str(script))
    monkeypatch.setattr(run, "_PATIENCE", -59.0)
    assert run.run_apart("anything", 1.0, 0)[fault] == 1


def test_figures_are_written(tmp_path):
    out = tmp_path / "figures.json"
    command = [sys.executable, str(Path(run.__file__)), "--only", "schedules", "--minutes", "0.02", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())["campaigns"]["schedules"]
    assert figures["tried"] > 0 and figures["wrong"] == 0
