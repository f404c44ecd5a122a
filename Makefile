# Each target works alone on a machine that has Python >= 3.11, pip and make; what it needs it creates.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.nvmesim-installed
RUNS := $(VENV)/.nvmesim-runs
WORKERS ?= 2
# Tests of the engines that run with bounds checking, too: CI takes a few files of them.
BOUNDS_TESTS ?= tests/engines

# Tests marked "browser" load the HTML report in headless Chromium; without one they are left out.
BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
ifeq ($(BROWSER),)
NO_BROWSER = and not browser
endif
# Tests that share a fit are one group, on one worker: the fit is made once.
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

# Hundreds of tests start a Python of their own: without its cache of bytecode each compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help warm venv run run-local test test-long test-all test-bounds lint browser-word bench theory docs golden pictures coverage \
	mutation audit fuzz lock clean

help:
	@echo "make run       calibrate a measured NVMe drive, predict eight of them beside what was measured"
	@echo "make run-local calibrate on the captures in calibration/local-disk, predict a RAID5 of such drives"
	@echo "make test      lint, types, layers, tests (without the long and the slow ones)"
	@echo "make test-long the long tests; CI runs these too"
	@echo "make test-all  the same with the slow tests, and the engines once with bounds checking"
	@echo "make bench     speed: both engines against SimPy, salabim, Ciw and a C program"
	@echo "make theory    simulated against exact results of queueing theory"
	@echo "make docs      the documentation as a site in build/site"
	@echo "make golden    write the golden files anew: results have changed, and are meant to"
	@echo "make pictures  approve what the page looks like now; look at tests/ui/pictures before a commit"
	@echo "make coverage  lines and branches that the tests reach, kernels with the JIT off (half an hour)"
	@echo "make mutation  small changes of planner, kernel and fit that no test notices (an hour; adds up)"
	@echo "make audit     known vulnerabilities of what is installed"
	@echo "make fuzz      a million hostile files for each reader, or SECONDS=600; counts add up"
	@echo "make venv      only the environment in $(VENV)"

venv: $(STAMP)

define install
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, none was found; set PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
		|| $(PYTHON) -m venv --clear --without-pip $(VENV)
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
	else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; set -x; \
	$$pip install --quiet --disable-pip-version-check --require-hashes -r $(1) && \
	$$pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
endef

# all, for developers; what runs is among it
$(STAMP): requirements.lock requirements-run.lock pyproject.toml
	$(call install,requirements.lock)
	touch $(RUNS) $@

# what it takes to run, and no more: a third of the time
$(RUNS): requirements-run.lock pyproject.toml
	$(call install,requirements-run.lock)
	touch $@

run: $(RUNS)
	@mkdir -p build
	$(BIN)/nvmesim calibrate calibration/samsung-980pro/depth.csv --name samsung-980pro -o build/980pro.toml \
		--captured-on linux-io_uring,'pcie4 x4','2.4 GHz'
	$(BIN)/nvmesim run examples/eight-980pro.toml
	@awk -F, '/^"8 drives, 10x128",iops/ { printf "Measured on eight of them: %.3fM IOPS", $$4 / 1e6 } \
		/^"8 drives, 10x128",lat_mean_us/ { printf ", mean latency %.0f us", $$4 } \
		/^"8 drives, 10x128",clat_p99_us/ { printf ", p99 %.0f us", $$4 } \
		END { print " (calibration/published/980pro-jbod)" }' calibration/published/980pro-jbod/rows.csv

run-local: $(RUNS)
	@mkdir -p build
	$(BIN)/nvmesim calibrate calibration/local-disk/*.json --name local-disk -o build/local-disk.toml \
		--hold-out OP=randrw:70
	$(BIN)/nvmesim run examples/raid5.toml

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

browser-word:
	@test -n "$(BROWSER)" || echo "No Chromium here: the tests that look at the HTML report in a browser are left out."

# types are checked on one core while the engine is compiled on the other
test: venv browser-word
	@$(MAKE) --no-print-directory --output-sync=target -j2 lint warm
	$(PYTEST) -m "not slow and not long $(NO_BROWSER)"

# Tests of many seconds each: whole fits, every cut of every sample, pages followed to the end.
test-long: venv
	$(PYTEST) -m "long and not slow $(NO_BROWSER)"

test-all: venv browser-word
	@$(MAKE) --no-print-directory --output-sync=target -j2 lint warm
	$(PYTEST) -m "slow or not slow $(NO_BROWSER)"
	$(MAKE) test-bounds

# Numba reads out of bounds silently; here it checks. A cache of its own: the flag is not part of the key.
test-bounds: venv
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/build/numba-bounds $(PYTEST) -m "not slow and not long" $(BOUNDS_TESTS)

bench: venv
	$(BIN)/python -m benchmarks

# Compiles the engine now, so that the first prediction need not.
warm: venv
	$(BIN)/nvmesim run examples/two-sockets.toml --json > /dev/null

theory: venv
	$(BIN)/python -m tests.theory

# Notebooks are run for their pages; those that did not change are taken from build/notebooks.
docs: venv
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo "build/site/index.html"

golden: venv
	$(BIN)/python -m tests.golden

pictures: venv
	APPROVE_PICTURES=1 $(BIN)/python -m pytest -q -n 0 tests/ui/test_pictures.py

# The kernels are Python with the JIT off, and slow: there the tests that are about them run on few networks.
JIT_OFF_TESTS = tests/mutation/check_kernel.py tests/engines/test_check.py tests/engines/test_by_hand.py \
	tests/engines/test_heap.py tests/capture/test_block_blkparse.py tests/capture/test_cases.py \
	tests/capture/test_block_pairing.py tests/capture/test_fio_logs.py \
	tests/capture/test_table_rows.py tests/capture/test_trap_matrix.py
# whole fits and sets: their code has no quick test
SLOW_TESTS = tests/calibrate/test_stack.py tests/validate tests/docs

COVERED = $(BIN)/python -m coverage run -m pytest -q -n $(WORKERS) --dist loadgroup

# Fails below the floors of tests/reached.py, and if a test fails; the figures are given all the same.
coverage: venv
	@rm -rf build/coverage; mkdir -p build/coverage
	@set -x; failed=0; \
	$(COVERED) -m "not slow $(NO_BROWSER)" || failed=1; \
	$(COVERED) -m "slow" $(SLOW_TESTS) || failed=1; \
	NUMBA_DISABLE_JIT=1 $(COVERED) -m "not slow" $(JIT_OFF_TESTS) || failed=1; \
	$(BIN)/python -m coverage combine -q --keep && $(BIN)/python -m coverage report || failed=1; \
	$(BIN)/python -m coverage json -q -o build/coverage/report.json || failed=1; \
	$(BIN)/python -m tests.reached build/coverage/report.json || failed=1; \
	exit $$failed

mutation: venv
	$(BIN)/python -m tests.mutation

fuzz: venv
	$(BIN)/python -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS),--cases 1000000)

# Asks the index for advisories on what is locked; fails where the index gives none.
audit:
	@test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit \
		&& build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	@build/audit/bin/pip-audit --strict --progress-spinner off --require-hashes --disable-pip -r requirements.lock \
		|| { echo "Not clean, or not audited: \"not found on PyPI\" means that this index gives no advisories;" \
			"ask again where it does." >&2; exit 1; }

# For developers: after a change of the dependencies (uv is not one of them).
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --extra dev --extra docs --extra bench pyproject.toml -o requirements.lock
	printf 'editables\nhatchling\n' | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate -c requirements.lock --extra ui pyproject.toml - -o requirements-run.lock

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .benchmarks .hypothesis
