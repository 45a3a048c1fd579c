# One way to do each thing. Every target sets up what it needs.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test check format proto bench clean

help:
	@echo "make demo    three servers, five agents, three failures: watch a training job survive"
	@echo "make test    the whole test suite"
	@echo "make check   format, lint, types"
	@echo "make bench   the figures in README.md, measured here"
	@echo "make proto   regenerate coord/pb from proto/"
	@echo "make format  rewrite the sources in the project's format"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/coordctl demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadgroup tests

check: $(STAMP)
	$(BIN)/ruff format --check coord tests examples
	$(BIN)/ruff check coord tests examples
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format coord tests examples
	$(BIN)/ruff check --fix coord tests examples

proto: $(STAMP)
	$(BIN)/python -m tests.generate_proto

bench: $(STAMP)
	$(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) build dist *.egg-info
