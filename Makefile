# Everything a newcomer or CI types. Needs Python 3.11+ and make; the rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-full lint types bench study results pictures clean

demo: $(VENV)/.demo
	$(BIN)/safeimpute demo

test: $(VENV)/.test lint types
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not full"

test-full: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m full

lint: $(VENV)/.test
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench

types: $(VENV)/.test
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python bench/value_edges.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/cohort_scale.py

study: $(VENV)/.test
	$(BIN)/python bench/guarantee_study.py --out docs
	$(BIN)/python bench/measuring_shift.py

results: $(VENV)/.test
	$(BIN)/python bench/results.py export
	$(BIN)/python bench/results.py run
	$(BIN)/python bench/results.py write

pictures: demo
	mkdir -p docs/images
	cp out/demo/figures/released_by_value.png out/demo/figures/risk_alignment.png docs/images/

$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[test]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
