# One command each; every target sets up what it needs. PYTHON=... picks the interpreter of a new environment.

PYTHON ?=
export PYTHON

# Always run by its path: the environment need not be activated, and the checkout's path may hold spaces.
RUN := .venv/bin/python -m
INSTALLED := .venv/installed
SPARK := .venv/with-spark
# One more than there are processors: many tests wait for a server.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-core check torture bench man oids compiled clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s%s\n", $$1, $$2}' Makefile

install: $(INSTALLED) ## make the environment .venv and install pgtail into it, editable

$(INSTALLED): pyproject.toml .ci/environment pgtail/_rows.pyx pgtail/server/_copydata.pyx
	@.ci/environment

$(SPARK): $(INSTALLED)
	@.ci/environment spark

demo: $(INSTALLED) ## an embedded PostgreSQL, a lively workload, and pgtail watching it
	@.venv/bin/pgtail demo

test: $(SPARK) ## the whole test suite, against the embedded servers and every installed one
	@PGTAIL_REQUIRE=$${PGTAIL_REQUIRE-spark} $(RUN) pytest -n $(WORKERS) --maxprocesses 4 --dist loadgroup

test-core: $(INSTALLED) ## the same without Spark, which need not be installed
	@$(RUN) pytest -n $(WORKERS) --maxprocesses 4 -m 'not spark'

check: $(SPARK) ## lint, format, types, and the one-way imports
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) mypy
	@$(RUN) pytest -q tests/test_layers.py

torture: $(INSTALLED) ## pgtail record, killed 200 times under a workload: nothing may be lost or doubled
	@$(RUN) tests.recording.torture

bench: $(INSTALLED) ## speed, side by side with others
	@$(RUN) tests.bench

man: $(INSTALLED) ## write the man pages from the commands' own help and man/parts
	@$(RUN) tests.tools.make_man

oids: $(INSTALLED) ## write the table of built-in types anew from a server's catalog
	@$(RUN) tests.tools.make_oids

compiled: ## stamp the sources of the compiled parts after a change, and build them
	@$(RUN) tests.tools.stamp_compiled
	@$(MAKE) --no-print-directory install

clean: ## remove the environment and everything made
	rm -rf .venv pgtail/_rows.c pgtail/server/_copydata.c build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/bench/work *.egg-info
	find pgtail -name '*.so' -delete
	find pgtail tests -name __pycache__ -prune -exec rm -rf {} +
