# Each verb sets up all it needs: .venv is made once and renewed when pyproject.toml or constraints.txt change.
# Needed on the machine: Python 3.11, 3.12 or 3.13, git, make. PYTHON=... chooses the interpreter.

BIN := .venv/bin
INSTALL := sh scripts/install.sh
FUZZ_INPUTS ?= 200000

# Hundreds of processes start during the tests: compiled modules are shared, even where the environment forbids it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test lint fix bench score proof fuzz docs clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile | expand -t 8

demo: .venv/.base  ## try the commands on the example, in a minute
	@$(BIN)/python scripts/demo.py

# One process runs all tests of a file, so that they share what is set up and imported for them.
test: .venv/.tests .venv/.chromium lint  ## lint, then every test except the long ones
	$(BIN)/pytest --processes auto

lint: .venv/.dev  ## style, types, and imports between packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: .venv/.dev  ## fix what ruff can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/.dev  ## speed and memory, compared with bare JSON decoding
	$(BIN)/python bench/check.py
	$(BIN)/python bench/importers.py
	$(BIN)/python bench/diff.py
	$(BIN)/python bench/temporal.py
	$(BIN)/python bench/guard.py
	$(BIN)/python bench/backtest.py
	$(BIN)/python bench/audit.py
	$(BIN)/python bench/contract.py
	$(BIN)/python bench/follow.py
	$(BIN)/python bench/record.py
	$(BIN)/python bench/hook.py
	$(BIN)/python bench/service.py
	$(BIN)/python bench/integrations.py
	$(BIN)/python bench/mcp_proxy.py

score: .venv/.dev  ## how well prompts are read, and how often the gate of diff is right
	$(BIN)/python bench/comply.py
	$(BIN)/python bench/diff_score.py

# The tests marked `proof`, and every property with a thousand random examples.
proof: .venv/.tests .venv/.chromium .venv/.embeddings .venv/.openapi .venv/.otel fuzz  ## the long tests, fuzzing included
	HYPOTHESIS_PROFILE=proof $(BIN)/pytest --processes auto -m "proof or hypothesis"
	$(BIN)/pytest tests/unit/diff/test_embeddings.py tests/service/test_otel.py

fuzz: .venv/.dev  ## FUZZ_INPUTS=200000 mutated traces and rule files
	$(BIN)/python -m tests.fuzz --inputs $(FUZZ_INPUTS)

docs: .venv/.docs  ## write the generated pages, build site/
	$(BIN)/python scripts/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove everything made here, .venv included
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .venv site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# The build backend goes in first, pinned like the rest, so that no isolated build fetches another one.
.venv/.base: pyproject.toml constraints.txt
	@sh scripts/venv.sh
	@echo "installing bylaw into .venv" >&2
	@$(INSTALL) hatchling
	@$(INSTALL) -e .
	@touch $@

.venv/.tests: .venv/.base
	@echo "installing the dev tools and the frameworks into .venv" >&2
	@$(INSTALL) -e '.[dev,frameworks]'
	@touch .venv/.dev .venv/.frameworks $@

# For the tests of the console. Where it cannot be installed they are skipped, and say so.
.venv/.chromium: .venv/.base
	@sh scripts/chromium.sh
	@touch $@

.venv/.dev .venv/.docs .venv/.embeddings .venv/.frameworks .venv/.openapi .venv/.otel: .venv/.%: .venv/.base
	@echo "installing the $* tools into .venv" >&2
	@$(INSTALL) -e '.[$*]'
	@touch $@
