# Each target sets up what it needs by itself; a second run sets up nothing.
# Two stamps inside .venv: what runs (demo), and what tests, checks and measures on top of it.

SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
RUNS := $(VENV)/.installed-run
TORTURES := $(VENV)/.installed-torture
TESTS := $(VENV)/.installed-test
COMPILED := build/compiled
UV := $(shell command -v uv)
KILLS := 1000
# Who share the tests. Two cores bear three: most tests wait. Two of them may have Spark at a time.
WORKERS := 3
PINS := --constraint constraints.txt --build-constraint constraints.txt

ifdef UV
INSTALL := $(UV) pip install --quiet --python $(PYTHON) $(PINS)
else
INSTALL := $(PYTHON) -m pip install -qq --disable-pip-version-check $(PINS)
endif

# Without bytecode on disk, each program that a test starts compiles Nebula anew, and each worker of the tests
# rewrites the assertions of all test modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-venue demo-pipeline demo-cluster demo-console console test test-slow check test-foreign test-compiled torture bench bench-quick docs docs-serve wheel compiled npm-package artefacts clean

help: ## show this text
	@echo "Nebula: microservice verbs and Spark jobs over STOMP. Begin with: make demo"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNS) ## start a Spark job over 336,776 real flights by a message, and watch it
	@$(PYTHON) -m services.flights.demo

demo-venue: $(RUNS) ## run fifty gaming machines for a minute: last values, TLS identities, rights, Avro
	@$(PYTHON) -m services.venue.demo

demo-pipeline: $(RUNS) ## take flights and meters from messages to answers: broker, recorder, Spark, a picture
	@$(PYTHON) -m services.pipeline.demo

demo-console: $(RUNS) ## open the console on a venue, flights and orders, with something happening, until Ctrl-C
	@$(PYTHON) -m services.console.demo

demo-cluster: $(RUNS) ## run one service on this machine, on a Spark cluster and through a Connect server
	@$(PYTHON) -m services.cluster.demo

test: $(TESTS) ## run the tests, real Spark among them (some ten minutes on two cores)
	@$(PYTHON) -m pytest -n $(WORKERS) -m "not slow and not foreign"

test-slow: $(TESTS) ## run the tests that take long, and search deeper: kills, clusters, crowds, all pages of the docs
	@NEBULA_TEST_DEPTH=4 $(PYTHON) -m pytest -n $(WORKERS) -m "(slow or deep) and not foreign"

check: $(TESTS) ## check format, lint, types, the layers of imports, the workflows of GitHub and the prose
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo --no-cache
	@# Without .git, as in an sdist, jactionlint finds neither its settings nor the workflows by itself.
	$(VENV)/bin/jactionlint --config-file=.github/jactionlint.yaml --shellcheck= --pyflakes= .github/workflows/*.yml
	@$(PYTHON) -m tests.prose

test-foreign: $(TESTS) ## run ours against RabbitMQ and ActiveMQ, and clients in six languages against ours (Debian: installs them)
	@$(PYTHON) -m pytest -n $(WORKERS) -m foreign tests/foreign tests/recovery

test-compiled: $(COMPILED)/.built ## run the tests of the wire, the broker and calls on the compiled build (Debian: installs a compiler)
	@cd $(COMPILED) && PYTHONPATH=$$PWD NEBULA_COMPILED=require $(CURDIR)/$(PYTHON) -m pytest -n $(WORKERS) \
	  -m "not slow and not foreign and not interpreted" \
	  tests/stomp tests/rpc tests/broker tests/conformance tests/properties tests/recovery tests/fuzz tests/compiled

torture: $(TORTURES) $(COMPILED)/.built ## kill the broker a thousand times, then feed it garbage (tens of minutes; Debian: installs a compiler)
	@$(PYTHON) -m tests.recovery --kills $(KILLS)
	@$(PYTHON) -m pytest -m foreign tests/recovery
	@NEBULA_TEST_DEPTH=80 $(PYTHON) -m pytest tests/properties tests/faults/test_shell_crowds.py
	@$(PYTHON) -m tests.fuzz --compiled --seconds 60

bench: $(TESTS) ## measure both builds beside RabbitMQ, ActiveMQ and NATS (Debian: installs them and a compiler)
	@if $(MAKE) --no-print-directory $(COMPILED)/.built; \
	then cd $(COMPILED) && PYTHONPATH=$$PWD NEBULA_COMPILED=require $(CURDIR)/$(PYTHON) -m benchmarks $(OPTIONS); \
	else $(PYTHON) -m benchmarks $(OPTIONS); fi

bench-quick: $(TESTS) ## measure Nebula alone, interpreted, in some minutes
	@$(PYTHON) -m benchmarks --quick

docs: $(TESTS) ## build the documentation site into build/site; check its links, snippets and commands (npm installs what draws pictures)
	@$(PYTHON) -m website.build
	@$(PYTHON) -m pytest -q -n $(WORKERS) -m "not slow and not foreign" tests/docs

docs-serve: $(TESTS) ## show the documentation site on 127.0.0.1:8000, and follow changes of its pages
	@$(PYTHON) -m website.build --serve

wheel: $(COMPILED)/.built ## build into dist/: the sdist, a pure wheel, and one that is compiled for this platform
	@rm -rf dist
	@$(PYTHON) -m build --no-isolation --outdir dist . > build/wheel.log 2>&1 || { tail -n 40 build/wheel.log >&2; exit 1; }
	@cp build/wheels/*.whl dist/
	@ls -l dist

npm-package: ## pack the client of web pages into dist/, for npm (needs npm)
	@.ci/npm-package dist

artefacts: wheel npm-package ## build everything that is released, and call a service with each in an empty environment
	@$(VENV)/bin/twine check --strict dist/*.whl dist/*.tar.gz
	@.ci/try-artefacts dist/*

console: $(TESTS) ## build the console into nebula/console/assets (needs Node 18 or newer); commit what it writes
	@$(PYTHON) -m tests.console.broker_calls
	@cd console && npm ci --no-audit --no-fund && npm run check && npm run build

compiled: $(COMPILED)/.built ## compile this checkout in place; edits of compiled modules count after the next `make compiled`
	@cd $(COMPILED) && find nebula *.so -name '*.so' -exec cp --parents {} $(CURDIR) \;
	@$(PYTHON) -m nebula --version

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log nebula-state pipeline-results tests/foreign/judges/js/node_modules website/node_modules console/node_modules
	rm -f *__mypyc.*.so && find nebula -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@.ci/make-venv $(VENV) $(UV)

$(RUNS): pyproject.toml constraints.txt | $(PYTHON)
	@echo "Setting up $(VENV): Nebula, Spark and a Java, some 600 MB the first time ..."
ifndef UV
	@$(PYTHON) -m pip install -qq --disable-pip-version-check --constraint constraints.txt --upgrade pip
endif
	@$(INSTALL) --editable '.[all,spark,polars,connect,java,services]'
	@touch $@

$(COMPILED)/.built: $(TESTS) .ci/compile $(shell find nebula pyspark_nebula -name '*.py')
	@.ci/compile $(PYTHON)

$(TORTURES): $(TESTS)
	@echo "Setting up $(VENV): a fuzzer ..."
	@$(INSTALL) --group torture
	@touch $@

$(TESTS): $(RUNS)
	@echo "Setting up $(VENV): what tests, checks, measures and builds ..."
	@$(INSTALL) --group test --group check --group bench --group build --group docs
	@touch $@
