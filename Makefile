# Commands for people and CI. They require Python and make only.
.DEFAULT_GOAL := help
.PHONY: help up down check test bench lock generate wheel
PYTHON ?= python3
STACK ?= mi300
VENV := .venv
INSTALLED := $(VENV)/.installed
# Let Python cache compiled modules, whatever the environment says. Otherwise every command starts a second later.
export PYTHONDONTWRITEBYTECODE =

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(INSTALLED)  ## run STACK (mi300) on this machine, with a sample of jobs
	@$(VENV)/bin/gpufleet sandbox up $(STACK)

down: $(INSTALLED)  ## stop STACK
	@$(VENV)/bin/gpufleet sandbox down $(STACK)

check: $(INSTALLED)  ## style, types, and every test that starts no process: about a minute
	@$(VENV)/bin/python -m pytest -q -n auto --dist worksteal -m "style or (not process and not slow)"

test: $(INSTALLED)  ## run every test; a test builds what it needs
	@$(VENV)/bin/python -m pytest -n auto --dist loadfile --durations=20

bench: $(INSTALLED)  ## measure what should be fast, side by side
	@$(VENV)/bin/python -m tests.bench

generate: $(INSTALLED)  ## write all generated files: schemas, tables, outputs, pictures, golden plans
	@ACCEPT=1 $(VENV)/bin/python -m pytest -q -m generated

wheel: $(INSTALLED)  ## build the package for other projects into dist/
	@$(VENV)/bin/python -m hatchling build -t wheel -d dist

lock: $(INSTALLED)  ## pin every dependency again, with hashes
	@$(VENV)/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  pyproject.toml -o requirements.txt
	@$(VENV)/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra sandbox --extra dev pyproject.toml -o requirements-dev.txt
	@$(VENV)/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  policy/pyproject.toml -o policy/requirements.txt

$(INSTALLED): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "make: $(PYTHON) is not Python 3.11, 3.12 or 3.13; choose one of these: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
