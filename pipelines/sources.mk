# Where training questions and corpora come from. A new one is a few lines here.
# Benchmarks come from pipelines/benchmarks: see below.
#   Q_FORMAT.name Q_IN.name Q_FLAGS.name   a question set, read by prep; a format of a recipe's mappings
#                                          needs Q_FLAGS.name := --recipe RECIPE
#   L_CACHE.name L_TAR.name                its lens cache, read by lens
#   C_FORMAT.name C_IN.name                passages, read by prep
#   I_IN.name                              images to search: a Parquet of {image, img_path, text}

WORLD := data/world
WORLD_FILES := $(addprefix $(WORLD)/,train.parquet test.parquet passages.jsonl image_search.parquet lens_cached_data.jsonl images.tar.gz)

# The same world with test questions in another proportion (benchmark demo-mix).
$(WORLD)-mix/manifest.json: | bin/.built
	bin/world --out $(@D) --free 0.32 --test-questions 500 $(WORLD_FLAGS) $(JOBFLAGS)
$(addprefix $(WORLD)-mix/,test.parquet lens_cached_data.jsonl images.tar.gz): | $(WORLD)-mix/manifest.json ;

Q_FORMAT.demo-train := verl
Q_IN.demo-train     := $(WORLD)/train.parquet
Q_FLAGS.demo-train  := --split train
L_CACHE.demo-train  := $(WORLD)/lens_cached_data.jsonl
L_TAR.demo-train    := $(WORLD)/images.tar.gz

C_FORMAT.demo := passages
C_IN.demo     := $(WORLD)/passages.jsonl
I_IN.demo     := $(WORLD)/image_search.parquet

Q_FORMAT.fvqa-mini := verl
Q_IN.fvqa-mini     := $(SHARED)/fvqa-mini/mini_data.parquet

Q_FORMAT.cranfield := cranfield
Q_IN.cranfield     := $(SHARED)/cranfield
Q_FLAGS.cranfield  := --what questions
C_FORMAT.cranfield := cranfield
C_IN.cranfield     := $(SHARED)/cranfield

C_FORMAT.search-r1-example := passages
C_IN.search-r1-example     := $(SHARED)/text-corpus/search-r1-example.jsonl

# Of a benchmark's file these lines are read; the jobs read the rest of it.
BENCHMARKS := $(patsubst pipelines/benchmarks/%.yaml,%,$(wildcard pipelines/benchmarks/*.yaml))
$(shell mkdir -p build && awk '{ sub(/\r$$/, "") } \
	match($$0, /^(format|in|flags|lens_cache|lens_tar): +/) { \
		n = split(FILENAME, path, "/"); name = path[n]; sub(/\.yaml$$/, "", name); key = $$1; \
		key = key == "format:" ? "Q_FORMAT" : key == "in:" ? "Q_IN" : key == "flags:" ? "Q_FLAGS" : key == "lens_cache:" ? "L_CACHE" : "L_TAR"; \
		print key "." name " := " substr($$0, RLENGTH + 1) }' pipelines/benchmarks/*.yaml > build/benchmarks.mk)
include build/benchmarks.mk

# Their files are the user's to fetch.
$(RAW)/%:
	@echo "make: $@ is not there, and nothing is downloaded. It comes from:"; sed -n 's/^from: */  /p' $$(grep -lxF 'in: $$(RAW)/$*' pipelines/benchmarks/*.yaml); exit 2

# The world's job writes six files and then their manifest. They hang on it by
# order alone: they are always older than it.
$(WORLD)/manifest.json: | bin/.built
	bin/world --out $(WORLD) $(WORLD_FLAGS) $(JOBFLAGS)
$(WORLD_FILES): | $(WORLD)/manifest.json

known = $(if $($(1).$(2)),,$(error no $(3) named "$(2)"; pipelines/sources.mk says which there are))
