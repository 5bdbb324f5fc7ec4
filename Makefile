# Each command sets up what it needs in .venv; a second run installs nothing.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: test demo lint clean

test: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

demo: .venv/.train
	$(BIN)/python training/drawn.py --out build/demo/faces --count 400
	$(BIN)/python training/train.py --config training/configs/tiny32.toml --data build/demo/faces --out build/demo/run --resume --minutes 1
	@echo "the newest sheet in build/demo/run/sheets shows, row by row: truth, input, reconstruction, six samples"

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.%: pyproject.toml | .venv/bin/python
	$(PIP) -e '.[$*]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
