# make demo · make test · make venv · make check · make docs · make wheels · make golden · make mutants · make bench NAME=edge ·
# make toolchains · make machine · make clean
#
# Everything lives in .venv. What only a system package can give (mosquitto, for the system tests) is installed by apt
# when run as root, and otherwise named in one line. Tests for other processors run where `make toolchains` has been;
# elsewhere they are left out, and the tests' summary says so.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/(tests|ziglang)/' .venv/lib || true
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready
DEMO_READY := $(or $(wildcard $(READY)),.venv/.demo-ready)
EXTRAS := [test,check,wheels]
PACKAGES := edge_runtime train export cloud_stub .
SOURCES := hardcase edge_runtime train export cloud_stub tests benchmarks docs

unexport PYTHONDONTWRITEBYTECODE  # each of hundreds of processes would compile the packages again

.PHONY: demo test venv check docs wheels golden mutants bench toolchains machine clean

demo: $(DEMO_READY)
	@$(BIN)/hardcase demo

# All tests but those of tests/frameworks, which make test OF=frameworks runs (and OF=edge/link those of a folder): they
# build or run programs of other projects, Home Assistant, Node-RED, ESPHome, MicroPython, Zephyr and Arduino, or compile
# for other processors. One more worker than cores, because tests wait for brokers, processes and deadlines.
test: $(READY)
	@sh tests/helpers/toolchains.sh mosquitto
	@$(BIN)/python -m pytest --dist worksteal \
		-n $$($(BIN)/python -c "import os; print(os.cpu_count() + 1)") \
		$(if $(OF),tests/$(OF),--ignore tests/frameworks)
	@$(if $(OF),,echo "tests with programs of other projects and for other processors: make test OF=frameworks")

venv: $(READY)

check: $(READY)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "run: $(BIN)/ruff format $(SOURCES)"; exit 1; }
	@$(BIN)/mypy --num-workers auto edge_runtime/hardcase_edge train/hardcase_train export/hardcase_export cloud_stub/hardcase_cloud hardcase \
		benchmarks
	@$(BIN)/python -m pytest tests/house/test_arrows.py tests/house/test_rules.py

# The site, in build/site. Warnings are errors: a link or an anchor that leads nowhere, a page without a place.
docs: $(DOCS_READY)
	@rm -rf build/site
	@$(BIN)/sphinx-build -b html -n -W --keep-going -q -c docs -d build/site-cache . build/site
	@! grep -rlE '<(script|img|link|iframe)[^>]* (src|href)="(https?:)?//' --include='*.html' build/site || \
		{ echo "these pages load something from elsewhere"; exit 1; }
	@echo build/site/index.html

# The device's wheel without and with the kernel: for x86-64, 64-bit ARM, and 32-bit ARM from the first Raspberry Pi on.
wheels: $(READY)
	@rm -rf dist && mkdir dist
	@for p in $(PACKAGES); do \
		HARDCASE_PURE=1 $(BIN)/python -m build --wheel --no-isolation --skip-dependency-check --outdir dist $$p \
			>/dev/null || exit 1; done
	@$(BIN)/python -m hardcase.flashing.wheels dist/hardcase_edge-*-py3-none-any.whl
	@ls -l dist

# What is made of the code and stored: the words of an image (hc_layout.h and the tables of docs/SPEC-image-v1.md, of
# kernel/layout.py; make golden ONLY=layout), and the files of tests/golden.
# What the program writes, before and after a change that must change none of it: make golden SAVE=FOLDER, and later
# make golden COMPARE=FOLDER; some ten minutes each.
golden: $(READY)
ifneq ($(SAVE)$(COMPARE),)
	@$(BIN)/python -m tests.golden.freeze $(if $(COMPARE),--compare "$(COMPARE)",--save "$(SAVE)") $(if $(ONLY),--only $(ONLY))
else
	@$(BIN)/python -m tests.golden.make_layout
	@[ "$(ONLY)" = layout ] || $(BIN)/python tests/golden/make_golden.py
endif

# A benchmark of docs/benchmarks/README.md, by the name of its script: make bench NAME=rig
bench: $(READY)
	@sh benchmarks/run.sh "$(NAME)" $(ARGS)

# 100 changes of the learners at random, and which of them no test notices; ARGS='--core' for those of the device.
mutants: NAME = mutants
mutants: bench

# Compilers, emulators and other tools of the tests; some of them are built below build/.
toolchains:
	@sh tests/helpers/toolchains.sh tools
	@$(MAKE) --no-print-directory venv
	@sh tests/helpers/toolchains.sh tflite-runtime

# An emulated machine that boots a card, as root. DO=card makes its image, build/machine/card.img; DO=boot CARD=card.img
# boots a copy that hardcase flash has written; without DO a flashed card boots, hangs, is updated and loses its power.
machine: $(if $(filter card,$(DO)),,$(READY))
	@sh tests/helpers/machine/machine.sh "$(or $(DO),try)" $(if $(CARD),"$(CARD)") $(if $(CUTS),--cuts $(CUTS))

clean:
	@rm -rf .venv build dist */build *.egg-info */*.egg-info .pytest_cache .mypy_cache .ruff_cache

# The packages from this folder, and what they need; .demo-ready is without the tools of tests, checks and wheels. They are
# built by one setuptools, where pip would install it anew for each of them, and all cores compile what was installed.
$(READY) .venv/.demo-ready: constraints.txt pyproject.toml $(wildcard */pyproject.toml edge_runtime/setup.py edge_runtime/hardcase_edge/kernel/*.[ch])
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or later is needed: apt install python3 python3-venv"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$$($(PYTHON) --version) is too old, 3.11 or later is needed: make PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "venv is needed: apt install python3-venv"; exit 2; }
	@echo "installing into .venv (a few minutes the first time)"
	@$(PIP) 'setuptools>=77'
	@$(PIP) --no-build-isolation --no-deps $(PACKAGES:%=-e ./%)
	@$(PIP) 'hardcase$(if $(filter $(READY),$@),$(EXTRAS))'
	@$(COMPILE)
	@touch $@

$(DOCS_READY): $(READY)
	@$(PIP) 'hardcase[docs]'
	@$(COMPILE)
	@touch $@
