# What a contributor runs. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Every process of a test would compile all that it imports again; workers, whose environment is clean, do not ask.
unexport PYTHONDONTWRITEBYTECODE

# The first Python on PATH that runs and is 3.11 or newer; `make test PYTHON=python3.12 VENV=.venv-3.12` picks another.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# The environment carries the lock's checksum, so another lock makes another environment.
READY := $(VENV)/ready-$(shell cksum < requirements.lock | tr ' ' -)

.PHONY: help env demo test suite gpu lint format wheel bench lock clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

env: $(READY) ## make .venv from requirements.lock (every target below does so by itself)

$(READY):
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 or newer on PATH, found none" >&2; \
		echo "  fix: install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 4; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: $(READY) ## screen kernels on this machine's CPU, promote one, close its admission by a reworded comment
	$(BIN)/python demo/run.py

test: $(READY) ## lint and every test, side by side
	$(MAKE) --no-print-directory --jobs 2 lint suite

suite: $(READY) ## every test, side by side
	$(BIN)/pytest --numprocesses auto --dist worksteal

gpu: $(READY) ## every test that needs a board, on a machine that has one
	$(BIN)/python tests/gpu/run.py

lint: $(READY) ## ruff and mypy, strict
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy

format: $(READY) ## let ruff decide the layout
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

wheel: $(READY) ## dist/qualify-*.whl
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation

bench: $(READY) ## every benchmark that needs no board; benchmarks/README.md says what is measured
	missed=0; for each in help_start check verify store paired_level host_gates; do \
		echo "== $$each"; $(BIN)/python benchmarks/$$each.py || missed=1; done; exit $$missed

lock: ## write requirements.lock from pyproject.toml
	tools=$$(mktemp -d) && trap "rm -rf $$tools" EXIT && \
	$(PYTHON) -m venv $$tools && $$tools/bin/pip install --quiet uv && \
	$$tools/bin/uv pip compile pyproject.toml --extra cuda --extra opencl --group dev --python-version 3.11 \
		--generate-hashes --quiet --custom-compile-command "make lock" -o requirements.lock $(LOCK_OPTIONS)

clean: ## remove what make made, save the environment
	rm -rf dist .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
