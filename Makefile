# Two commands on a fresh machine with Python 3.11+: `make repro` and `make test`. `make help` lists the rest.
PYTHON ?= python3
# An index of CPU builds of torch, for machines without a GPU where the plain index serves CUDA builds.
TORCH_INDEX ?=
JOBS ?= 2
BIN := $(CURDIR)/.venv/bin
INSTALLED := .venv/.installed
CPU_ONLY := $(shell command -v nvidia-smi >/dev/null 2>&1 || echo '-c constraints/cpu.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))')

export PATH := $(BIN):$(PATH)
export HF_HUB_DISABLE_TELEMETRY := 1
export DO_NOT_TRACK := true
export OMP_WAIT_POLICY := PASSIVE
export NO_MKDOCS_2_WARNING := true

.DEFAULT_GOAL := help
.PHONY: help setup repro repro-tiny repro-scorers repro-jacobian repro-parallel pull ui check lint test test-all audit docs docs-serve bench-noop bench-cache bench-memory bench-store bench-examples bench-pool bench-adaptive bench-embedding bench-judging bench-explorer bench-track bench-jacobian

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(INSTALLED) ## Make .venv and install everything in it

$(INSTALLED): pyproject.toml constraints/base.txt constraints/cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit("latentry needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; run make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "setting up .venv (about 2.5 GB, a few minutes)"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check $(CPU_ONLY) -c constraints/base.txt -e '.[dev]'
	@touch $@

repro: $(INSTALLED) ## Run the example, or what is missing of it, from weights to comparison
	@latentry check
	@dvc repro
	@echo "done: open report/index.html, or run 'make ui'"

repro-tiny: $(INSTALLED) ## The same DAG on a tiny random model, under two minutes, in .cache/tiny
	@python tests/pipeline/tiny.py .cache/tiny

repro-scorers: $(INSTALLED) ## Every scorer on three latents of one SAE of the example, in .cache/all-scorers
	@python examples/run.py all-scorers
	@echo "done: open .cache/all-scorers/report/index.html"

repro-jacobian: $(INSTALLED) ## Jacobians of an MLP of the example's subject, JSAE beside separate SAEs, in .cache/jacobian
	@python examples/run.py jacobian
	@echo "done: open .cache/jacobian/report/index.html"

repro-parallel: $(INSTALLED) ## Run cells side by side: make repro-parallel JOBS=4
	@latentry check
	@dvc repro models tokens activations
	@for group in sae latents examples explain score jacobian edges; do \
	  dvc stage list --name-only $$group | xargs -P $(JOBS) -I{} dvc --wait-for-lock repro -s {} || exit 1; done
	@dvc repro

pull: $(INSTALLED) ## Fetch a colleague's results: all but models, tokens, activations and latents
	@latentry pull

ui: $(INSTALLED) ## Open the comparison in MLflow
	@latentry ui

lint: $(INSTALLED)
	@ruff check .
	@ruff format --check --quiet .
	@pyright
	@lint-imports --no-cache

check: lint test ## ruff, pyright, import-linter and tests

test: $(INSTALLED) ## The tests: unit, conformance, golden, one tiny pipeline, one kill
	@HF_HUB_OFFLINE=1 python -m pytest -m 'not slow and not gpu'

test-all: $(INSTALLED) ## All tests that need no GPU
	@HF_HUB_OFFLINE=1 python -m pytest -m 'not gpu'

audit: $(INSTALLED) ## Installed packages against known vulnerabilities; needs a network, and is no part of `make check`
	@python tests/security/audit.py

docs: $(INSTALLED) ## Write the generated parts of docs/, and the site to .cache/site
	@python docs/generate.py
	@mkdocs build --strict --quiet
	@echo "done: open .cache/site/index.html"

docs-serve: $(INSTALLED) ## The site at http://127.0.0.1:8300, written anew at each change
	@mkdocs serve --dev-addr 127.0.0.1:8300

bench-pool: $(INSTALLED) ## Share of the possible rate of judge calls, 64 at once; QUICK=1 for under a minute
	@python benchmarks/pool.py

bench-noop: $(INSTALLED) ## Seconds of `dvc repro` with nothing to do, 5 SAEs x 6 scorers
	@python benchmarks/noop.py

bench-cache: $(INSTALLED) ## `activations` and `latents` against a bare forward and a bare encoder
	@python benchmarks/cache.py

bench-memory: $(INSTALLED) ## Peak memory and time of both, over tokens and over widths
	@python benchmarks/memory.py

bench-store: $(INSTALLED) ## The latent-major store: 300M activations over 1M latents, built and read
	@python benchmarks/store.py

bench-examples: $(INSTALLED) ## CPU time per latent to choose its examples, 16k latents
	@OMP_NUM_THREADS=1 python benchmarks/examples.py

bench-adaptive: $(INSTALLED) ## Judge calls that adaptive judging saves at equal intervals; QUICK=1 for under a minute
	@python benchmarks/adaptive.py

bench-embedding: $(INSTALLED) ## The embedding scorer against a bare encode of the distinct texts
	@python benchmarks/embedding.py

bench-judging: $(INSTALLED) ## Log-probability judging: share of the model's own forward, calls as in the estimate
	@python benchmarks/judging.py

bench-explorer: $(INSTALLED) ## The explorer with a million latents in Chromium: seconds to open and to search
	@python benchmarks/explorer.py

bench-track: $(INSTALLED) ## 131k latents to a real MLflow server: seconds and requests; QUICK=1 for 8k
	@OMP_NUM_THREADS=1 python benchmarks/track.py

bench-jacobian: $(INSTALLED) ## A JSAE training step against the plain step of the same two SAEs; QUICK=1 for under a minute
	@python benchmarks/jacobian.py
