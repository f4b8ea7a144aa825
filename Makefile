# make demo    a real UNet, the wrong dtype, and dtypetrace's report
# make test    ruff, mypy and the whole test suite
# make fast    its quick part
# make lint    ruff and mypy
# make exhaustive    torch's whole databases of operators, modules and optimizers, and its own tests: many minutes
# make fuzz          MUTATIONS damaged traces and sources; DTYPETRACE_SEED=N chooses other ones
# make dtype-rules    measures the operators' dtype rules from torch's kernels again, which takes twenty minutes or more
# make torch-tests TORCH_TESTS=/path/to/pytorch/test    PyTorch's own tests, plain and traced
# make matrix        the demo and quick tests under PYTHONS and TORCHES, several GB of downloads
# make docs          the documentation site in build/site, built strictly; open build/site/index.html
# make dist          a wheel and a source distribution in dist, installed and tested in an environment outside the checkout
# make benchmark, make clean
#
# The first two work on a machine that has nothing but Python 3.11 and make: what they need goes
# into .venv, once, and again when setup.cfg or constraints.txt changes.
# PYTHON=python3.12 chooses the interpreter, PYTEST_ARGS="-k places" is passed to pytest.

.DEFAULT_GOAL := demo
.DELETE_ON_ERROR:
.PHONY: demo test fast exhaustive fuzz matrix torch-tests lint ruff dtype-rules docs dist benchmark clean

VENV := .venv
IN_VENV := $(VENV)/bin/python
# the first of these that exists, runs and is new enough
FOUND = $(shell for python in python3.11 python3 python3.12 python3.13 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)
PYTHON ?= $(FOUND)
PYTEST_ARGS ?=
# two processes by default: each one imports torch, which takes memory
PYTEST_JOBS ?= 2
# compiled when it is imported: most of what the libraries hold never is. Kept, whatever the environment says: importing
# torch from its source takes more than twice as long, and the tests start many processes
export PYTHONDONTWRITEBYTECODE :=
INSTALL = $(IN_VENV) -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
PYTEST = $(IN_VENV) -m pytest -n $(PYTEST_JOBS) --dist worksteal
DECLARED := setup.cfg pyproject.toml constraints.txt

# all models are made by the scripts themselves; nothing is downloaded from a hub
export HF_HUB_OFFLINE := 1

demo: $(VENV)/models.stamp
	@$(IN_VENV) -m dtypetrace run examples/unet_mask.py; status=$$?; \
	if [ $$status -ne 1 ]; then echo "make demo: the example should end with status 1, not $$status" >&2; exit 1; fi; \
	echo; echo "The script failed, as it was meant to; the report above says which line to change. That was the demo."

# mypy takes one core for a minute: beside the tests
test: ruff $(VENV)/browser.stamp
	@mkdir -p build; $(IN_VENV) -m mypy >build/mypy.txt 2>&1 & checked=$$!; \
	$(PYTEST) -m "not exhaustive" $(PYTEST_ARGS); status=$$?; \
	wait $$checked || { cat build/mypy.txt; status=1; }; exit $$status

fast: $(VENV)/test.stamp
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

exhaustive: $(VENV)/test.stamp
	$(PYTEST) -m exhaustive $(PYTEST_ARGS)

PYTHONS ?= $(foreach version,3.11 3.12 3.13 3.14,$(shell python$(version) -c 1 2>/dev/null && echo python$(version)))
TORCHES ?= 2.13.0 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.14.1 2.15.0
matrix:
	$(firstword $(PYTHONS)) -m tools.matrix --python $(PYTHONS) --torch $(TORCHES)

torch-tests: $(VENV)/test.stamp
	@if [ -z "$(TORCH_TESTS)" ]; then echo "make torch-tests: set TORCH_TESTS=/path/to/pytorch/test, the tests of a checkout of PyTorch" >&2; exit 1; fi
	$(IN_VENV) -W ignore -m tools.torch_tests $(TORCH_TESTS) $(FILES)

MUTATIONS ?= 50000
fuzz: $(VENV)/test.stamp
	DTYPETRACE_MUTATIONS=$(MUTATIONS) $(IN_VENV) -m pytest -n $(PYTEST_JOBS) -o timeout=0 tests/test_fuzzing.py $(PYTEST_ARGS)

lint: ruff
	$(IN_VENV) -m mypy

ruff: $(VENV)/test.stamp
	$(IN_VENV) -m ruff check dtypetrace tests benchmarks tools
	$(IN_VENV) -m ruff format --check dtypetrace tests benchmarks tools

dtype-rules: $(VENV)/test.stamp
	$(IN_VENV) -m tools.operator_rules

# strict: a link, an anchor or an entry of the navigation that leads nowhere ends the build (--quiet would hide it from mkdocs)
docs: $(VENV)/test.stamp
	NO_MKDOCS_2_WARNING=1 $(IN_VENV) -m mkdocs build --strict
	@echo "built: build/site/index.html"

dist: $(VENV)/test.stamp
	$(IN_VENV) -m tools.distribution --jobs $(PYTEST_JOBS)

benchmark: $(VENV)/test.stamp
	@status=0; for script in overhead always_on compiled start scale reference; do $(IN_VENV) benchmarks/$$script.py || status=1; done; exit $$status

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(IN_VENV):
	@if [ -z "$(PYTHON)" ]; then echo "make: no Python 3.11 or newer found. Install one, or run make PYTHON=/path/to/python" >&2; exit 1; fi
	$(PYTHON) -m venv $(VENV)

# one after the other, also under make -j: pip does not share a .venv
$(VENV)/models.stamp: $(DECLARED) $(IN_VENV)
	@echo "installing into $(VENV): torch, diffusers and what they need; this takes a few minutes, once"
	$(INSTALL) --editable ".[models]"
	@touch $@

# all in one go where nothing is installed yet: pip resolves once
$(VENV)/test.stamp: $(DECLARED) $(IN_VENV)
	@echo "installing into $(VENV): torch, diffusers, the tools of the tests and what they need; this takes a few minutes, once"
	$(INSTALL) --editable ".[models,test,docs]"
	@touch $(VENV)/models.stamp $@

# Chromium, in which the HTML report is tested: the installed one, else Debian's, else Playwright's own.
# Without one those tests are skipped; where CI is set they fail.
$(VENV)/browser.stamp: $(VENV)/test.stamp
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Debian's chromium for the browser tests" \
		&& apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium fonts-dejavu-core >/dev/null; then touch $@; \
	elif $(IN_VENV) -m playwright install chromium; then touch $@; \
	else echo "make: no Chromium could be installed; the browser tests are skipped, or fail where CI is set" >&2; fi
