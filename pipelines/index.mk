# From raw files to questions, lens caches and indices.
#   data/questions/NAME        questions and their images
#   data/lens/NAME             lens cache and its images
#   data/corpora/NAME/text     passages, vectors, index;  …/images the same for image search
.PHONY: data lens embed index

questions = data/questions/$(1)/manifest.json
lensof    = data/lens/$(1)/manifest.json
indices   = data/corpora/$(1)/text/index/manifest.json $(if $(I_IN.$(1)),data/corpora/$(1)/images/index/manifest.json)
limit     = $(if $(LIMIT),--limit $(LIMIT))

data:  $(call questions,$(TRAINSET)) $(call questions,$(BENCH)) $(call lensof,$(TRAINSET)) $(call lensof,$(BENCH))
lens:  $(call lensof,$(TRAINSET)) $(call lensof,$(BENCH))
index: $(call indices,$(CORPUS))
embed: $(patsubst %/index/manifest.json,%/vectors/manifest.json,$(call indices,$(CORPUS)))

data/questions/%/manifest.json: $$(Q_IN.$$*) | bin/.built
	$(call known,Q_FORMAT,$*,question set)bin/prep --format $(Q_FORMAT.$*) --in $(Q_IN.$*) --out $(@D) $(Q_FLAGS.$*) $(JOBFLAGS)

# A balanced set has the cache of the set that it was drawn from.
drawnfrom = $(patsubst %-balanced,%,$(1))
data/lens/%/manifest.json: data/questions/%/manifest.json $$(L_CACHE.$$(call drawnfrom,$$*)) $$(L_TAR.$$(call drawnfrom,$$*)) | bin/.built
	bin/lens $(addprefix --cache ,$(L_CACHE.$(call drawnfrom,$*))) $(addprefix --tar ,$(L_TAR.$(call drawnfrom,$*))) --questions data/questions/$* --out $(@D) $(JOBFLAGS)

data/corpora/%/text/passages/manifest.json: $$(C_IN.$$*) | bin/.built
	$(call known,C_FORMAT,$*,corpus)bin/prep --format $(C_FORMAT.$*) --in $(C_IN.$*) --out $(@D) $(JOBFLAGS)

data/corpora/%/images/passages/manifest.json: $$(I_IN.$$*) | bin/.built
	bin/prep --format image-corpus --in $(I_IN.$*) --out $(@D) $(JOBFLAGS)

# Without ENCODER and ENCODER_URL a small one is fitted to the words of the corpus; it
# stays on the CPU.
passages = data/corpora/$(1)/text/passages/manifest.json $(if $(I_IN.$(1)),data/corpora/$(1)/images/passages/manifest.json)
encoder  = $(if $(ENCODER_URL),$(ENCODER_URL) $(addprefix --encoder-model ,$(ENCODER_MODEL)) $(addprefix --encoder-images ,$(ENCODER_IMAGES)),$(or $(ENCODER),data/corpora/$(1)/encoder))
computed = $(if $(ENCODER_URL),,$(if $(ENCODER),$(addprefix --device ,$(DEVICE))))
encoded  = $(if $(ENCODER_URL),,$(if $(ENCODER),$(ENCODER)/config.json,data/corpora/$(1)/encoder/manifest.json)) data/corpora/$(1)/.settings
data/corpora/%/encoder/manifest.json: $$(call passages,$$*) | bin/.built
	$(launch)bin/encoder $(foreach p,$(call passages,$*),--passages $(dir $(p))) --out $(@D) $(JOBFLAGS)

# What the vectors depend on beside files, in a file of its own each time: copies of a
# run may be hard links. A job whose part of it is unchanged sees
# that and does nothing.
made_with := $(ENCODER) $(ENCODER_URL) $(ENCODER_MODEL) $(ENCODER_IMAGES) $(VECTORS) $(EMBED_FLAGS) $(INDEX_FLAGS)$(if $(computed), $(computed))
noted      = mkdir -p $(1) && { echo '$(2)' | cmp -s - $(1)/.settings || { rm -f $(1)/.settings; echo '$(2)' > $(1)/.settings; }; }
playing_goals := demo rollout judge train loop eval nightly plan curate lessons synth runs/%
ifneq ($(and $(CORPUS),$(filter embed index $(playing_goals) data/corpora/$(CORPUS)/%,$(MAKECMDGOALS))),)
# Written while make reads this file, so that make -n sees the truth.
$(shell $(call noted,data/corpora/$(CORPUS),$(made_with)))
endif
data/corpora/%/.settings:
	@$(call noted,$(@D),$(made_with))
.PRECIOUS: data/corpora/%/.settings

define vectors_and_index
data/corpora/%/$(1)/vectors/manifest.json: data/corpora/%/$(1)/passages/manifest.json $$$$(call encoded,$$$$*) | bin/.built
	$$(launch)bin/embed --encoder $$(call encoder,$$*) $(computed) --passages data/corpora/$$*/$(1)/passages --out $$(@D) $(shards) --format $(VECTORS) $(EMBED_FLAGS) $(JOBFLAGS)

data/corpora/%/$(1)/index/manifest.json: data/corpora/%/$(1)/vectors/manifest.json data/corpora/%/$(1)/passages/manifest.json data/corpora/%/.settings | bin/.built
	$$(launch)bin/index --vectors data/corpora/$$*/$(1)/vectors --passages data/corpora/$$*/$(1)/passages --out $$(@D) $(shards) --format $(if $(filter fp16,$(VECTORS)),fp16,flat) $(INDEX_FLAGS) $(JOBFLAGS)
endef
$(eval $(call vectors_and_index,text))
$(eval $(call vectors_and_index,images))
