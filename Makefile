# One way to do each thing. Every target sets up what it needs: Python 3.11 and GNU make suffice.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.installed
WITH_TORCH := $(VENV)/.installed-torch
SOURCES := coord sim jepsen-lite tests examples
SEEDS ?= 100
SEED ?= 1000
MINUTES ?= 60

.PHONY: help setup demo test test-slow sim sim-long mutants mutants-quick faults faults-broken check \
	format proto bench bench-etcd clean

help:
	@echo "make demo       three servers, five agents, three failures: watch a training job survive"
	@echo "make test       the whole test suite"
	@echo "make test-slow  the long slices as well"
	@echo "make sim        simulated clusters under faults, for a minute or so"
	@echo "make sim-long   the same for an hour (MINUTES=60), from another seed (SEED=1000)"
	@echo "make mutants    the product with one guard taken out after the other: what finds it, and how fast"
	@echo "make mutants-quick  the same from one seed each: minutes instead of hours"
	@echo "make faults     real clusters broken while clients work, and judged, for five minutes"
	@echo "make faults-broken  the product broken on purpose, in many ways: each must be noticed; half an hour"
	@echo "make check      format, lint, types"
	@echo "make bench      the figures in README.md, measured here; half an hour"
	@echo "make bench-etcd  the same work on etcd (installed where absent) in turn, and the ratios; an hour"
	@echo "make proto      regenerate coord/pb from proto/"
	@echo "make format     rewrite the sources in the project's format"
	@echo "make clean      remove the virtual environment and what was built"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 is needed, $(PYTHON) is older: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev]'
	touch $@

# torch is 200 MB and only the tests of examples/ddp.py need it, so the demo does not wait for it.
$(WITH_TORCH): $(INSTALLED)
	$(PIP) -e '.[torch]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/coordctl demo

test: $(WITH_TORCH)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" tests

test-slow: $(WITH_TORCH)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests

sim: $(INSTALLED)
	$(BIN)/coordctl sim run --seeds $(SEEDS) --seed 1

sim-long: $(INSTALLED)
	$(BIN)/coordctl sim run --minutes $(MINUTES) --seed $(SEED) --keep-going

faults-broken: $(INSTALLED)
	$(BIN)/coordctl faults broken --directory build/broken

check: $(INSTALLED)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

mutants: $(INSTALLED)
	$(BIN)/coordctl sim mutants

mutants-quick: $(INSTALLED)
	$(BIN)/coordctl sim mutants --quick

# Every workload, and of nemeses every family: processes, links, disks and clocks, members.
faults: $(INSTALLED)
	rm -rf build/faults
	$(BIN)/coordctl faults run --workload registers+training,jobs+watches,churn+members \
		--nemesis kill-leader+pause-host+transfer,halves+slow,power-cut+clock \
		--minutes 0.25 --seed 1 --keep-going --directory build/faults

proto: $(INSTALLED)
	$(BIN)/python -m tests.generate_proto

bench: $(INSTALLED)
	$(BIN)/python -m tests.bench --long

# make bench-etcd BENCH="--quick" takes some minutes; the other options are in its --help.
BENCH ?=
bench-etcd: $(INSTALLED)
	$(BIN)/python -m tests.bench.etcd $(BENCH)

clean:
	rm -rf $(VENV) build dist *.egg-info
