# Each command sets up what it needs in .venv; a second run installs nothing.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: test demo test-gpu clean

test: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

demo: .venv/.cpu
	$(BIN)/picme demo --force -o picme-demo.png

# For a machine with an NVIDIA card; nobody has run it yet.
test-gpu: .venv/.dev
	$(BIN)/python -m pytest tests/gpu -rs

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.%: pyproject.toml | .venv/bin/python
	$(PIP) -e '.[$*]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
