# Two commands do everything on a fresh machine: `make quickstart` and `make test`. `make help` lists the rest.
# The system's Python first, if it can make environments and build extensions: distributions compile theirs with profile-guided
# optimization, version managers mostly without, which makes everything slower.
PYTHON ?= $(shell for python in /usr/bin/python3.11 /usr/bin/python3.12 python3.11 python3.12; do \
  $$python -c 'import ensurepip, os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null && \
  command -v $$python && exit; done; command -v python3)
BIN := .venv/bin
# Byte code of what is imported is written when it is imported: that of all files takes longer than their installation.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
RUN := runs/quickstart
# Byte code is compiled once, not by each of the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup dev quickstart test test-fast lint bench docs schemas lock wheel clean

help:
	@echo "make quickstart   set up .venv, build the example corpus, train a small model on it"
	@echo "make test         set up .venv with the test tools, run the whole suite"
	@echo "make test-fast    the suite without the proofs that take minutes (kills, worker counts)"
	@echo "make lint         ruff and mypy"
	@echo "make bench        measure every figure of the docs; writes bench/RESULTS.md"
	@echo "make docs         the documentation as a site, in site/"
	@echo "make schemas      export the JSON Schemas; make lock: renew the lock files (needs uv)"
	@echo "make wheel        a wheel in dist/ whose first run compiles nothing (x86-64-v3, Linux, this Python)"
	@echo "make clean        delete .venv and runs/"

# torch goes first and alone: the lock leaves it out, since its hash differs between CPU and CUDA builds.
.venv/run.stamp: requirements/run.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v not in ((3, 11), (3, 12)) and "CorpusMill needs Python 3.11 or 3.12, found %d.%d; name one: make PYTHON=python3.11 ..." % v)'
	@echo "setting up .venv (once; some minutes)"
	$(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt torch==2.13.0
	$(PIP) --require-hashes -r requirements/run.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev.stamp: .venv/run.stamp requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "no Chromium found: the browser tests will say that they were skipped (install the package 'chromium')"
	@command -v slurmctld >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge >/dev/null; } || \
	  echo "no Slurm found: its tests will say that they were skipped (packages slurmctld, slurmd, slurm-client, munge)"
	@command -v azurite-blob >/dev/null || [ -e node_modules/.bin/azurite-blob ] || { command -v npm >/dev/null && \
	  npm install --prefix . --no-save --no-audit --no-fund --loglevel=error azurite@3.35.0 >/dev/null; } || \
	  echo "no Azurite found: the tests of az:// will say that they were skipped (npm install azurite)"
	@touch $@

setup: .venv/run.stamp
dev: .venv/dev.stamp

quickstart: .venv/run.stamp
	$(BIN)/corpusmill run configs/recipes/quickstart.yaml
	$(BIN)/corpusmill train configs/train/quickstart.yaml
	$(BIN)/corpusmill evaluate configs/train/quickstart.yaml
	$(BIN)/corpusmill generate configs/train/quickstart.yaml --prompt "The history of"
	@echo
	@echo "report: $(RUN)/report.html   why one document went: $(BIN)/corpusmill why DOC_ID --run $(RUN)"

# A worker that has nothing left takes the next file, in the order of tests/conftest.py: fixtures of a file are made once.
SUITE := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test: .venv/dev.stamp
	$(SUITE) tests

test-fast: .venv/dev.stamp
	$(SUITE) -m "not slow" tests

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/dev.stamp
	$(BIN)/python -m bench

docs: .venv/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

schemas: .venv/run.stamp
	$(BIN)/python -m corpusmill.schemas

lock:
	$(PYTHON) requirements/make_lock.py

wheel: .venv/dev.stamp
	$(BIN)/python -m tools.wheel dist

clean:
	rm -rf .venv runs site
