# Everything a newcomer or CI types. Needs Python 3.11+ and make; the rest is installed into .venv.
PYTHON ?= python3
PYTHON312 ?= python3.12
VENV := .venv
BIN := $(VENV)/bin
BASELINES := .venv-baselines
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-full lint types house bench evidence evidence-check benchmark pictures baselines nonconform peers reproduce docs examples wheel clean

demo: $(VENV)/.demo
	$(BIN)/safeimpute demo

test: $(VENV)/.test lint types
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not full"

test-full: $(VENV)/.full $(BASELINES)/.done
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m full

lint: $(VENV)/.test
	$(BIN)/ruff format --check src tests tools examples lab
	$(BIN)/ruff check src tests tools examples lab
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.test
	$(BIN)/mypy

# Counts of the code's shape, the walk of one run, and the picture of the packages in docs/architecture.md.
house: $(VENV)/.test
	$(BIN)/python tools/house.py . --picture docs/images/packages.svg
	$(BIN)/python tools/walk.py .
	$(BIN)/python tools/counts.py .

LAB := $(BIN)/python -m safeimpute_lab

bench: $(VENV)/.full
	$(LAB) speed value_edges
	$(LAB) speed training
	$(LAB) scale cohort
	$(LAB) speed scoring
	$(LAB) speed scoring --patients 1500 --new 202000 --labs 3 --spark
	$(LAB) speed two_at_once
	$(LAB) scale million --visits 125000
	$(LAB) scale million --visits 1000000

# The tables of docs/evidence.md whose code has changed since they were made; goes on where it stopped. Hours on a CPU.
evidence: $(VENV)/.test
	$(LAB) evidence make

# Which tables rest on code that has changed since.
evidence-check: $(VENV)/.test
	$(LAB) evidence check

# Every method at its published settings; goes on where it stopped. Hours on a CPU.
benchmark: $(VENV)/.test $(BASELINES)/.done
	$(LAB) evidence tables out/benchmark
	sh -e out/benchmark/run.sh

# The paper's tables and figures on the bundled visits; goes on where it stopped. Hours on a CPU.
reproduce: $(VENV)/.test $(BASELINES)/.done
	mkdir -p out
	$(BIN)/python -c "from safeimpute.visits.examples import load_pbc; load_pbc().write_parquet('out/pbc.parquet')"
	$(BIN)/safeimpute reproduce out/pbc.parquet --target cholesterol --tolerance 20% --fdr 0.2 --unit mg/dL \
	  --protocol mayo --force -o out/reproduced

# HyperImpute, PyPOTS, miceforest and MAPIE: an environment of their own, pinned to the last package. R's mice and
# missForest come beside it: apt-get install r-base-core r-cran-mice r-cran-pan r-cran-randomforest
baselines: $(BASELINES)/.done

# nonconform, one of the rules of `selections`, needs Python 3.12 or later.
nonconform:
	$(PYTHON312) -m venv .venv-nonconform
	PIP_CONSTRAINT= .venv-nonconform/bin/pip install --quiet nonconform==2.0.0

# Packages of others beside `best` on the same splits; goes on where it stopped, and ends.
peers: $(VENV)/.test $(BASELINES)/.done
	$(LAB) evidence peers run
	$(LAB) evidence peers write

# The documentation site in out/site; a warning or a broken link is an error. Opens from files, without a network.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open out/site/index.html"

# Every example anew, with the figures the site shows; those on clinical data need SAFEIMPUTE_DATA.
examples: $(VENV)/.demo
	OMP_NUM_THREADS=1 $(BIN)/python tools/run_examples.py --figures docs/images/examples

# Wheel and source in dist/, and the wheel tried in an environment of its own, extras resolved.
wheel: $(VENV)/.test
	$(BIN)/pip install --quiet build
	$(BIN)/python tools/package.py dist --clean --extras

pictures: $(VENV)/.test demo
	$(BIN)/python tools/pictures.py out/demo docs/images

$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/.test: pyproject.toml lab/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[test]' -e lab
	touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml lab/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[docs]' -e lab
	touch $@ $(VENV)/.demo

$(VENV)/.full: $(VENV)/.test
	$(BIN)/pip install --quiet -e '.[full]' -e lab
	touch $@ $(VENV)/.docs

$(BASELINES)/.done: lab/baselines-requirements.txt constraints.txt
	test -x $(BASELINES)/bin/python || $(PYTHON) -m venv $(BASELINES)
	$(BASELINES)/bin/pip install --quiet --no-deps -r lab/baselines-requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(BASELINES) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
