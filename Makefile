# make demo · make test · make venv · make check · make docs · make wheels · make toolchains · make bench-edge · make bench-learning ·
# make bench-booster · make bench-promise · make bench-exports · make bench-import · make bench-mcu · make bench-start ·
# make bench-cuts · make card · make boot · make machine · make fuzz · make freeze · make layout · make mutants · make replay ·
# make stack · make mlserver
#
# Everything lives in .venv. What only a system package can give (mosquitto, for the system tests) is installed by apt
# when run as root, and otherwise named in one line. Tests for other processors run where `make toolchains` has been;
# elsewhere they are left out, and the tests' summary says so.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready
PACKAGES := edge_runtime train export cloud_stub .
SOURCES := hardcase edge_runtime train export cloud_stub tests benchmarks docs

.PHONY: demo test venv check docs docs-tools wheels golden layout toolchains tflite-runtime bench-edge bench-learning bench-booster bench-promise bench-exports \
	bench-import bench-mcu bench-start bench-cuts card boot machine freeze fuzz mutants replay stack clean mosquitto mlserver

demo: $(READY)
	@$(BIN)/hardcase demo

venv: $(READY)

# Bytecode is kept: hundreds of processes would compile the packages again, and each worker the tests. One more worker
# than cores, because tests wait for brokers, processes and deadlines.
test: $(READY) mosquitto
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --dist worksteal \
		-n $$($(BIN)/python -c "import os; print(os.cpu_count() + 1)")

check: $(READY)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "run: $(BIN)/ruff format $(SOURCES)"; exit 1; }
	@$(BIN)/mypy edge_runtime/hardcase_edge train/hardcase_train export/hardcase_export cloud_stub/hardcase_cloud hardcase
	@$(BIN)/mypy --config-file benchmarks/mypy.ini -p benchmarks
	@$(BIN)/python -m pytest tests/house/test_arrows.py tests/house/test_rules.py

# The site, in build/site. Warnings are errors: a link or an anchor that leads nowhere, a page without a place.
docs: docs-tools
	@rm -rf build/site
	@$(BIN)/sphinx-build -b html -n -W --keep-going -q -c docs -d build/site-cache . build/site
	@! grep -rlE '<(script|img|link|iframe)[^>]* (src|href)="(https?:)?//' --include='*.html' build/site || \
		{ echo "these pages load something from elsewhere"; exit 1; }
	@echo build/site/index.html

docs-tools: $(DOCS_READY)

$(DOCS_READY): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# The device's wheel without and with the kernel: for x86-64, 64-bit ARM, and 32-bit ARM from the first Raspberry Pi on.
wheels: $(READY)
	@rm -rf dist && mkdir dist
	@for p in $(PACKAGES); do \
		HARDCASE_PURE=1 $(BIN)/python -m build --wheel --outdir dist $$p >/dev/null || exit 1; done
	@$(BIN)/python -m hardcase.flashing.wheels dist/hardcase_edge-*-py3-none-any.whl
	@ls -l dist

golden: $(READY)
	@$(BIN)/python tests/golden/make_golden.py

# The words of an image: hc_layout.h and the tables of docs/SPEC-image-v1.md, of kernel/layout.py.
layout: $(READY)
	@$(BIN)/python -m tests.golden.make_layout

# What the program writes, before and after a change that must change none of it: make freeze SAVE=FOLDER, and later
# make freeze COMPARE=FOLDER; some five minutes each.
freeze: $(READY)
	@$(BIN)/python -m tests.golden.freeze $(if $(COMPARE),--compare "$(COMPARE)",--save "$(SAVE)") $(if $(ONLY),--only $(ONLY))

bench-edge: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@$(BIN)/python benchmarks/edge.py

bench-learning: $(READY)
	@$(BIN)/python benchmarks/rig.py
	@$(BIN)/python benchmarks/learning.py

bench-booster: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@$(BIN)/python -m benchmarks.many_trees grow
	@$(BIN)/python benchmarks/booster.py

bench-promise: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@$(BIN)/python benchmarks/promise.py

bench-exports: $(READY)
	@$(BIN)/python benchmarks/exports.py

bench-import: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@$(BIN)/python -W ignore benchmarks/import.py

bench-mcu: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@$(BIN)/python benchmarks/mcu.py

# Power cuts of what writes: in a model in memory, and, as root, on ext4 over a disk that logs its writes.
bench-cuts: $(READY)
	@$(BIN)/python benchmarks/power_cuts.py
	@if [ "$$(id -u)" = 0 ] && command -v fusermount3 >/dev/null && command -v mkfs.ext4 >/dev/null; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' && \
		$(BIN)/python benchmarks/power_cuts_ext4.py; \
	else echo "the cuts on ext4 need root: sudo apt install fuse3 e2fsprogs, then sudo make bench-cuts"; fi

MACHINE := qemu-system-x86 debootstrap e2fsprogs dosfstools mtools fdisk kmod cpio busybox-static

# The image of a card with Debian, to be flashed: build/machine/card.img; some three minutes the first time.
card: $(READY) mosquitto
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "the emulated machine needs root, on a Debian: as root, make $(or $(MAKECMDGOALS),card)"; exit 2; }
	@(PATH=$$PATH:/usr/sbin:/sbin; for tool in qemu-system-x86_64 debootstrap mkfs.ext4 mkfs.vfat mcopy sfdisk modprobe cpio busybox; \
		do command -v $$tool >/dev/null || exit 1; done) || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $(MACHINE) >/dev/null; } || \
		{ echo "needed: apt install $(MACHINE)"; exit 2; }
	@sh tests/helpers/machine/base.sh build/machine
	@ls -l build/machine/card.img

