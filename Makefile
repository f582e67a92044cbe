# Needs Python 3.11 or later and make, nothing else. `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
SMALL  ?=
OUT    ?= $(if $(filter demo-network,$(MAKECMDGOALS)),runs/demo-network,$(if $(SMALL),runs/demo-small,demo))
JOBS_OF_TEST := $(or $(JOBS),3)
JOBS   ?= 2
HASHED ?=

FUZZ_INPUTS ?= 1000000

FIGURES_OUT ?= figures
FULL        ?=
# parts and sets that fit some hours; FULL=1 has them all
FIGURES_SETS := breast_cancer,parkinson_252,obesity,phishing,avila,sensorless_2200
ALL_SETS     := $(FIGURES_SETS),fars,fashion_mnist_train
LI_SETS      := digits,fashion_mnist,criteo,credit_default,bhi_made_up,breast_cancer_published,breast_cancer_published_20,breast_cancer_paper
LI_PARTS     := --table 2 --table 3 --table 4 --table 6 --figure 2 --figure 3 --figure 5 --part "ten parties" --part overlap --appendix

CHAOS_RUNS ?= 200
CHAOS_SEED ?= 1
CHAOS_OUT  ?= chaos-nightly

BIN := $(VENV)/bin
comma := ,
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help figures demo demo-network compiled test test-slow chaos chaos-nightly fuzz check bench hashes clean

help:
	@echo "make demo           audit a shipped example under real encryption; SMALL=1 for a short one, OUT=DIR for another folder"
	@echo "make demo-network   three parties over a network, then in one process: is all the same? SMALL=1, OUT=DIR as above"
	@echo "make test           run the tests, in JOBS=3 processes, but for those that take long"
	@echo "make test-slow      run those that take long"
	@echo "make chaos          disturb CHAOS_RUNS=200 runs between companies, drawn from CHAOS_SEED=1; each must end as if undisturbed"
	@echo "make chaos-nightly  the 1,000 runs of tests/network/nightly.toml; goes on where it was stopped (CHAOS_OUT=chaos-nightly)"
	@echo "make fuzz           feed every reader FUZZ_INPUTS=1000000 inputs near valid ones, guided by coverage; broken ones: fuzz-found/"
	@echo "make figures        the studies of three papers into FIGURES_OUT=figures, and a page of them, in JOBS=2 processes; goes on where it was stopped; FULL=1: all sets, networks of the paper's size"
	@echo "make check          formatter, linter, strict types"
	@echo "make bench          time what the notes state"
	@echo "make clean          remove the environment and what tools leave; audits stay"
	@echo "HASHED=1            of demo and demo-network: install only files whose SHA-256 is in hashes.txt"
	@echo "make hashes         write hashes.txt anew from constraints.txt; needs uv"
	@echo "PYTHON=python3.12   another Python than python3; VENV=DIR another place than .venv"

demo: $(VENV)/.for-use
	@$(BIN)/labelward demo --out "$(OUT)" $(if $(SMALL),--small)

demo-network: $(VENV)/.for-use
	@$(BIN)/python examples/two-companies/proof.py --out "$(OUT)" $(if $(SMALL),--small)

# hundreds of tests start a process: none compiles what all import, not even where Python is told to write no bytecode
compiled: $(VENV)/.for-development
	@$(BIN)/python -m compileall -q -j $(JOBS) src

# a file's tests run in one process, so that no two make what they share, and few compile the same kernels; tests that wait
# for peers and timeouts leave two processes on two cores idle for a fifth of the time, which a third one fills
test: JOBS = $(JOBS_OF_TEST)
test: compiled
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow"

test-slow: compiled
	$(BIN)/python -m pytest -n $(JOBS) -m slow

chaos: $(VENV)/.for-development
	$(BIN)/python tests/network/chaos.py $(CHAOS_RUNS) $(CHAOS_SEED)

chaos-nightly: $(VENV)/.for-development
	$(BIN)/python tests/network/chaos.py tests/network/nightly.toml $(CHAOS_OUT)

fuzz: $(VENV)/.for-development
	@$(PIP) --constraint constraints.txt --editable '.[test,fuzz]'
	$(BIN)/python tests/fuzz/fuzz.py --inputs $(FUZZ_INPUTS)

figures: $(VENV)/.for-development
	@$(BIN)/labelward study id2graph --datasets $(if $(FULL),$(ALL_SETS),$(FIGURES_SETS)) --jobs $(JOBS) --out "$(FIGURES_OUT)/id2graph"
	$(if $(FULL),,@$(BIN)/labelward study id2graph --table 2 --datasets fars --jobs $(JOBS) --out "$(FIGURES_OUT)/id2graph-fars")
	@$(BIN)/labelward study ica --jobs $(JOBS) --out "$(FIGURES_OUT)/ica"
	@$(BIN)/labelward study label-inference $(LI_PARTS) --datasets $(LI_SETS)$(if $(FULL),$(comma)cifar10$(comma)ag_news$(comma)dbpedia) --jobs $(JOBS) --out "$(FIGURES_OUT)/label-inference"
	@$(BIN)/python benchmarks/paper_figures.py $(foreach each,id2graph ica label-inference,$(each)="$(FIGURES_OUT)/$(each)") \
	    $(if $(FULL),,id2graph="$(FIGURES_OUT)/id2graph-fars") \
	    --json "$(FIGURES_OUT)/figures.json" --page "$(FIGURES_OUT)/figures.md"
ifneq ($(FULL),)
	@$(BIN)/labelward study label-inference $(LI_PARTS) --budget paper --jobs $(JOBS) --out "$(FIGURES_OUT)/label-inference-full"
endif

check: $(VENV)/.for-development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.for-development
	@for each in benchmarks/[a-z]*.py; do echo "== $$each"; \
	$(BIN)/python "$$each" --json "benchmarks/results/$$(basename "$$each" .py).json" || exit 1; done

hashes:
	@{ echo "# The files that labelward[report] needs, by SHA-256, for Python 3.11 and later, any system. Made by 'make hashes'."; \
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url \
	    --constraint constraints.txt --extra report --group build pyproject.toml; } > hashes.new
	@mv hashes.new hashes.txt

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# a stamp for each set of packages: a second call installs nothing
$(VENV)/.for-use: pyproject.toml constraints.txt hashes.txt | $(VENV)/pyvenv.cfg
ifeq ($(HASHED),)
	@echo "installing labelward with its report, as pinned in constraints.txt ..."
	@$(PIP) --constraint constraints.txt --editable '.[report]'
else
	@echo "installing labelward with its report, from the files that hashes.txt lists ..."
	@$(PIP) --require-hashes --requirement hashes.txt
	@$(PIP) --no-deps --no-build-isolation --no-index --editable .
endif
	@$(BIN)/labelward doctor --warm
	@touch $@

$(VENV)/.for-development: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	@echo "installing labelward with all that tests and checks need, as pinned in constraints.txt ..."
	@$(PIP) --constraint constraints.txt --editable '.[test,check]'
	@touch $@ $(VENV)/.for-use

$(VENV)/pyvenv.cfg:
	@command -v "$(PYTHON)" > /dev/null || { echo "there is no $(PYTHON); give another: make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("labelward needs Python 3.11 or later, but $(PYTHON) is %d.%d; give another: make PYTHON=/path/to/python" % v[:2])'
	@"$(PYTHON)" -m venv "$(VENV)"
