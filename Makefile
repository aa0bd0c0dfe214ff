# Set-up, tests and the demo. Each part leaves a stamp, so that a second call goes straight to the work.
#
#   make demo    the main example on 128 emulated H100s
#   make test    the tests
#   make help    the rest

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2  # processes that run tests
TRANSFORMER_ENGINE_OPTIONS ?=  # of presim.capture.setup.build_transformer_engine
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# A wheel brings cmake where the system has none.
CMAKE := $(or $(shell command -v cmake),$(BIN)/cmake)
SHIM := src/presim/shim
SHIM_SOURCES := CMakeLists.txt $(shell find $(SHIM) -type f -not -path '$(SHIM)/lib/*' -not -path '$(SHIM)/hook/*' -not -name '*.pyc')

TORCH := $(VENV)/.torch
PACKAGES := $(VENV)/.packages
PRESIM := $(VENV)/.presim
FRAMEWORKS := $(VENV)/.frameworks
TRANSFORMER_ENGINE := $(VENV)/.transformer-engine
LOOPS := $(VENV)/.loops
LOOP_SOURCES := src/presim/system/compiled_loops.py src/presim/composition/allocator_loop.py $(wildcard src/presim/engine/*.py src/presim/serving/fast/*.py)
LIBRARIES := $(SHIM)/lib/.built
HOOK := $(VENV)/.hook
HOOK_SOURCES := $(shell find $(SHIM)/hook -type f -not -name '*.pyc') $(wildcard $(SHIM)/core/*.h)
CUDA_HEADERS := build/cuda-headers
WEB := src/presim/app/web
WEB_SOURCES := $(sort $(wildcard $(WEB)/*.json $(WEB)/*.ts $(WEB)/*.html $(WEB)/public/* $(WEB)/src/*))

.PHONY: app help venv frameworks transformer-engine vllm sglang shim demo package test test-long quick lint format docs site upgrade benchmarks clean
.DELETE_ON_ERROR:

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

venv: $(PRESIM) $(TORCH) $(LOOPS)  ## .venv with PyTorch's CUDA build and without nvidia-* packages

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "presim needs Python 3.11 as $(PYTHON); another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "Python's venv is missing: apt-get install python3-venv" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(PACKAGES): requirements/constraints.txt requirements/torch-needs.txt pyproject.toml | $(BIN)/python
	@echo "installing dependencies"
	@$(PIP) install --constraint requirements/constraints.txt --requirement requirements/torch-needs.txt \
		scikit-build-core $(if $(shell command -v cmake),,cmake ninja)
	@touch $@

$(TORCH): requirements/torch.txt $(PACKAGES)
	@echo "installing PyTorch's CUDA build (without nvidia-* packages)"
	@$(PIP) install --no-deps --requirement requirements/torch.txt
	@touch $@

$(PRESIM): pyproject.toml validation/pyproject.toml $(PACKAGES) | $(TORCH)
	@echo "installing presim in place"
	@$(PIP) install --constraint requirements/constraints.txt --no-build-isolation -Cwheel.cmake=false -Ceditable.mode=inplace \
		--editable '.[dev,docs,examples,search,view]'
	@$(PIP) install --no-deps --no-build-isolation --editable ./validation
	@touch $@

# So that no verb compiles at its first use.
$(LOOPS): $(LOOP_SOURCES) $(PRESIM)
	@echo "compiling loops for this CPU; a minute"
	@$(BIN)/python -m presim.verbs.prepare
	@touch $@

frameworks: $(FRAMEWORKS) $(TRANSFORMER_ENGINE)  ## DeepSpeed, Lightning, PEFT, Transformer Engine and what else examples and tests run

# Without the CUDA parts of those that have some. Mamba's two import PyTorch to be built, which needs CUDA's libraries.
$(FRAMEWORKS): requirements/frameworks.txt $(PRESIM) $(TORCH) | $(LIBRARIES)
	@echo "installing frameworks"
	@LD_LIBRARY_PATH=$(CURDIR)/$(SHIM)/lib DS_BUILD_OPS=0 MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE \
		CAUSAL_CONV1D_FORCE_BUILD=TRUE CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE \
		$(PIP) install --no-deps --no-build-isolation --requirement requirements/frameworks.txt
	@touch $@

transformer-engine: $(TRANSFORMER_ENGINE)  ## Transformer Engine alone, and what it needs

# Its half for PyTorch is compiled here, three minutes on two cores; the wheel is kept in the user's cache.
$(TRANSFORMER_ENGINE): requirements/transformer-engine.txt $(FRAMEWORKS) | $(LIBRARIES)
	@echo "installing Transformer Engine; its half for PyTorch is compiled the first time"
	@$(PIP) install --no-deps --requirement requirements/transformer-engine.txt
	@mkdir -p build && $(BIN)/python -m presim.capture.setup.build_transformer_engine $(TRANSFORMER_ENGINE_OPTIONS) \
		>build/transformer-engine.log
	@$(PIP) install --no-deps --force-reinstall "$$(tail -n 1 build/transformer-engine.log)"
	@touch $@

vllm: $(FRAMEWORKS)  ## vLLM, without its CUDA packages
	@echo "installing vLLM"
	@$(PIP) install --no-deps --requirement requirements/vllm.txt

sglang: vllm  ## SGLang, without its kernels
	@echo "installing SGLang"
	@$(PIP) install --no-deps --requirement requirements/sglang.txt

shim: $(LIBRARIES) $(HOOK)  ## the emulated CUDA libraries, and the operator hook for the installed PyTorch

$(CUDA_HEADERS)/.stamp: requirements/cuda-headers.txt | $(BIN)/python
	@echo "fetching CUDA headers"
	@$(PIP) install --no-deps --upgrade --target $(CUDA_HEADERS) --requirement requirements/cuda-headers.txt
	@touch $@

# What it leaves, presim/capture/setup/shim.py reads: the sources that were compiled, by their digests.
$(LIBRARIES): $(SHIM_SOURCES) $(PACKAGES) $(CUDA_HEADERS)/.stamp
	@echo "building the emulated CUDA libraries"
	@mkdir -p build && sha256sum $(SHIM_SOURCES) >build/shim.sources
	@$(CMAKE) -S . -B build/shim -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
		-DPRESIM_CUDA_INCLUDE=$(CURDIR)/$(CUDA_HEADERS)/nvidia/cu13/include >build/shim.log
	@$(CMAKE) --build build/shim --parallel $$(nproc) >>build/shim.log
	@mkdir -p $(SHIM)/lib
	@for library in build/shim/lib/*; do \
		cp $$library $(SHIM)/lib/.new && mv $(SHIM)/lib/.new $(SHIM)/lib/$$(basename $$library) || exit 1; done
	@mv build/shim.sources $@

# So that the first captures do not compile it, each for itself where several start at once.
$(HOOK): $(HOOK_SOURCES) $(TORCH) | $(PRESIM)
	@echo "compiling the operator hook for the installed PyTorch"
	@$(BIN)/python -m presim.capture.setup.hook_build --cache >/dev/null
	@touch $@

demo: venv shim  ## Llama 8B on 128 emulated H100s
	$(BIN)/presim run --gpu h100-sxm --nodes 16 --gpus-per-node 8 examples/llama_fsdp2.py

# The wheel is built of the sdist, so that both have all they need. PyTorch is not the version that the tests use.
package: $(PRESIM)  ## sdist and wheel in build/package; installs the wheel into a clean environment and runs examples there
	@rm -rf build/package && mkdir -p build/package
	@$(BIN)/python -c "from scikit_build_core.build import build_sdist; build_sdist('build/package')"
	@$(PIP) wheel --no-deps --wheel-dir build/package build/package/presim-*.tar.gz
	$(BIN)/python validation/torch_versions.py build/package/environment --versions 2.13.0 --presim build/package/presim-*.whl

test: venv frameworks shim  ## the tests, without the longest
	PRESIM_TESTS_NEED_ALL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not long'

test-long: venv frameworks shim  ## the tests that `make test` leaves out, and more examples of properties
	PRESIM_TESTS_NEED_ALL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m long
	PRESIM_TESTS_NEED_ALL=1 PRESIM_TESTS_LONG=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
		-m 'not long' tests/property tests/conformance tests/unit/serving/fast

quick: $(PRESIM)  ## the quick tests among those that need neither PyTorch nor the emulated libraries
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not torch_cuda and not slow and not long'

lint: venv  ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(PRESIM)  ## bring the style about
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(PRESIM)  ## the generated pages: CLI reference, schema of the result
	$(BIN)/python docs/generate.py

# The bundle is committed, with the digests of its sources: to install and run presim needs no Node.
app:  ## the page of `presim app`, from its sources: lint, types, tests, bundle; needs Node 20
	@cd $(WEB) && npm ci --no-fund --no-audit --silent && npm run --silent check && npm test --silent && npm run --silent build
	@sha256sum $(WEB_SOURCES) >src/presim/app/static/SOURCES

site: $(PRESIM)  ## the documentation as a site, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "to read it: $(BIN)/python -m http.server --directory build/site"

upgrade: $(PRESIM)  ## write the versions that are installed now into requirements/constraints.txt
	@{ sed -n '/^#/p' requirements/constraints.txt; \
	   $(BIN)/python -m pip freeze --all --exclude-editable | grep -viE '^(torch|triton|pip|presim|cmake|ninja)\b'; } >build/constraints.txt
	@mv build/constraints.txt requirements/constraints.txt

benchmarks: $(PRESIM) $(LIBRARIES)  ## how long whole commands take: a quiet machine, half an hour, tables into benchmarks/results
	$(BIN)/python benchmarks/every.py

clean:  ## what was built; .venv stays
	rm -rf build $(SHIM)/lib
