# Every target sets up what it needs; nothing is installed or downloaded twice.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3; do $$p -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CAD := .venv-cad
CAD_STAMP := $(CAD)/.installed
JOBS ?= 2
export OMP_NUM_THREADS ?= 1

.PHONY: help setup system demo test lint kafka ui bench learning chaos unprivileged starved cad cad-test docs clean

help:            ## these lines
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## ?/  make \1\t/' | expand -t 18

setup: system $(STAMP)    ## virtual environment in .venv, with `.venv/bin/headrace`

system:
	@deploy/system.sh

$(STAMP): requirements/lock.txt requirements/bootstrap.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements/lock.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup      ## the whole loop on this machine: tasks, rollouts, verdicts, lake, batches, better weights
	@$(BIN)/headrace demo $(ARGS)

test: setup lint $(if $(filter 1,$(HEADRACE_REQUIRE_REAL)),$(CAD_STAMP)) ## all tests; ARGS="-k name" selects
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: setup      ## ruff, mypy, import contracts, generated docs
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

kafka: setup     ## a real Apache Kafka on loopback, from Maven jars; Ctrl-C ends it
	@deploy/system.sh kafka
	@$(BIN)/python deploy/kafka/broker.py $(ARGS)

ui: setup        ## Dagster's pages over the home's instance
	@$(BIN)/python -m pipelines.ui $(ARGS)

bench: setup     ## all benchmarks: benchmarks/results.json and docs/benchmarks.md; ARGS="--quick" or names
	@$(BIN)/python benchmarks/report.py $(ARGS)

learning: setup  ## slow proof: three seeds climb, shuffled rewards do not
	$(BIN)/python benchmarks/learning.py $(ARGS)

chaos: setup     ## slow proof: 210 random kills and pauses on SQLite, Kafka and S3, then the audit; ARGS="--seed 7 --kills 300"
	$(BIN)/python -m tests.chaos.chaos $(ARGS)

unprivileged: setup ## slow proof: all tests of sandboxes as an ordinary user without any capability
	$(BIN)/python -m tests.unprivileged pytest -n $(JOBS) --dist loadfile tests/sandboxes -k "not docker" $(ARGS)

starved: setup   ## slow proof: every way to hang, starve or break a judge of code, at every kind of coding task
	HEADRACE_EVERY_PAIR=1 $(BIN)/pytest tests/verifiers/test_coding_starved.py $(ARGS)

cad: $(CAD_STAMP) ## the environment of build123d programs (1 GB), apart from all else

$(CAD_STAMP): requirements/cad.txt | $(STAMP)
	@test -x $(CAD)/bin/python || $(PYTHON) -m venv --without-pip $(CAD)
	$(BIN)/uv pip install --quiet --python $(CAD)/bin/python --compile-bytecode --require-hashes -r requirements/cad.txt
	@touch $(CAD_STAMP)

cad-test: setup cad ## slow proof: every CAD program of the shared cases against its measured reference
	SCENE_ALL=1 $(BIN)/python -m pytest tests/verifiers/test_scene_programs.py $(ARGS)

docs: setup      ## write docs/events.md, docs/tables.md and docs/commands.md from the code
	$(BIN)/python docs/generate.py

clean:           ## the virtual environment, caches, the homes of the demo and of learning
	rm -rf $(VENV) $(CAD) .headrace .headrace-learning .kafka .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
