# Everything runs from a clean clone: make and a Python 3.11-3.13 are assumed, uv is used where it exists.
PY := .venv/bin/python
STAMP := .venv/.installed
SOURCES := orchestrator/evalfleet adapters/evalfleet_adapters sandboxes/evalfleet_sandboxes
JOBS ?= 2
PYTEST = $(PY) -m pytest -q -n $(JOBS) --dist loadgroup --no-loadscope-reorder

.PHONY: help setup quickstart lint check test test-engines test-rootless test-k8s test-agents test-all soak drill bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## create .venv with everything that the tests need

$(STAMP): pyproject.toml constraints.txt .ci/setup
	.ci/setup
	@touch $@

quickstart: setup ## run the shipped example experiment and say where its results are
	.venv/bin/orchestrate submit evals/quickstart/experiment.yaml
	@echo "Look at it: .venv/bin/orchestrate runs, then .venv/bin/orchestrate show RUN"

lint: setup ## style, types and import rules
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright
	.venv/bin/lint-imports

check: lint ## what to run before each commit: lint, house rules, unit tests
	$(PYTEST) tests/architecture tests/unit -m "not soak"

# more than there are cores: half of what these take is waiting
test: JOBS = 4
test: setup ## every test but the soak tests; ends with the seconds spent in each directory
	$(PYTEST) -m "not soak and not engine and not agents"

test-engines: setup ## the sandbox `container`, on a docker and a podman that are started here (needs root)
	$(PY) -m pytest -q -rs -n 0 -m engine tests/engines

test-rootless: setup ## the same on podman as an ordinary user, which root becomes for it
	tests/engines/as_user.sh $(PY) -m pytest -q -rs -n 0 -p no:cacheprovider -m engine tests/engines

test-agents: setup ## the adapter `cli` with the real coding agents, which npm installs into .venv/agents
	tests/agents/install.sh .venv/agents
	$(PY) -m pytest -q -rs -n 0 -m agents tests/agents

soak: setup ## the long tests only
	$(PYTEST) -m soak --timeout 1800

drill: setup ## kill processes of real runs and print what came of it, a line each (docs/drills.md)
	$(PY) -m tests.acceptance.kill.drill

test-k8s: setup ## the sandbox `kubernetes`, on a one-node cluster that is started here (tests/kubernetes)
	tests/kubernetes/cluster.sh run $(PYTEST) --timeout 300 tests/kubernetes

test-all: test test-engines test-rootless test-agents soak ## every test there is

bench: setup ## measure the harness against its peers
	$(PY) -m bench

lock: ## resolve constraints.txt anew (needs uv)
	uv pip compile pyproject.toml --group dev --group node --all-extras --universal --python-version 3.11 --upgrade --quiet \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header -o constraints.txt

clean: ## remove what can be made again; the record store in .evalfleet stays
	rm -rf .venv dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(SOURCES) evals tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
