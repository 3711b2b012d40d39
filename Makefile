# Each target makes .venv and installs what it needs by itself, and reuses it while it is current.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test check format bench clean

demo: $(READY)          ## explain a few sentences with a tiny model that is trained on the spot
	@$(BIN)/python examples/demo.py

test: $(READY)          ## the quick test suite
	@$(BIN)/pytest -q -n auto

check: $(READY)         ## what continuous integration runs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest -q -n auto

format: $(READY)        ## put the code into the form that `check` wants
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(READY)         ## speed ratios on this machine, written to benchmarks/results/
	@$(BIN)/python benchmarks/single_pass.py
	@$(BIN)/python benchmarks/contrast_cat.py

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
