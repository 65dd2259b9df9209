# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that share the tests. Engines take a core each; more than two gain little on a small machine.
WORKERS ?= 2
MOPT := $(BIN)/mopt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-full gpu-test lint docs clean

help:  ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 14

$(BIN)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q -e . --group dev
	@touch $@

demo: $(BIN)/.ready  ## optimise two real models on this machine's CPU, from checkpoint to report
	$(BIN)/python examples/fetch_minilm.py .cache/all-MiniLM-L6-v2
	$(MOPT) optimize examples/models/tiny-qwen3 --for 4s --texts examples/models/tiny-qwen3/heldout.jsonl
	$(MOPT) optimize .cache/all-MiniLM-L6-v2 --for 4s

test: $(BIN)/.ready  ## the fast tier: every pure test, and the engines once each
	$(BIN)/python -m compileall -q src  # hundreds of tests start `mopt`, also where Python may keep no bytecode
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not gpu"

test-full: $(BIN)/.ready  ## the slow tier: everything that runs without a GPU
	$(BIN)/python -m pip install -q --group full
	$(BIN)/python -m pytest -m "not gpu"

gpu-test:  ## what needs a real GPU; skips with a reason where there is none
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest tests/gpu -m gpu -rs

lint: $(BIN)/.ready  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --threads $(WORKERS) --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: $(BIN)/.ready  ## make the pages that are written from files, and check that they are current
	$(BIN)/python tools/pages.py

clean:  ## remove what was made here (stage environments stay; `mopt env remove` takes those)
	rm -rf $(VENV) runs .pytest_cache .ruff_cache .hypothesis
