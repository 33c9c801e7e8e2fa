# Every target makes its own .venv from pyproject.toml and constraints.txt; only Python and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= 2

.PHONY: demo test test-all lint bench docs clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check "torch==2.13.0" -c constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]" -c constraints.txt
	touch $@

demo: $(STAMP)
	$(BIN)/python -m relaxish.cli demo --out demo_out

test: $(STAMP)
	RELAXISH_CHECK=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS)

test-all: $(STAMP)
	RELAXISH_CHECK=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m ""

lint: $(STAMP)
	$(BIN)/python -m ruff check src tests benchmarks
	$(BIN)/python -m mypy

bench: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[bench]" -c constraints.txt
	$(BIN)/python benchmarks/run_all.py

docs: $(STAMP)
	RELAXISH_CHECK=1 $(BIN)/python -m pytest tests/docs

clean:
	rm -rf $(VENV) demo_out .pytest_cache .mypy_cache .ruff_cache
