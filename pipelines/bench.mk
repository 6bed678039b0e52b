# Benchmarks. A line "bench.NAME = PACKAGE FLAGS" is a program: it is run with
# --out build/bench/NAME.json and writes rows there (docs/bench.md).
PYTHON      ?= $(shell command -v python3)
BENCH_LARGE ?= 5000
BENCH_SECONDS ?= 10

bench.corpus  = ./corpus/bench --python "$(PYTHON)" --large $(BENCH_LARGE)
bench.encoder = ./indexer/encoder/bench --python "$(PYTHON)"
bench.indexer = ./indexer/bench --python "$(PYTHON)" $(if $(filter 0,$(BENCH_LARGE)),--rows 100000)
bench.build   = ./indexer/bench/build $(if $(filter 0,$(BENCH_LARGE)),--rows 100000)
bench.clients = ./indexer/bench/clients --index data/corpora/demo/text/index --seconds $(BENCH_SECONDS)
bench.gemm    = ./internal/gemm/bench --python "$(PYTHON)"
bench.launch  = ./internal/slurm/bench
bench.rollout = ./rollout/bench --python "$(PYTHON)"
bench.go      = ./internal/bench/gobench ./internal/gemm ./internal/vec ./internal/token ./internal/model/qwenvl ./indexer/...

BENCHES ?= $(sort $(patsubst bench.%,%,$(filter bench.%,$(.VARIABLES))))

define bench-run
	$(GO) run $(firstword $(bench.$(1))) --out build/bench/$(1).json $(wordlist 2,100,$(bench.$(1)))

endef

# One after another, whatever -j says: they measure.
.PHONY: bench
bench: export GOFLAGS := $(GOFLAGS) -tags=nodynamic$(if $(FAISS),$(comma)faiss)
bench: export CGO_ENABLED := $(if $(FAISS),1,0)
bench: $(if $(filter clients,$(BENCHES)),data/corpora/demo/text/index/manifest.json)
bench:
	$(foreach b,$(BENCHES),$(call bench-run,$b))
	$(GO) run ./internal/bench/merge --out build/bench.json $(BENCHES:%=build/bench/%.json)
