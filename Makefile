# `make demo` and `make test` set up everything they need; `make PYTHON=python3.13 ...` chooses another interpreter.
PYTHON ?= python3
VENV := .venv
COMMAND := .venv-command
BIN := $(VENV)/bin
# `make test ARGS='-k store -x'` hands options to pytest.
ARGS ?=

# On Linux the package index's torch brings 3.4 GB of CUDA libraries: a .venv for the demo takes 5.6 GB. PyTorch's own
# index has a build without them, with which it takes 1.9 GB:
# make TORCH_INDEX=https://download.pytorch.org/whl/cpu demo
TORCH_INDEX ?=
torch = $(if $(TORCH_INDEX),$(1)/python -m pip install --quiet --no-deps -c constraints.txt --index-url $(TORCH_INDEX) torch,:)

# What test-command installs: this folder, or `make SOURCE=git+URL test-command`.
SOURCE ?= file://$(CURDIR)
# The interpreters that test-pythons tries.
PYTHONS ?= python3.11 python3.12 python3.13

.PHONY: demo test test-command test-pythons coverage mutants test-engines faults bench gpu-check lint format docs clean

demo: $(VENV)/cpu.stamp
	@$(BIN)/python deploy/demo/docstrings.py demo/corpus
	@echo "--- embed"
	@$(BIN)/sentence-beam embed --input 'demo/corpus/*.parquet' --id-column id --keep-columns module \
	    --store demo/store --index auto
	@echo "--- search"
	@$(BIN)/sentence-beam search --store demo/store -k 3 \
	    --query "remove a directory and everything in it" --query "how far apart are two dates"
	@echo "--- done: corpus in demo/corpus, store in demo/store, command in $(BIN)/sentence-beam"

# Tests wait for the processes that they start: three at a time for every two processors, of one thread each. These
# processes should not compile all modules anew, whatever the environment says.
test: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )) --dist worksteal $(ARGS)

# The command as a user installs it: with the extra cpu alone, then with serve too, and none of the packages of the tests.
test-command: $(VENV)/dev.stamp
	rm -rf build $(COMMAND)
	$(PYTHON) -m venv $(COMMAND)
	$(COMMAND)/bin/python -m pip install --quiet --upgrade pip # before 24.1 it refuses git+file:///
	@$(call torch,$(COMMAND)/bin)
	$(COMMAND)/bin/python -m pip install --quiet -c constraints.txt 'sentence-beam[cpu] @ $(SOURCE)'
	SENTENCE_BEAM_COMMAND=$(CURDIR)/$(COMMAND)/bin/sentence-beam OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal -m 'slow or not slow' -rs tests/command
	$(COMMAND)/bin/python -m pip install --quiet -c constraints.txt 'sentence-beam[cpu,serve] @ $(SOURCE)'
	SENTENCE_BEAM_COMMAND=$(CURDIR)/$(COMMAND)/bin/sentence-beam OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m 'slow or not slow' tests/command/test_nights.py -k question

# The same with each Python that is installed; others are named and left out.
test-pythons: $(VENV)/dev.stamp
	@for python in $(PYTHONS); do \
	    if $$python -c pass 2>/dev/null; then \
	        echo "--- $$python"; $(MAKE) PYTHON=$$python test-command || exit 1; \
	    else echo "--- $$python: not installed, not tried"; fi; \
	done

# All tests, with a table of the lines and branches that they reach, by folder.
coverage: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )) --dist worksteal --cov --cov-report= $(ARGS)
	$(BIN)/python tests/coverage_table.py

# Changes sixteen modules in more than 1,200 places and runs their own tests on each change.
# `make mutants ARGS='sentence_beam.transforms.store.ledger.*'` tries all changes of one module.
mutants: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py $(ARGS)

# Flink, Prism and gs:// as they are, with every loss they have to bear; what is missing here is skipped by name.
test-engines: $(VENV)/dev.stamp
	$(BIN)/python -m pytest tests/engines -m 'slow or not slow' -rs $(ARGS)

# Everything that may happen to a store (docs/reliability.md), many cases of each, other ones every time;
# SENTENCE_BEAM_FAULTS multiplies how many.
faults: $(VENV)/dev.stamp
	SENTENCE_BEAM_FAULTS="$${SENTENCE_BEAM_FAULTS:-1}" \
	    $(BIN)/python -m pytest tests/faults tests/transforms/store/runs/test_races.py tests/transforms/beam/test_index_nights.py \
	    $(addprefix tests/pipelines/test_,$(addsuffix .py,nights crash index_damage gs)) -m 'slow or not slow' -rs $(ARGS)

# The short measurements, one after the other, and their ratios in one table; nothing else should run meanwhile.
# `make bench ARGS='--sentences FOLDER'` takes STS sets instead of docstrings.
bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.short $(ARGS)

# On a machine with a GPU, at most eight minutes, no network: vectors beside the processor's, memory, speed; a table in
# gpu-check.md, everything in gpu-check.json. `make gpu-check ARGS=--cpu` tries the command itself, without a GPU. It runs
# in the installation that there is (GPU_PYTHON=python3), whose torch suits the driver.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
gpu-check:
	HF_HUB_OFFLINE=1 $(GPU_PYTHON) -m benchmarks.gpu_check $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mkdocs build --strict --quiet

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The page of options and the keywords of functions are written from the classes of options; `make docs`, then open
# site/index.html.
docs: $(VENV)/dev.stamp
	$(BIN)/python docs/keywords.py
	$(BIN)/python docs/reference.py
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(COMMAND) demo site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants

# A stamp is newer than what its installation was made from, or the installation is brought up to date.
$(VENV)/cpu.stamp: setup.py constraints.txt | $(BIN)/python
	@echo "--- install into $(VENV) (some minutes the first time)"
	@$(call torch,$(BIN))
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[cpu]'
	@touch $@

$(VENV)/dev.stamp: setup.py constraints.txt | $(BIN)/python
	@echo "--- install into $(VENV) with what the tests need (some minutes the first time)"
	@$(call torch,$(BIN))
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[cpu,dev,docs]'
	@touch $(VENV)/cpu.stamp $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "needs Python 3.11: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV)
