# Each command sets up what it needs in .venv; a second run installs nothing.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Exact versions of all that is installed, where they were locked for this Python; see requirements/README.md.
LOCK := $(wildcard requirements/python$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').lock)

.PHONY: test demo cpp fuzz audit test-gpu clean

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

# All fuzzers, 60 seconds in all; docs/develop/fuzzing.md has the longer runs.
fuzz: .venv/.fuzz
	sh cpp_bindings/build.sh fuzz
	$(BIN)/python -m fuzz.run --seconds 60

# Asks an advisory database about the locked versions: needs the network, so it is no part of the tests.
audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	for lock in requirements/*.lock; do build/audit/bin/pip-audit --strict --disable-pip --no-deps -r $$lock || exit 1; done

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

.venv/.%: pyproject.toml $(LOCK) | .venv/bin/python
	$(PIP) $(addprefix -c ,$(LOCK)) -e '.[$*]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
