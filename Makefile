# make setup   an environment in .venv        make lint    ruff, clang-format
# make demo    a buggy and a clean trainer    make types   mypy
# make test    the tests                      make bench   what watching and keyed samples cost
# make fuzz-portable     wrong arguments to portable operators, under AddressSanitizer
# make test-slow         the rest of what CI runs                make test-exhaustive   minutes for one claim
# make test-adapters     Lightning, transformers, accelerate, Hydra, s3, gs, NVRTC
# make gpu             what only a CUDA device can tell, in MINUTES=40; needs torch alone
# make test-packages   50 packages beside torch         make test-programs   training programs that others wrote
# make docs   the site, in build/site, with warnings as errors
# make test-pages   the commands that the pages show, each run
# make test-matrix   oldest and newest torch, Python, NumPy
# make wheels   what a release consists of, in dist/     make test-wheel   the same, installed as a stranger does

VENV := .venv
ADAPTERS := .venv-adapters
PACKAGES := .venv-packages
RELEASE := .venv-release
DOCS := .venv-docs
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
STAMP := $(VENV)/.samerun-installed

.PHONY: setup demo wheels test-wheel test-matrix docs test test-slow test-exhaustive test-pages test-adapters test-packages test-programs lint format types bench fuzz fuzz-portable gpu

setup: $(STAMP)

