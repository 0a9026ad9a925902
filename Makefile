# Two commands do everything: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check lint types bench fuzz parity docs examples site schemas clean help

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## plan a real model with per-head FP8 scales, then select and run attention here
	@$(BIN)/python -m tests.demo

test: $(STAMP)  ## the test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

lint: $(STAMP)  ## ruff, manifests and the sentences that must hold of them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/attn-select lint
	$(BIN)/attn-select prove

types: $(STAMP)  ## mypy --strict
	$(BIN)/mypy selector backends tests

check: lint types test  ## what the code host runs: lint, types, then the suite

parity: $(STAMP)  ## every recorded decision of the peers, not only the suite's tenth
	$(BIN)/python -m tests.parity all

bench: $(STAMP)  ## speed, as ratios measured in one run
	$(BIN)/python -m tests.bench

fuzz: $(STAMP)  ## hostile inputs for every reader, 10,000 each; python -m tests.fuzz --help
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz

schemas: $(STAMP)  ## write selector/schema/*.json anew from manifests/vocabulary.yaml
	$(BIN)/python -m selector.schema_build

docs: $(STAMP)  ## write the generated pages of docs/ anew
	$(BIN)/python -m tests.docs

examples: $(STAMP)  ## write what commands print now into the examples of the pages
	$(BIN)/python -m tests.docs --examples

site: $(STAMP)  ## the documentation as a site, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## forget the installation and all caches
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
