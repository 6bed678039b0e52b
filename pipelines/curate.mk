# Data from rollouts. The policy plays TRAINSET several times a question: questions
# are labelled by what it searched, and a balanced set is drawn.
#   data/curated/TRAINSET/{rollouts,judged}      data/questions/TRAINSET-balanced
#   runs/RUN/epoch-e/lessons                     trajectories to learn from
# Data from models: questions about CONCEPTS, by the recipe SYNTH; PIPELINE=vision-deepresearch
# takes synth-vision, whose questions begin in an image and end several pages away.
#   data/questions/NAME                          NAME=synth
#   data/trajectories/NAME/{rollouts,judged,lessons}  with TEACHER_URL: trajectories to learn from
.PHONY: curate lessons synth card

B        := data/curated/$(TRAINSET)
balanced := data/questions/$(TRAINSET)-balanced/manifest.json

curate:  $(balanced)
lessons: $(R)/epoch-$(EPOCH)/lessons/manifest.json

# Only for the goal curate: whoever trains on the drawn set asks no policy again.
ifneq ($(filter curate,$(MAKECMDGOALS)),)
$(B)/rollouts/manifest.json: $(call playingdep,$(TRAINSET)) $(call playerdep,$(evalepoch)) $(recipes) | bin/.built
	$(call launch,$(call policyservers,$(evalepoch)))bin/rollout $(flags) --set sampling.eval.temperature=1 $(call player,$(evalepoch)) $(call policyserved,$(evalepoch)) $(call playing,$(TRAINSET)) --out $(@D) --run $(RUN) --epoch $(evalepoch) --mode eval --samples $(TRIES) $(shards) $(limit)

$(B)/judged/manifest.json: $(B)/rollouts/manifest.json $(recipes) | bin/.built
	$(call launch,$(judgeservers))bin/judge $(flags) --rollouts $(B)/rollouts --out $(@D) $(judging) $(shards)

$(balanced): $(B)/judged/manifest.json $(B)/rollouts/manifest.json $(call questions,$(TRAINSET)) $(recipes) | bin/.built
	bin/curate $(flags) --set curate.rollouts=$(TRIES) --questions data/questions/$(TRAINSET) --rollouts $(B)/rollouts --judged $(B)/judged --out $(@D)
else
data/questions/%-balanced/manifest.json:
	@echo "make: there are no $*-balanced questions yet: make curate TRAINSET=$*" >&2; exit 2
endif

define lesson_rules
$(R)/epoch-$(1)/lessons/manifest.json: $(R)/epoch-$(1)/rollouts/manifest.json $(R)/epoch-$(1)/judged/manifest.json $(recipes) | bin/.built
	$$(launch)bin/lessons $$(flags) --rollouts $(R)/epoch-$(1)/rollouts --judged $(R)/epoch-$(1)/judged --images data/questions/$(TRAINSET)/images --out $$(@D) $(shards)
endef
$(eval $(call lesson_rules,$(EPOCH)))
ifeq ($(EPOCH),0)
$(R)/epoch-0/judged/manifest.json: $(R)/epoch-0/rollouts/manifest.json $(recipes) | bin/.built
	$(call launch,$(judgeservers))bin/judge $(flags) --rollouts $(R)/epoch-0/rollouts --out $(@D) $(judging) $(shards)
endif

# Pages and images of CORPUS are searched; AGAINST names question sets that must stay unseen.
synthesised := data/questions/$(NAME)/manifest.json
synth: $(synthesised)
ifneq ($(filter synth,$(MAKECMDGOALS)),)
$(synthesised): $(CONCEPTS) $(if $(CORPUS),$(call indices,$(CORPUS))) $(foreach a,$(AGAINST),$(call questions,$(a))) $(addsuffix /manifest.json,$(GALLERY)) $(wildcard pipelines/recipes/*.yaml) | bin/.built
	$(if $(CONCEPTS),,$(error CONCEPTS=FILE is needed: what questions are made about))bin/synth --recipe $(SYNTH) $(foreach s,$(SET),--set $(s)) $(JOBFLAGS) --concepts $(CONCEPTS) --out $(@D) --cache $(CACHE) \
	  $(if $(CORPUS),--text-index data/corpora/$(CORPUS)/text/index $(if $(I_IN.$(CORPUS)),--image-index data/corpora/$(CORPUS)/images/index)) \
	  $(addprefix --gallery ,$(gallery)) $(addprefix --publish ,$(PUBLISH)) $(PUBLISH_FLAGS) $(addprefix --record ,$(RECORD)) $(addprefix --replay ,$(REPLAY)) \
	  $(foreach a,$(AGAINST),--against data/questions/$(a)) $(addprefix --writer-url ,$(WRITER_URL)) $(addprefix --writer-model ,$(WRITER_MODEL)) \
	  $(addprefix --checker-url ,$(CHECKER_URL)) $(addprefix --checker-model ,$(CHECKER_MODEL)) $(addprefix --max-cost ,$(MAX_COST)) $(limit)
endif

# The questions' looks, gone on with by a text model, judged, the right ones chosen; also
# as ShareGPT and ms-swift JSON lines. With TEACHER_URL, pipeline vision-deepresearch.
T       := data/trajectories/$(NAME)
teach    = --recipe vision-deepresearch-bridge $(foreach s,$(SET),--set $(s)) $(JOBFLAGS)
lessoned = $(and $(filter vision-deepresearch,$(PIPELINE)),$(TEACHER_URL),$(T)/lessons/manifest.json)
synth: $(lessoned)
ifneq ($(and $(filter synth,$(MAKECMDGOALS)),$(lessoned)),)
$(T)/rollouts/manifest.json: $(synthesised) | bin/.built
	$(launch)bin/rollout $(teach) --policy-url $(TEACHER_URL) $(addprefix --policy-model ,$(TEACHER_MODEL)) --questions data/questions/$(NAME) $(if $(CORPUS),--text-index data/corpora/$(CORPUS)/text/index --pages data/corpora/$(CORPUS)/text/passages) \
	  $(addprefix --pages ,$(PAGES)) --cache $(CACHE) $(addprefix --max-cost ,$(MAX_COST)) --out $(@D) --run $(NAME) --mode eval $(shards) $(limit)
$(T)/judged/manifest.json: $(T)/rollouts/manifest.json | bin/.built
	$(launch)bin/judge $(teach) --rollouts $(T)/rollouts --out $(@D) $(judging) $(shards)
$(T)/lessons/manifest.json: $(T)/judged/manifest.json $(T)/rollouts/manifest.json | bin/.built
	$(launch)bin/lessons --recipe $(SYNTH) $(foreach s,$(SET),--set $(s)) $(JOBFLAGS) --rollouts $(T)/rollouts --judged $(T)/judged --images data/questions/$(NAME)/images --out $(@D) $(shards)
endif

card: | bin/.built
	bin/card --in data/questions/$(NAME) $(addprefix --lessons ,$(patsubst %/manifest.json,%,$(wildcard data/trajectories/$(NAME)/lessons/manifest.json))) --out data/questions/$(NAME).card.html --page data/questions/$(NAME).label.html $(addprefix --labels ,$(LABELS)) $(JOBFLAGS)
