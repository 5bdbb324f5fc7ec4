# Each command sets up what it needs in .venv; a second run installs nothing.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: test demo cpp test-gpu clean

test: .venv/.dev .venv/.browser cpp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

demo: .venv/.cpu
	$(BIN)/picme demo --force -o picme-demo.png

# The C and C++ library into build/cpp, with its tests; installs tools where it may and says what it skipped (never in CI).
cpp:
	sh cpp_bindings/build.sh

# For a machine with an NVIDIA card; nobody has run it yet.
test-gpu: .venv/.dev
	$(BIN)/python -m pytest tests/gpu -rs

.venv/bin/python:
	$(PYTHON) -m venv .venv

# For the studio's browser test. Where no browser can be had the test is skipped, and says so; with CI set it fails.
.venv/.browser: | .venv/bin/python
	@if ! which chromium chromium-browser google-chrome >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && which apt-get >/dev/null 2>&1; then \
	  apt-get -qq update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null; fi
	@if which chromium chromium-browser google-chrome >/dev/null 2>&1; then touch $@; else echo "no Chromium here: the studio's browser test is skipped"; fi

.venv/.%: pyproject.toml | .venv/bin/python
	$(PIP) -e '.[$*]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