# Boots a copy of it that hardcase flash has written, and shows its journal until Ctrl-C: make boot CARD=card.img
boot: $(READY)
	@[ -f "$(CARD)" ] && [ -f build/machine/vmlinuz ] || { echo "needed: make card, then make boot CARD=IMAGE, a flashed copy of build/machine/card.img"; exit 2; }
	@$(BIN)/python -m tests.helpers.machine.boot "$(CARD)"

# A flashed card in an emulated machine that boots, hangs, is updated, and whose power is cut; some six minutes more.
machine: card
	@$(BIN)/python benchmarks/machine.py $(if $(CUTS),--cuts $(CUTS))

# Compilers, emulators for 64-bit and 32-bit ARM and for Cortex-M, Debian's Python for both kinds of Raspberry Pi, tools
# for FAT and partitions, an ssh server that tests start on loopback, systemd's checks of units, a browser for the reports, a database
# and Prometheus.
TOOLCHAINS := gcc libc6-dev python3-dev clang libclang-rt-dev make gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
	gcc-arm-linux-gnueabihf libc6-dev-armhf-cross gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-user qemu-system-arm \
	mtools dosfstools fdisk openssh-server systemd chromium postgresql prometheus

toolchains:
	@(PATH=$$PATH:/usr/sbin:/sbin; for tool in cc clang make aarch64-linux-gnu-gcc arm-linux-gnueabihf-gcc arm-none-eabi-gcc \
		qemu-aarch64 qemu-arm qemu-system-arm mcopy mkfs.vfat sfdisk sshd systemd-analyze chromium promtool; \
		do command -v $$tool >/dev/null || exit 1; done; ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1) || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends $(TOOLCHAINS) >/dev/null; } || \
		{ echo "needed: sudo apt install $(TOOLCHAINS); then make toolchains again"; exit 2; }
	@sh tests/helpers/edge/debian_python.sh arm64 build/python-arm64
	@sh tests/helpers/edge/debian_python.sh armhf build/python-armhf
	@sh tests/helpers/edge/debian_micropython.sh build/micropython
	@test -d build/tflite-runtime || $(MAKE) --no-print-directory tflite-runtime || \
		echo "tflite-runtime has no wheel for this Python: its tests are left out"

# MLServer for benchmarks/kserve.py, 326 MB, in an environment of its own.
mlserver:
	@test -x build/mlserver/bin/mlserver || { $(PYTHON) -m venv build/mlserver && \
		build/mlserver/bin/pip install --quiet --disable-pip-version-check mlserver; }

# The TFLite interpreter for 32-bit ARM, which needs numpy 1: tests run it in a process of its own.
tflite-runtime: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target build/tflite-runtime \
		tflite-runtime==2.14.0 numpy==1.26.4

$(READY): constraints.txt pyproject.toml $(wildcard */pyproject.toml edge_runtime/setup.py edge_runtime/hardcase_edge/kernel/*.[ch])
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or later is needed: apt install python3 python3-venv"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$$($(PYTHON) --version) is too old, 3.11 or later is needed: make PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "venv is needed: apt install python3-venv"; exit 2; }
	@echo "installing into .venv (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e ./edge_runtime -e ./train -e ./export -e ./cloud_stub -e '.[test,check,wheels]'
	@touch $@

mosquitto:
	@PATH=$$PATH:/usr/sbin command -v mosquitto >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends mosquitto >/dev/null; } || \
		{ echo "mosquitto is needed for the system tests: sudo apt install mosquitto"; exit 2; }

bench-start: $(READY)
	@$(BIN)/python benchmarks/start.py

fuzz: $(READY) mosquitto
	@$(BIN)/python benchmarks/attack.py --seconds $(or $(FUZZ_SECONDS),120) $(if $(FUZZ_ONLY),--only $(FUZZ_ONLY))

# Random changes of the learners, or of the device's core (CORE=1), and whether tests notice; none begins after half an
# hour: make mutants COUNT=20 SEED=1 ONLY=cstc
mutants: $(READY)
	@$(BIN)/python -m benchmarks.mutants --count $(or $(COUNT),100) --seed $(or $(SEED),0) $(if $(ONLY),--only "$(ONLY)") \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(CORE),--core)

# A fleet in virtual time: 20 seeds of 50,000 decisions, and one of a million; about a minute.
replay: $(READY)
	@$(BIN)/hardcase fleet replay examples/fleet/small.toml --seeds 20
	@$(BIN)/hardcase fleet replay examples/fleet/chaos.toml --seed 7

stack:
	@dir=$$(mktemp -d) && $(CC) -std=c99 -O2 -fstack-usage -c edge_runtime/hardcase_edge/kernel/hardcase.c -o $$dir/k.o && \
		cut -d: -f4 $$dir/k.su | sort -k2 -rn; rm -r $$dir

clean:
	@rm -rf .venv build dist */build *.egg-info */*.egg-info .pytest_cache .mypy_cache .ruff_cache
