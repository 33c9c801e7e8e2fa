# Every target makes its own .venv from pyproject.toml and constraints.txt; only Python and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
PYTEST_WORKERS ?= 2
# A tenth of the tests' time is that of processes they start: those need not compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all lint replay bench anywhere faults gpu-canaries gpu-check docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) "torch==2.13.0" -c constraints.txt
	$(PIP) -e ".[dev]" -c constraints.txt
	touch $@ $(DEMO_STAMP)

# The demo needs no torch, which is most of what an installation downloads.
$(DEMO_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[onnx]" onnxruntime -c constraints.txt
	touch $@

demo: $(DEMO_STAMP)
	$(BIN)/python -m relaxish.cli demo --out demo_out

test: $(STAMP)
	RELAXISH_CHECK=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS)

test-all: $(STAMP)
	RELAXISH_CHECK=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m ""

lint: $(STAMP)
	$(BIN)/python -m ruff check src tests benchmarks
	$(BIN)/python -m ruff format --check src tests benchmarks
	$(BIN)/python -m mypy --num-workers $(PYTEST_WORKERS)

# Hashes of what the tree emits against those recorded: a refactoring changes none.
replay: $(STAMP)
	$(BIN)/python -W ignore tests/project/replay/run.py

bench: $(STAMP)
	$(PIP) -e ".[bench]" -c constraints.txt
	$(BIN)/python benchmarks/run_all.py

# Random workloads against the peers, with a new seed each time.
anywhere: $(STAMP)
	$(PIP) -e ".[bench]" -c constraints.txt
	$(BIN)/python benchmarks/anywhere.py

# FAULT_MINUTES=300 for a night.
FAULT_MINUTES ?= 20
faults: $(STAMP)
	RELAXISH_CHECK=1 $(BIN)/python tests/faults/run.py --minutes $(FAULT_MINUTES)

# Both run with the Python that has the GPU's packages (torch, triton, cuda-bindings); GPU machines often have no network.
# CALL=works, then numbers, then search: under ten minutes each.
CALL ?= works
gpu-check:
	PYTHONPATH="src$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) benchmarks/gpu_check.py --call $(CALL)

gpu-canaries:
	PYTHONPATH="src$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) benchmarks/gpu/canaries.py

docs: $(STAMP)
	RELAXISH_CHECK=1 $(BIN)/python -m pytest tests/docs

clean:
	rm -rf $(VENV) demo_out .pytest_cache .mypy_cache .ruff_cache
