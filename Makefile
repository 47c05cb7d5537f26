# Everything a developer runs, on a machine with Python 3.11+ and a package index. Paths are relative, so that the
# checkout may stand in a folder with spaces.
.DEFAULT_GOAL := help
.PHONY: help setup demo check test fuzz crashes cluster-test nightly remote-test lint format bench peers

PYTHON ?= python3
PEERS := flink pathway
PEER_PYTHONS := python3.11 python3.12 python3.10 $(PYTHON)
BIN := .venv/bin
WORKERS ?= 2
CASES ?= 10000
FAULTS ?= 30
# Of a nightly run.
KILLS ?= 700
CRASHES ?= 20000
NIGHTLY_FAULTS ?= 300
N ?= 20000
# Workers of a test run, each with a Spark session of its own; what measures time runs alone, after them.
SIDE_BY_SIDE = -m "not serial" -n $(WORKERS) --dist loadgroup
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: .venv/.headrace-dev ## make .venv with everything needed to develop (and Java, where there is none)

demo: .venv/.headrace-run ## run the demo: views kept fresh, checked and timed against Spark
	$(BIN)/headrace demo

check: lint ## lint, then the tests that tell most in a few minutes
	$(BIN)/python -m pytest --tier=check $(SIDE_BY_SIDE)

test: lint ## lint, then run all tests
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest -m serial

fuzz: .venv/.headrace-dev ## open damaged and crafted locations: CASES=10000 of them
	HEADRACE_FUZZ=$(CASES) $(BIN)/python -m pytest tests/fuzz -s

crashes: .venv/.headrace-dev ## cut the power of N=20000 simulated machines, and let each operation of a disk fail
	HEADRACE_CRASHES=$(N) $(BIN)/python -m pytest tests/engine/test_failing_disk.py tests/engine/test_power_cuts.py \
	  -k "committed_prefix or short_life or whatever_fails" --timeout=0

cluster-test: .venv/.headrace-dev ## a cluster of processes: every kind of view, then FAULTS=30 faults; SEED=N repeats a run
	HEADRACE_FAULTS=$(FAULTS) $(if $(SEED),HEADRACE_SEED=$(SEED)) $(BIN)/python -m pytest --tier=cluster tests/cluster

nightly: .venv/.headrace-dev ## hours of faults: KILLS=700 drivers, CRASHES=20000 power cuts, NIGHTLY_FAULTS=300 on a cluster
	$(BIN)/python -m tests.cluster.nightly $(KILLS) $(CRASHES) $(NIGHTLY_FAULTS)

# What the servers need is kept apart, because its versions rule out those of Headrace's own tools.
remote-test: .venv/.headrace-dev .servers/s3/.ready .servers/hdfs/.ready ## test locations on S3 and HDFS servers (300 MB, once)
	HEADRACE_SERVERS=1 $(BIN)/python -m pytest tests/remote -s

.servers/s3/.ready:
	$(PYTHON) -m venv .servers/s3
	.servers/s3/bin/python -m pip install --quiet --disable-pip-version-check 'moto[server,s3]==5.2.5'
	@touch $@

.servers/hdfs/.ready: tests/remote/hdfs_pom.xml
	mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DoutputDirectory=$(abspath .servers/hdfs)
	@touch $@

lint: .venv/.headrace-dev ## check format, style, types and the direction of imports
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

format: .venv/.headrace-dev ## format the code, and fix what can be fixed
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: .venv/.headrace-run ## tell how to run the benchmarks
	@$(BIN)/headrace bench

peers: ## install the peers of the benchmarks, each into .peers/NAME (2.5 GB in all)
	@for peer in $(PEERS); do \
	  $(MAKE) --silent --no-print-directory .peers/$$peer/.ready || echo "No $$peer here: benchmarks go on without it." >&2; \
	done

# Each has an environment of its own, as their dependencies rule out each other's. Of the Pythons that are here, the
# first that all of its packages have wheels for is used.
.peers/%/.ready: peers/%.txt
	@for python in $(PEER_PYTHONS); do \
	  $$python -c '' 2>/dev/null || continue; \
	  echo "Installing $* into .peers/$*, with $$python (once, a few minutes) ..."; \
	  $$python -m venv --clear .peers/$* && \
	  .peers/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $< && \
	  { touch $@; exit 0; }; \
	done; echo "$* could not be installed with any of: $(PEER_PYTHONS)" >&2; rm -rf .peers/$*; exit 1

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headrace needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The stamps make a second setup free. Java is looked for with Headrace's own eyes, so that both agree on what is there.
.venv/.headrace-run: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing Headrace into .venv (once, a minute or two) ..."
	$(PIP) -e .
	@$(BIN)/python -m headrace.runtime.java >/dev/null 2>&1 || { echo "No Java 17+ here; installing one into .venv ..."; $(PIP) -e '.[java]'; }
	@echo "Compiling the kernels (once, some seconds) ..."
	@$(BIN)/python -m headrace.engine.compiling
	@touch $@

.venv/.headrace-dev: .venv/.headrace-run
	@echo "Installing the tools of development into .venv ..."
	$(PIP) -e '.[dev]'
	@touch $@
