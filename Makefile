# `make help` lists what is here. Everything runs inside .venv, which the first target that needs it creates.

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)
VENV := .venv
BIN := $(VENV)/bin
LOCK := .ci/lock.txt
# Constraints twice: from its 25.3 on, pip does not keep to the first kind where it builds a package.
PIP := PIP_CONSTRAINT=$(LOCK) PIP_BUILD_CONSTRAINT=$(LOCK) $(BIN)/python -m pip --disable-pip-version-check --quiet
PROTO := $(wildcard msgbroker/proto/msgbroker/v1/*.proto)
INSTALLED_FROM := pyproject.toml $(LOCK) $(PROTO) .ci/build_hook.py .ci/generate_proto.py

# The generated code went away (git clean, say): install again, which generates it.
ifeq ($(wildcard msgbroker/v1/message_pb2.py),)
$(shell rm -f $(VENV)/.installed-*)
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: up
up: $(VENV)/.installed-up ## Start everything here: PostgreSQL, and a broker on 127.0.0.1:7400
	@exec $(BIN)/msgcenter up

.PHONY: demo
demo: $(VENV)/.installed-up ## Show what it does, against a running `make up`
	@$(BIN)/msgcenter demo

.PHONY: spark
spark: java $(VENV)/.installed-spark ## Install what the archive needs beside `make up`: Spark, Java where it may, DuckDB and pandas for a look

.PHONY: test
test: java coverage ## Run all tests, on a PostgreSQL of their own
	@$(BIN)/pytest --quiet --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: unit
unit: $(VENV)/.installed-dev ## Run the unit tests that are quick (not those marked slow): a look while you work
	@$(BIN)/pytest --quiet tests/unit -m 'not slow' --numprocesses auto --maxprocesses 8 --dist worksteal

# Spark runs on Java, which pip does not install. Where it cannot be installed here, what needs it says so as well.
.PHONY: java
java: $(VENV)/.made
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || { \
		[ -z "$$JAVA_HOME" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo "Installing Java (once) ..." && apt-get update -qq >/dev/null && \
		for package in openjdk-17-jre-headless openjdk-21-jre-headless; do \
			DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends $$package >/dev/null 2>&1 \
				&& break; \
		done && command -v java >/dev/null; \
	} || $(BIN)/python -c 'from msgbroker.contract.errors import JavaMissingError as Missing; print(Missing())'

# Without the random histories: what only they reach, they reach by chance.
.PHONY: coverage
coverage: $(VENV)/.installed-dev ## Check that tests reach 95 % of the engine, branches included
	@said=$$($(BIN)/pytest --quiet tests/unit/engine --ignore tests/unit/engine/lane/test_lane_machine.py \
		--cov=msgbroker.engine --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=95) \
		|| { echo "$$said"; exit 1; }; echo "Engine: $$(echo "$$said" | grep '^Required')"

.PHONY: check
check: check-lock check-proto check-modules check-format check-lint check-types check-imports check-sizes check-dead check-docs ## Check lock, format, lint, types, import rules, sizes, dead code, documents, and that generated files are fresh

.PHONY: check-lock check-proto check-modules check-format check-lint check-types check-imports check-sizes check-dead check-docs
check-lock: $(VENV)/.installed-dev
	@$(BIN)/python .ci/lock.py --check

check-proto: $(VENV)/.installed-dev
	@$(BIN)/python .ci/generate_proto.py --check

check-modules: $(VENV)/.installed-dev
	@$(BIN)/python .ci/modules_page.py --check

check-format: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted: run $(BIN)/ruff format ."; exit 1; }

check-lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check --quiet .

check-types: $(VENV)/.installed-dev
	@$(BIN)/mypy

check-imports: $(VENV)/.installed-dev
	@said=$$($(BIN)/lint-imports --no-logo) || { echo "$$said"; exit 1; }; echo "$$said" | tail -n 1

check-sizes: $(VENV)/.installed-dev
	@said=$$($(BIN)/pytest --quiet tests/unit/test_sizes.py) || { echo "$$said"; exit 1; }

check-dead: $(VENV)/.installed-dev
	@$(BIN)/vulture || { echo "Nobody uses this: remove it, or say in pyproject.toml who does."; exit 1; }

# Of a site that was built nothing is said; of one that was not, all of it.
check-docs: $(VENV)/.installed-dev
	@said=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$said"; exit 1; }

.PHONY: format
format: $(VENV)/.installed-dev ## Format the code, and fix what lint can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench-quick
bench-quick: $(VENV)/.installed-dev ## Measure most of it, in less than a minute
	@$(BIN)/python -m msgconsole.cli bench tests/bench/quick.py

.PHONY: bench
bench: $(VENV)/.installed-dev ## Measure against every target (20 minutes); report in docs/benchmarks
	@$(BIN)/python -m msgconsole.cli bench tests/bench/standard.py --report docs/benchmarks

.PHONY: bench-full
bench-full: $(VENV)/.installed-dev ## The same with 5 M messages behind and a snapshot held for 10 minutes (50 GB)
	@$(BIN)/python -m msgconsole.cli bench tests/bench/full.py --report docs/benchmarks

.PHONY: bench-peers
bench-peers: $(VENV)/.installed-peers ## Measure beside other brokers and queues; report in docs/benchmarks
	@$(BIN)/python -m tests.bench.peers --report docs/benchmarks

.PHONY: bench-archive
bench-archive: $(VENV)/.installed-dev ## Measure archiving, beside JDBC and beside a broker (30 GB); report in docs/benchmarks
	@$(BIN)/python -m tests.bench.archive --report docs/benchmarks

.PHONY: bench-figures
bench-figures: $(VENV)/.installed-dev ## Measure what it costs to count what each minute brought (5 minutes)
	@$(BIN)/python -m tests.bench.figures

.PHONY: bench-finding
bench-finding: $(VENV)/.installed-dev ## Measure finding one of MESSAGES (10 million: 20 GB), alone and beside a publisher; report in docs/benchmarks
	@$(BIN)/python -m tests.bench.finding --messages $(or $(MESSAGES),10000000) --report docs/benchmarks

.PHONY: chaos
chaos: $(VENV)/.installed-dev ## Kill and freeze things under load, and check what was promised
	@MSGCENTER_CHAOS=long $(BIN)/pytest --quiet tests/chaos

.PHONY: proto
proto: $(VENV)/.installed-dev ## Generate msgbroker/v1 from the proto files
	@$(BIN)/python .ci/generate_proto.py

.PHONY: modules
modules: $(VENV)/.installed-dev ## Write docs/modules.md from what the modules say of themselves
	@$(BIN)/python .ci/modules_page.py

.PHONY: docs
docs: check-docs ## Build the documentation site into build/site
	@echo "The site: file://$(CURDIR)/build/site/index.html"

.PHONY: lock
lock: $(BIN)/uv ## Lock the newest versions that pyproject.toml allows, for all environments here
	@$(BIN)/python .ci/lock.py --renew

.PHONY: lock-added
lock-added: $(BIN)/uv ## Lock what was added to pyproject.toml, and leave the rest as it is
	@$(BIN)/python .ci/lock.py --add

.PHONY: clean
clean: ## Remove build output and caches (.venv and .msgcenter stay)
	@rm -rf build dist tests/polyglot/node_modules .coverage .coverage.* htmlcov .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or later is needed and was not found: install it, or set PYTHON=..."; exit 1; }
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "No virtual environment: install the package python3-venv and try again"; exit 1; }
	@touch $@

# Without the rest: while lock and pyproject.toml contradict each other, nothing else can be installed.
$(BIN)/uv: | $(VENV)/.made
	@$(PIP) install packaging uv

# pip's exit status is the recipe's; what it has to say about a failure is printed. Of a lock that does not fit
# pyproject.toml it does not say where: the check does.
$(VENV)/.installed-up: $(INSTALLED_FROM) | $(VENV)/.made
	@if [ -z "$$(find $(VENV)/.installed-dev -newer pyproject.toml -newer $(LOCK) 2>/dev/null)" ]; then \
		echo "Installing into $(VENV) (once, about 30 s) ..."; \
		$(PIP) install --editable '.[console,embedded]'; \
	fi
	@touch $@

$(VENV)/.installed-spark: $(INSTALLED_FROM) | $(VENV)/.made
	@if [ -z "$$(find $(VENV)/.installed-dev -newer pyproject.toml -newer $(LOCK) 2>/dev/null)" ]; then \
		echo "Installing Spark into $(VENV) (once, about a minute) ..."; \
		$(PIP) install --editable '.[console,embedded,spark,query]'; \
	fi
	@touch $@

$(VENV)/.installed-dev: $(INSTALLED_FROM) | $(VENV)/.made
	@echo "Installing into $(VENV) what development needs (once, about a minute) ..."
	@$(PIP) install --editable '.[dev]' || { $(PIP) install packaging && $(BIN)/python .ci/lock.py --check; exit 1; }
	@touch $@

$(VENV)/.installed-peers: $(INSTALLED_FROM) | $(VENV)/.made
	@echo "Installing into $(VENV) the clients of other systems ..."
	@$(PIP) install --editable '.[dev,bench-peers]'
	@touch $@
