# Each target makes .venv and installs what it needs by itself, and reuses it while it is current.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
# As many processes as CPUs, each with one thread: more would wait for each other.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n auto --dist loadgroup

.PHONY: demo test test-all mutants mutants-chosen check format bench results catalogue pictures clean

demo: $(READY)          ## explain three reviews with the model that comes with whichtoken
	$(BIN)/whichtoken explain \
	  "The acting is not great, but the music saves it." \
	  "rare birds has more than enough charm to make it memorable." \
	  "i really didn't like this movie. some of the actors were good, but overall the movie was boring." \
	  --method posterior,contrast-cat,attcat,gae,random

test: $(READY)          ## the quick test suite
	@$(PYTEST) -m "not slow"

test-all: $(READY)      ## the quick suite and the slow tests
	@$(PYTEST)

mutants: $(READY)       ## break one line of the source at a time: does a test notice?
	@$(BIN)/python -m tests.mutants --out mutants.json

mutants-chosen: $(READY) ## the same with the chosen bugs of tests/chosen_mutants.py
	@$(BIN)/python -m tests.mutants --chosen --out mutants.json

check: $(READY)         ## what continuous integration runs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

format: $(READY)        ## put the code into the form that `check` wants
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(READY)         ## speed ratios on this machine, written to benchmarks/results/
	@$(BIN)/python benchmarks/speed.py
	@$(BIN)/python benchmarks/single_pass.py
	@$(BIN)/python benchmarks/contrast_cat.py
	@$(BIN)/python benchmarks/threads.py

results: $(READY)       ## docs/results.md, from the benchmarks stored in benchmarks/runs/
	@$(BIN)/python benchmarks/results.py

catalogue: $(READY)     ## the list of methods that `whichtoken methods` shows
	@$(BIN)/python -m whichtoken.catalogue

pictures: $(READY)      ## the pictures of the README, from real output
	@$(BIN)/python docs/make_pictures.py

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
