# Everything a newcomer or CI types. Needs Python 3.11+ and make; the rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASELINES := .venv-baselines
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-full lint types house bench study results benchmark pictures baselines docs examples wheel clean

demo: $(VENV)/.demo
	$(BIN)/safeimpute demo

test: $(VENV)/.test lint types
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not full"

test-full: $(VENV)/.full $(BASELINES)/.done
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m full

lint: $(VENV)/.test
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/ruff check src tests bench examples
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.test
	$(BIN)/mypy

# Counts of the code's shape, the walk of one run, and the picture of the packages in docs/architecture.md.
house: $(VENV)/.test
	$(BIN)/python bench/house.py . --picture docs/images/packages.svg
	$(BIN)/python bench/walk.py .

bench: $(VENV)/.full
	$(BIN)/python bench/value_edges.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/cohort_scale.py
	$(BIN)/python bench/scoring.py
	$(BIN)/python bench/scoring.py --patients 1500 --new 202000 --labs 3 --spark
	$(BIN)/python bench/two_at_once.py
	$(BIN)/python bench/million.py --visits 125000
	$(BIN)/python bench/million.py --visits 1000000

study: $(VENV)/.test
	$(BIN)/python bench/guarantee_rules.py --out out/study --repetitions 2000 --jobs 2
	$(BIN)/python bench/guarantee_study.py --out out/study --patients 300 --cohorts 40 --jobs 2
	$(BIN)/python bench/promise_rules.py --out out/study --repetitions 2000 --jobs 2
	$(BIN)/python bench/guarantee_page.py out/study docs

results: $(VENV)/.test
	$(BIN)/python bench/results.py export
	$(BIN)/python bench/results.py run
	$(BIN)/python bench/results.py write

# Every method at its published settings; goes on where it stopped. Hours on a CPU.
benchmark: $(VENV)/.test $(BASELINES)/.done
	$(BIN)/python bench/benchmark_data.py out/benchmark
	sh -e out/benchmark/run.sh
	$(BIN)/python bench/benchmark_page.py out/benchmark

# HyperImpute and GAIN need older libraries: an environment of their own, pinned to the last package.
baselines: $(BASELINES)/.done

# The documentation site in out/site; a warning or a broken link is an error. Opens from files, without a network.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open out/site/index.html"

# Every example anew, with the figures the site shows; those on clinical data need SAFEIMPUTE_DATA.
examples: $(VENV)/.demo
	OMP_NUM_THREADS=1 $(BIN)/python bench/run_examples.py --figures docs/images/examples

# Wheel and source in dist/, and the wheel tried in an environment of its own, extras resolved.
wheel: $(VENV)/.test
	$(BIN)/pip install --quiet build
	$(BIN)/python bench/package.py dist --clean --extras

pictures: $(VENV)/.test demo
	$(BIN)/python bench/pictures.py out/demo docs/images

$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[test]'
	touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[docs]'
	touch $@ $(VENV)/.demo

$(VENV)/.full: $(VENV)/.test
	$(BIN)/pip install --quiet -e '.[full]'
	touch $@ $(VENV)/.docs

$(BASELINES)/.done: baselines-requirements.txt constraints.txt
	test -x $(BASELINES)/bin/python || $(PYTHON) -m venv $(BASELINES)
	$(BASELINES)/bin/pip install --quiet --no-deps -r baselines-requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(BASELINES) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
