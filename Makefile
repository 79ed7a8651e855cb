# Two commands do all the set-up: `make repro` and `make test`.
PYTHON ?= python3.11
# The torch build. CPU users and GPU users need different wheels of the same version: see README, "torch".
TORCH ?= torch==2.13.0
TORCH_OPTIONS ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
# Found by stages that DVC starts; nothing reports home; one thread per process.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := 1
export MLFLOW_DISABLE_TELEMETRY := true
export GX_ANALYTICS_ENABLED := false
export HF_HUB_DISABLE_TELEMETRY := 1
export OMP_NUM_THREADS := 1

.PHONY: help venv data models repro suites test test-slow lint pilot smoke-check ui lock clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

venv: $(VENV)/.installed  ## .venv with pinned, hash-checked dependencies (about 3 GB, 3 to 5 minutes)

$(VENV)/.installed: requirements.lock pyproject.toml
	@echo "Installing pinned dependencies into $(VENV): about 3 GB, 3 to 5 minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet $(TORCH_OPTIONS) '$(TORCH)'
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/pip check
	@touch $@

data: venv  ## the dataset, from the DVC remote inside this repository
	$(BIN)/dvc pull --quiet data.dvc

models: data  ## the fitted models, from the same remote
	$(BIN)/dvc pull --quiet fit pretrain adapt

repro: models  ## everything: data, windows, models, cells, boards (about an hour on 2 cores)
	@echo "Running the pipeline: 116 cells and 64 baselines, about an hour on 2 cores from the fitted models."
	$(BIN)/dvc repro
	@echo "Boards: results/leaderboard.md   Browse the runs: make ui   Audit a row: $(BIN)/explainbench audit T1/lstm/shap"

suites: models  ## the three further suites (axe, agnostic, ground_truth) after `make repro`: cells and boards, about half an hour
	$(BIN)/dvc repro suites/dvc.yaml
	$(BIN)/dvc repro

test: venv  ## the default test suite (under 5 minutes)
	$(BIN)/pytest -q

test-slow: venv  ## the tests marked slow
	$(BIN)/pytest -q -m slow

lint: venv  ## ruff, pyright, import-linter
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright && $(BIN)/lint-imports

pilot: data  ## the pilot profile alone, from training on, into runs/pilot (about 10 minutes on 2 cores)
	@echo "Fitting 4 models and scoring 12 cells and 4 baselines: about 10 minutes on 2 cores. Results: runs/pilot/results"
	rm -rf runs/pilot/models
	$(BIN)/explainbench --profile pilot --output runs/pilot run --workers $(WORKERS)

smoke-check: data  ## the smoke profile twice from nothing, compared bit for bit
	rm -rf runs/smoke-1 runs/smoke-2
	$(BIN)/explainbench --profile smoke --output runs/smoke-1 run --workers 1
	$(BIN)/explainbench --profile smoke --output runs/smoke-2 run --workers 2
	cmp runs/smoke-1/cells.lock.json runs/smoke-2/cells.lock.json
	cmp runs/smoke-1/results/leaderboard.csv runs/smoke-2/results/leaderboard.csv
	@echo "two smoke runs, one and two workers: identical bytes"

ui: venv  ## MLflow's UI on http://127.0.0.1:5000, our pages on /explainbench/
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow server --app-name explainbench --host 127.0.0.1 --backend-store-uri sqlite:///$(CURDIR)/mlflow.db

lock:  ## resolve requirements.lock again from pyproject.toml (needs pip-tools); torch is left out, see README
	$(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --no-header --no-annotate --no-emit-options --allow-unsafe --strip-extras --extra dev --unsafe-package torch \
	  --output-file requirements.lock pyproject.toml
	sed -i '/^# The following packages are considered/,$$d' requirements.lock

clean:  ## remove the profiles' runs; keeps data, windows, models, cells
	rm -rf runs
