# Every command of the README. `make demo` and `make test` do all of their own set-up on a fresh Debian 12 machine
# with python3, make and root.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
UV_VERSION := 0.13.9
BIN := .venv/bin

KILLS := 50

.PHONY: help demo test lint types unit integration chaos planted e2e bench down format
.DEFAULT_GOAL := help

help: ## Show this
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: .venv/ready ## A real cluster, Slurm on it, an MPI job, training and a service; leaves it running, says how to look around
	$(BIN)/kurm local demo

test: lint types unit integration chaos e2e ## Everything that CI runs

lint: .venv/ready ## ruff, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports | tail -n 5

types: .venv/ready ## mypy --strict
	$(BIN)/mypy

unit: .venv/ready ## Seconds; needs no root and no cluster
	$(BIN)/pytest tests/unit

# Most of these tests wait for what daemons do, so two at a time share two cores. A file stays with one worker, which
# has its own servers. Planted faults are one long file: it comes first, or the other worker would end long before it.
integration: .venv/ready ## Against a real API server and a real Slurm; planted faults, too
	$(BIN)/kurm local build  # takes minutes on a fresh machine, and no test may
	$(BIN)/pytest tests/chaos tests/integration -n 2 --dist loadfile --no-loadscope-reorder --timeout=300

chaos: .venv/ready ## Kill what the scheduler needs, and prove its promises [KILLS=50] [SEED=n]
	$(BIN)/kurm local build
	PYTHONPATH=tests $(BIN)/python -m chaos --kills $(KILLS) $(if $(SEED),--seed $(SEED))

planted: .venv/ready ## Of the integration tests only the faults that are planted in the scheduler and have to be found
	$(BIN)/kurm local build
	$(BIN)/pytest tests/chaos --timeout=300

e2e: .venv/ready ## On a real local cluster named "test"; leaves any other alone
	$(BIN)/pytest tests/e2e --timeout=1500 --durations=10

bench: .venv/ready ## Measure, and keep the figures in bench/results (see bench/README.md)
	for bench in cache pool sync pods; do PYTHONPATH=tests $(BIN)/python bench/$$bench.py; done

down: .venv/ready ## End the demo's cluster
	$(BIN)/kurm local down

format: .venv/ready ## Let ruff put the code in order
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/ready: pyproject.toml uv.lock
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kurm needs Python 3.11 or newer; python3 is $$(python3 --version)" >&2; exit 1; }
	@python3 -c 'import ensurepip, venv' 2>/dev/null || \
	  { apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv; }
	python3 -m venv .venv
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	$(BIN)/uv sync --quiet --frozen
	touch $@
