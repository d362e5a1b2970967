# All created files are in .calve/. Targets run the set-up that they need, which takes no time when it is complete.
PYTHON ?= python3
SCALE ?= full
AUDIT ?= pypi
MINUTES ?= 10
BIN := .calve/venv/bin
IN_PARALLEL := --numprocesses 4 --no-loadscope-reorder
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url

unexport PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all checked class-archive rewritten check docs audit bench bench-trino test-peers test-trino test-compose fuzz ui up down cluster cluster-down status lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## Load real flights through Airflow and Spark, index them, and compare searches; CLUSTER=1 runs it on a cluster
	@$(BIN)/python -m standalone demo $(if $(CLUSTER),--cluster)

up: setup ## Start Airflow and the catalog in the background, and print their addresses
	@$(BIN)/python -m standalone up

down: ## Stop the stack
	@! test -x $(BIN)/python || $(BIN)/python -m standalone down

status: setup ## Show the state of the stack; CLUSTER=1 shows that of the cluster
	@$(BIN)/python -m standalone status $(if $(CLUSTER),--cluster)

cluster: setup ## Start a cluster like that of docker-compose.yaml: Airflow, PostgreSQL, Spark's master and workers, S3
	@$(BIN)/python -m standalone up --cluster

cluster-down: ## Stop the cluster
	@! test -x $(BIN)/python || $(BIN)/python -m standalone down --cluster

test: checked ## Run the checks and the tests, in four processes
	$(BIN)/pytest $(IN_PARALLEL) -m "not long and not trino and not compose"

test-all: $(if $(filter list,$(PART)),setup,checked) ## Run all tests, which take hours, in parts; PART=3 runs one, PART=list shows which have passed
	$(BIN)/python -m tests.parts $(PART)

test-peers: setup ## Run the suites of Hive's client, moto's Glue and Iceberg's REST client on `calve serve`; needs Maven
	$(BIN)/python -m tests.peers $(PEERS)

test-trino: setup ## Run Trino, which is downloaded, on `calve serve`; needs Maven and Java 24 or later
	$(BIN)/pytest -m trino tests/trino

test-compose: setup ## Run docker-compose.yaml in containers; CPUS=4 gives the scheduler four processors
	CALVE_COMPOSE_CPUS=$(or $(CPUS),2) $(BIN)/pytest -m compose tests/compose

fuzz: setup ## Send broken requests to the front doors for MINUTES=10 each, then 100,000 good ones; RUNS="rest glue" runs those
	$(BIN)/python -m tests.fuzz $(RUNS) --minutes $(MINUTES)

checked: setup
	@$(MAKE) --no-print-directory --jobs 2 check class-archive rewritten

class-archive: setup
	@$(BIN)/python -m standalone.class_archive > .calve/class-archive.log 2>&1 || \
		echo "Spark starts slowly, because its class archive could not be created: see .calve/class-archive.log" >&2

# pytest keeps modules with rewritten assertions; otherwise each process of the tests rewrites all of them.
rewritten: setup
	@$(BIN)/pytest --collect-only -q > /dev/null || true

bench: setup ## Run the benchmarks; SCALE=small uses a tenth of the partitions, ONLY="adding finding" runs those
	@$(BIN)/python -m benchmarks --scale $(SCALE) $(if $(ONLY),--only $(ONLY))

bench-trino: setup ## Compare migrations and planning with Trino, which is downloaded; needs Maven and Java 24 or later
	@$(BIN)/python -m benchmarks --scale $(SCALE) --trino $(if $(ONLY),--only $(ONLY))

check: setup ## Run the static checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

docs: setup ## Build the documentation site in .calve/site, offline; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open .calve/site/index.html"

audit: setup ## Check requirements.txt for known vulnerabilities, in PyPI's database or with AUDIT=osv in OSV's
	@$(BIN)/pip-audit --vulnerability-service $(AUDIT) --requirement requirements.txt --disable-pip --require-hashes --strict \
		--progress-spinner off || { echo "make audit: failed. Either a package has a known vulnerability, listed above, or the" \
		"database $(AUDIT) cannot be reached; check the connection, or use AUDIT=pypi or AUDIT=osv" >&2; exit 1; }

ui: ## Build the scripts and styles of the pages, which are committed; needs Node.js 20 or later
	cd ui && npm ci --no-audit --no-fund && npm run --silent build

lock: setup ## Compile requirements.txt and requirements-dev.txt again
	$(COMPILE) requirements.in -o requirements.txt
	$(COMPILE) requirements-dev.in -o requirements-dev.txt

setup: ## Create the virtual environment, and find or install Java
	@$(PYTHON) -m standalone.bootstrap

clean: down cluster-down ## Stop the stack, and delete all created files, including data
	rm -rf .calve .ruff_cache .pytest_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
