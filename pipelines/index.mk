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

data/lens/%/manifest.json: data/questions/%/manifest.json $$(L_CACHE.$$*) $$(L_TAR.$$*) | bin/.built
	bin/lens $(addprefix --cache ,$(L_CACHE.$*)) $(addprefix --tar ,$(L_TAR.$*)) --questions data/questions/$* --out $(@D) $(JOBFLAGS)

data/corpora/%/text/passages/manifest.json: $$(C_IN.$$*) | bin/.built
	$(call known,C_FORMAT,$*,corpus)bin/prep --format $(C_FORMAT.$*) --in $(C_IN.$*) --out $(@D) $(JOBFLAGS)

data/corpora/%/images/passages/manifest.json: $$(I_IN.$$*) | bin/.built
	bin/prep --format image-corpus --in $(I_IN.$*) --out $(@D) $(JOBFLAGS)

# Without ENCODER a small one is fitted to the words of the corpus.
passages = data/corpora/$(1)/text/passages/manifest.json $(if $(I_IN.$(1)),data/corpora/$(1)/images/passages/manifest.json)
encoder  = $(if $(ENCODER),$(ENCODER),data/corpora/$(1)/encoder)
data/corpora/%/encoder/manifest.json: $$(call passages,$$*) | bin/.built
	bin/encoder $(foreach p,$(call passages,$*),--passages $(dir $(p))) --out $(@D) $(JOBFLAGS)

define vectors_and_index
data/corpora/%/$(1)/vectors/manifest.json: data/corpora/%/$(1)/passages/manifest.json $$$$(if $$$$(ENCODER),$$$$(ENCODER)/config.json,data/corpora/$$$$*/encoder/manifest.json) | bin/.built
	bin/embed --encoder $$(call encoder,$$*) --passages data/corpora/$$*/$(1)/passages --out $$(@D) --shards $(SHARDS) $(JOBFLAGS)

data/corpora/%/$(1)/index/manifest.json: data/corpora/%/$(1)/vectors/manifest.json data/corpora/%/$(1)/passages/manifest.json | bin/.built
	bin/index --vectors data/corpora/$$*/$(1)/vectors --passages data/corpora/$$*/$(1)/passages --out $$(@D) --shards $(SHARDS) $(JOBFLAGS)
endef
$(eval $(call vectors_and_index,text))
$(eval $(call vectors_and_index,images))
