# Shortcuts; README.md and docs/development.md have most steps as plain commands.
# Another interpreter: make PYTHON=python3.12 ...
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
TESTS ?=

.PHONY: help quickstart test notebooks lint

help:
	@echo "make quickstart   install, pretrain for about six minutes, finetune for three, and plot the results"
	@echo "make test         install and run the tests (make test TESTS=tests/training for some)"
	@echo "make notebooks    export both notebooks to the scripts"
	@echo "make lint         check the code with ruff"

# The environment is current if the requirements have not changed since they were installed. The pip of Python 3.11.2
# (Debian 12) cannot build seqeval, the only package without a wheel, so pip is upgraded first.
$(VENV)/installed: requirements.txt
	@echo "Installing into $(VENV): a download of 3 GB, 7 GB on the disk, two minutes or more"
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --upgrade pip
	$(PY) -m pip install -r requirements.txt
	@touch $@

quickstart: $(VENV)/installed
	@echo "Pretraining takes about six minutes on two idle CPU cores, finetuning three"
	$(PY) pretrain.py quickstart=True
	$(PY) finetune.py quickstart=True

test: $(VENV)/installed
	$(PY) -m pytest -n 2 --dist worksteal $(TESTS)

notebooks: $(VENV)/installed
	$(PY) -m _utils export_notebooks

lint: $(VENV)/installed
	$(PY) -m ruff check .