# A python3.11 on the path can be a launcher with nothing behind it, so it is asked to run.
# Some systems ship Python without ensurepip; then the system's pip installs one into the venv.
# torch goes first, so that everything after it resolves against the pinned version.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard native/* native/*/*)
	@base=python3.11; $$base -c '' 2>/dev/null || base=python3; \
	set -e; \
	test -x $(PYTHON) || $$base -m venv $(VENV) || $$base -m venv --clear --without-pip $(VENV); \
	$(PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m ensurepip --upgrade || \
		$$base -m pip --python $(PYTHON) install pip
	$(PYTHON) -m pip install -q -c constraints.txt torch numpy
	$(PYTHON) -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

# The first program has a planted bug: `check` must exit 1. The second is clean: it must exit 0.
demo: $(STAMP)
	@set -- 1 examples/digits_cnn_buggy.py 0 examples/digits_cnn.py; \
	while [ $$# -gt 0 ]; do \
		printf '\n$$ samerun check %s\n' "$$2"; \
		code=0; $(BIN)/samerun check "$$2" || code=$$?; \
		printf '(exit code %s)\n' "$$code"; \
		if [ "$$code" -ne "$$1" ]; then \
			echo "demo: $$2: wanted exit code $$1, got $$code" >&2; exit 1; \
		fi; \
		shift 2; \
	done

# One more test at a time than there are cores: tests start programs, which wait for the disk now and then.
WORKERS := $(shell cores=`nproc 2>/dev/null || echo 2`; echo $$((cores < 7 ? cores + 1 : 8)))

# Tests that need a CUDA device skip themselves where there is none (tests/conftest.py). Each has one thread: programs
# that use all cores hinder each other. What needs threads runs by itself, and so does a file whose last test looks at
# what all others of it did.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m "not exhaustive and not slow" -n $(WORKERS) --dist worksteal \
		--ignore tests/numerics/aten_handlers/test_portable_operators.py
	$(PYTHON) -m pytest tests/numerics/aten_handlers/test_portable_operators.py

# What takes several seconds for a claim that other tests stand near to: CI runs it with every change.
test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m "slow and not exhaustive" -n $(WORKERS) --dist worksteal \
		$$(grep -rl --include="test_*.py" mark.slow tests | sort)

# Hours on two cores. Kernels use all cores by themselves; what starts programs shares them out.
test-exhaustive: $(STAMP) $(ADAPTERS)/.samerun-installed
	$(PYTHON) -m pytest -m exhaustive tests/numerics
	$(PYTHON) -m pytest -m exhaustive --ignore tests/numerics -n $$(nproc 2>/dev/null || echo 2) --dist worksteal
	$(ADAPTERS)/bin/python -m pytest -m exhaustive tests/adapters/test_adapters.py tests/adapters/test_architectures.py tests/numerics/cuda/test_cuda_sources.py
	$(ADAPTERS)/bin/python -m pytest -m exhaustive tests/numerics/kernels/test_numerics_float64.py -k with_mpfr

# Every command of README and pages as a reader runs it, and the examples in a notebook: ten minutes, beside CI's others.
test-pages: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal tests/repository/test_doc_commands.py \
		tests/repository/test_doc_examples.py

# What other people's loops and stores need is large, so it has an environment of its own: the main one stays as
# small as a user's, and the tests there show that samerun does without. What runs here is skipped there. The
# environment sees the packages of the main one behind its own: torch stays the one that is pinned, and is not
# installed twice. pip never changes what lies outside of the environment that it installs into.
test-adapters: $(ADAPTERS)/.samerun-installed
	OMP_NUM_THREADS=1 $(ADAPTERS)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/adapters/test_adapters.py tests/adapters/test_launchers.py \
		tests/adapters/test_architectures.py tests/adapters/test_notebook.py tests/record/receipt/test_remote.py \
		tests/numerics/cuda/test_cuda_sources.py -k "(architectures or notebook or lightning or transformers or accelerate or hydra or s3 or gs or cuda_sources) and not exhaustive"

$(ADAPTERS)/.samerun-installed: $(STAMP)
	$(call make_environment,$(ADAPTERS),adapters)
	@touch $@

# The packages that people use most beside torch, each used a little, alone and under samerun: plain and watched output
# are compared. Over 1.5 GB, so it has an environment of its own too. Nothing is fetched while the tests run.
test-packages: $(PACKAGES)/.samerun-installed
	REQUIRE_PACKAGES=1 OMP_NUM_THREADS=1 $(PACKAGES)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/repository/test_packages.py tests/adapters/test_trackers.py \
		tests/adapters/test_launchers.py tests/adapters/test_ray_engine.py

# Programs that others wrote, taken from their repositories (tests/programs/public/README.md).
test-programs: $(PACKAGES)/.samerun-installed
	$(PACKAGES)/bin/python tools/run_public_programs.py

$(PACKAGES)/.samerun-installed: $(STAMP)
	$(call make_environment,$(PACKAGES),packages)
	$(PACKAGES)/bin/python tests/packages/declare_torchvision_operators.py
	@touch $@

# The interpreters to build and test for, oldest first: those on the path, or `make wheels PYTHONS="/a/python3.10 ..."`.
PYTHONS = $(shell for v in 10 11 12 13 14; do python3.$$v -c '' 2>/dev/null && command -v python3.$$v; done)
DIST := dist

wheels: $(RELEASE)/.samerun-installed
	$(RELEASE)/bin/python tools/wheels.py --out $(DIST) $(addprefix --python ,$(PYTHONS))

# As root, who alone can become another user. Fetches releases of torch, which are large, into uv's cache.
test-wheel: $(RELEASE)/.samerun-installed
	DIST=$(DIST) PYTHONS="$(PYTHONS)" $(RELEASE)/bin/python -m pytest tests/release/test_wheel.py

# The core of the suite with the oldest and newest torch, Python and NumPy; MATRIX="--every" for all between.
test-matrix: $(RELEASE)/.samerun-installed
	$(RELEASE)/bin/python tools/test_matrix.py $(addprefix --python ,$(PYTHONS)) $(MATRIX)

docs: $(DOCS)/.samerun-installed
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(DOCS)/bin/python -m mkdocs build --strict --quiet --site-dir build/site

$(DOCS)/.samerun-installed: $(STAMP)
	$(call make_environment,$(DOCS),docs)
	@touch $@

$(RELEASE)/.samerun-installed: $(STAMP)
	$(call make_environment,$(RELEASE),release)
	@touch $@

# $(1): the environment; $(2): the word by which the extras of pyproject.toml that go into it are known.
define make_environment
test -x $(1)/bin/python || $(PYTHON) -m venv --without-pip $(1)
there=`$(PYTHON) -c "import sysconfig; print(sysconfig.get_path('purelib'))"` && \
	here=`$(1)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"` && \
	echo "import site; site.addsitedir('$$there')" > "$$here/main.pth"
$(PYTHON) -c "from importlib.metadata import requires; \
	print(*(r.split(';')[0] for r in requires('samerun') if '$(2)' in r and not r.startswith('samerun')), \
	sep='\n')" > $(1)/requirements.txt
test -s $(1)/requirements.txt
$(PYTHON) -m pip --python $(1)/bin/python install -q --no-compile -c constraints.txt -r $(1)/requirements.txt
$(1)/bin/python -c "import samerun, sys, torch; \
	sys.exit(any(one.__file__.startswith(sys.prefix) for one in (samerun, torch)))"
endef

# A night's work: about a million cases in all. A short sample of each runs in `make test`.
fuzz: $(STAMP) fuzz-portable
	$(PYTHON) tests/fuzz/fuzz_receipts.py --plain 500000
	OMP_NUM_THREADS=1 $(PYTHON) tests/fuzz/fuzz_traces.py --count 300000
	OMP_NUM_THREADS=1 $(PYTHON) tests/fuzz/fuzz_checkpoints.py --count 100000
	OMP_NUM_THREADS=1 $(PYTHON) tests/fuzz/fuzz_commands.py --count 100000
	$(PYTHON) tests/fuzz/fuzz_lint.py --count 100000

C_SOURCES := $(wildcard $(addprefix native/,$(foreach folder,. cuda functions tests watch,$(addprefix $(folder)/,*.c *.h *.inc *.cu))))

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)

# What `make lint` checks, put right.
format: $(STAMP)
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(C_SOURCES)

types: $(STAMP)
	$(BIN)/mypy

# Arguments that do not fit, to every portable operator, with the kernels built so that they stop at wild memory.
# CASES=1000000 takes a night; SEED=n gives others.
ASAN := build/asan
CASES := 20000
SEED := 0

fuzz-portable: $(STAMP) $(ASAN)/.built
	LD_PRELOAD="`gcc -print-file-name=libasan.so` libstdc++.so.6" ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1 OMP_NUM_THREADS=1 \
		$(PYTHON) tests/fuzz/fuzz_portable.py --samples --wrong --cases $(CASES) --seed $(SEED) \
		--library `ls $(ASAN)/samerun/numerics/kernels/_portable*.so`

$(ASAN)/.built: setup.py $(wildcard native/*.c native/*.h native/*.inc native/functions/*.h)
	SAMERUN_SANITIZE=1 $(PYTHON) setup.py -q build_ext --build-lib $(ASAN) --build-temp $(ASAN)/objects
	@touch $@

bench: $(STAMP)
	$(PYTHON) benchmarks/bench_watch.py
	$(PYTHON) benchmarks/bench_data.py

# With the environment's torch, or, where none was made, with that of the system: a machine with a GPU may reach no
# package index.
MINUTES := 40

gpu:
	$(if $(wildcard $(STAMP)),$(PYTHON),python3) tools/gpu.py --minutes $(MINUTES)
