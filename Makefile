# Two commands do everything on a machine with Python 3.11+, make and pip:
#   make demo   trains and compares four systems on a small real task (a few minutes on two cores)
#   make test   runs the tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := src tests benchmarks $(wildcard examples docs/*.py docs/_ext/*.py)

.PHONY: demo test fuzz browser check format docs notebook setup clean

demo: $(READY)
	$(BIN)/vmt demo --out runs/demo

test: $(READY) browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Damaged files of every format: 10,000 of each, in about a quarter of an hour on two cores. A test reads a few hundred.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --jobs 2

# For the tests of the report's page; without one they are skipped, and say so.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	echo "No Chromium here: the browser tests will be skipped."

check: $(READY)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

# The code writes the tables, the page of the command line and the picture of the architecture. Then the site is built;
# a warning is an error.
docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/architecture.py
	$(BIN)/sphinx-build -W --keep-going -n -q -d build/doctrees docs build/docs
	@echo "Open build/docs/index.html"

# After a change of docs/notebook.ipynb: its outputs are stored with it, and the site shows them.
notebook: $(READY)
	$(BIN)/python docs/execute_notebook.py

format: $(READY)
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache
