# Everything starts from a fresh clone with Python 3.11+ and make.
PYTHON ?= python3
RUN := .venv/bin/python
PYTEST := $(RUN) -m pytest -q -n 2 --dist loadfile
PORT ?= 8000
# Colab's packages need Python 3.11 or 3.12.
COLAB_PYTHON ?= $(PYTHON)
LAB := .venv-lab
JUPYTERLAB := jupyterlab==4.6.6
# The sweeps whose results the book shows.
PLANS ?= length gate gate-rate distance distance-longer distance-copy distance-text init \
	parts offset translate text long live

# Small models run faster and give the same digits everywhere on one thread.
book notebooks nbval test test-colab test-lab experiments: export OMP_NUM_THREADS = 1
# Nothing here needs a display or leaves anything behind in the sources.
export MPLCONFIGDIR ?= $(CURDIR)/.venv/matplotlib
export PYDEVD_DISABLE_FILE_VALIDATION = 1

.DEFAULT_GOAL := help
.PHONY: help install book serve notebooks portable lint unit browser nbval test
.PHONY: test-colab test-lab bench bench-figures experiments clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

book: install ## build the site, executing every notebook, and print where it is
	@$(RUN) -m book.tools.build

serve: book ## build the site and serve it at http://localhost:8000 (PORT=8000)
	@$(RUN) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

notebooks: install ## execute the notebooks and write them back, ready to commit
	@$(RUN) -m book.tools.notebooks

portable: install ## write each chapter as one notebook that carries the library
	@$(RUN) -m book.tools.portable

test: install browser lint unit ## check everything; installs what is missing
	@$(MAKE) --no-print-directory -j 2 book nbval
	$(PYTEST) tests/notebooks tests/site

nbval: install ## execute every notebook and compare with what it holds
	$(RUN) -m pytest -q --nbval --nbval-current-env book

test-colab: install ## execute every notebook, installed and portable, as Colab would
	@$(RUN) -m book.tools.colab $(COLAB_PYTHON)

test-lab: install browser ## drive every figure in JupyterLab, with a kernel behind it
	@test -x $(LAB)/bin/jupyter-lab || { $(PYTHON) -m venv $(LAB) && \
		$(LAB)/bin/python -m pip install --quiet -r requirements.txt $(JUPYTERLAB); }
	$(RUN) -m pytest -q tests/lab

bench: install ## time relative attention against plain attention, for most of an hour
	@$(RUN) -m relpos_lib.bench --plot _build/bench.png

bench-figures: install browser ## time the sliders of the figures in a browser, best on an idle machine
	@PYTHONPATH=. $(RUN) tests/site/bench_figures.py

experiments: install ## train all that the book's results need, and write them; hours
	@for plan in $(PLANS); do \
		$(RUN) -m relpos_lib.experiments sweep $$plan --jobs 2 --device cpu && \
		$(RUN) -m relpos_lib.experiments report $$plan --write relpos_lib/results \
			|| exit 1; \
	done
	@$(RUN) -m relpos_lib.experiments report live --write relpos_lib/results --weights
	@$(RUN) -m relpos_lib.experiments dilution --write relpos_lib/results
	@$(RUN) -m relpos_lib.experiments reach --write relpos_lib/results

clean: ## remove everything that was built, and the environment
	rm -rf _build .venv .venv-colab $(LAB) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find book relpos_lib tests -name __pycache__ -type d -prune -exec rm -rf {} +

install: ## put what everything else needs into .venv
	@$(PYTHON) book/tools/install.py

browser: install ## find or install the browser that the tests drive
	@$(RUN) -m book.tools.browser

lint: install ## check style and types
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

unit: install ## test the library and the tools, without notebooks and site
	$(PYTEST) --doctest-modules tests relpos_lib --ignore tests/notebooks --ignore tests/site \
		--ignore tests/lab
