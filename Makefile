# Every target does the set-up that it needs. ARGS adds to a command: make train ARGS="trainer.max_epochs=3"
VENV ?= .venv
PYTHON ?= python3
ARGS ?=
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup train test lint format clean

help:  ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED)  ## create .venv and install the project with all that training and tests need

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet pesq 2>/dev/null || echo "PESQ left out: it needs a C compiler"
	touch $@

train: setup  ## train a small causal model on synthetic voices (minutes on two CPU cores)
	$(BIN)/python train.py experiment=demo $(ARGS)

test: setup  ## run the tests (GPU tests run where there is a GPU)
	$(BIN)/python -m pytest $(ARGS)

lint: setup  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and the caches of the tools
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
