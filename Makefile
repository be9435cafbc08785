# Everything runs from a fresh clone: `make demo` shows the main job, `make test` passes every test.
# A machine needs Python 3.11 or later, git and make; the rest is installed into .venv.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
QUICK ?= --quick
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help demo lab test dev lint types imports docs soak bench references clean

help: ## What can be run
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

# torch comes through pip before the rest: pip takes a build that lies on the machine, and 2.13.0 then satisfies the extra.
$(VENV)/.demo-ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "GPUlayer needs Python 3.11 or later; $(PYTHON) is older. Run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check uv '$(TORCH)'
	@$(UV) -e '.[demo]' '$(TORCH)'
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.demo-ready
	@$(UV) -e '.[dev]' '$(TORCH)'
	@touch $@

dev: $(VENV)/.dev-ready ## The development environment

demo: $(VENV)/.demo-ready ## Run the main job through a real Jupyter server: a cell on 2 nodes × 2 devices
	@$(BIN)/python notebooks/run_demo.py

lab: $(VENV)/.demo-ready ## Open JupyterLab with the notebooks
	@$(BIN)/jupyter lab --ServerApp.root_dir=notebooks

lint: $(VENV)/.dev-ready ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev-ready ## mypy, strict
	@$(BIN)/mypy

imports: $(VENV)/.dev-ready ## Imports go down only
	@$(BIN)/lint-imports --no-cache

test: $(VENV)/.dev-ready ## Lint, types, import rules and every test
	@$(MAKE) --no-print-directory lint types imports
	@$(BIN)/python -m pytest -m "not gpu and not soak" $(ARGS)

docs: $(VENV)/.dev-ready ## Build the documentation into site/
	@$(BIN)/python docs/generated.py
	@$(BIN)/mkdocs build --strict

soak: $(VENV)/.dev-ready ## The long counts
	@$(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)

bench: $(VENV)/.dev-ready ## Every benchmark, quickly; RESULTS=FOLDER keeps what --json prints, QUICK= measures in full
	@$(BIN)/python benchmarks/all.py $(if $(RESULTS),--results $(RESULTS)) $(QUICK) $(ARGS)

references: $(VENV)/.dev-ready ## Execute the notebooks again and keep the outputs that the tests compare with
	@$(BIN)/python notebooks/make_references.py

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
