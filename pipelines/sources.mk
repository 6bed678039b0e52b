# Where question sets and corpora come from. A new one is a few lines here.
#   Q_FORMAT.name Q_IN.name Q_FLAGS.name   a question set, read by prep
#   L_CACHE.name L_TAR.name                its lens cache, read by lens
#   C_FORMAT.name C_IN.name                passages, read by prep
#   I_IN.name                              images to search: a Parquet of {image, img_path, text}

WORLD := data/world
WORLD_FILES := $(addprefix $(WORLD)/,train.parquet test.parquet passages.jsonl image_search.parquet lens_cached_data.jsonl images.tar.gz)

Q_FORMAT.demo-train := verl
Q_IN.demo-train     := $(WORLD)/train.parquet
Q_FLAGS.demo-train  := --split train
L_CACHE.demo-train  := $(WORLD)/lens_cached_data.jsonl
L_TAR.demo-train    := $(WORLD)/images.tar.gz

Q_FORMAT.demo := verl
Q_IN.demo     := $(WORLD)/test.parquet
Q_FLAGS.demo  := --split test
L_CACHE.demo  := $(WORLD)/lens_cached_data.jsonl
L_TAR.demo    := $(WORLD)/images.tar.gz

C_FORMAT.demo := passages
C_IN.demo     := $(WORLD)/passages.jsonl
I_IN.demo     := $(WORLD)/image_search.parquet

Q_FORMAT.livevqa := livevqa
Q_IN.livevqa     := $(SHARED)/livevqa-news/benchmark.json

Q_FORMAT.fvqa-mini := verl
Q_IN.fvqa-mini     := $(SHARED)/fvqa-mini/mini_data.parquet

Q_FORMAT.cranfield := cranfield
Q_IN.cranfield     := $(SHARED)/cranfield
Q_FLAGS.cranfield  := --what questions
C_FORMAT.cranfield := cranfield
C_IN.cranfield     := $(SHARED)/cranfield

C_FORMAT.search-r1-example := passages
C_IN.search-r1-example     := $(SHARED)/text-corpus/search-r1-example.jsonl

# The world's job writes six files and then their manifest. They hang on it by
# order alone: they are always older than it.
$(WORLD)/manifest.json: | bin/.built
	bin/world --out $(WORLD) $(WORLD_FLAGS) $(JOBFLAGS)
$(WORLD_FILES): | $(WORLD)/manifest.json

known = $(if $($(1).$(2)),,$(error no $(3) named "$(2)"; pipelines/sources.mk says which there are))
