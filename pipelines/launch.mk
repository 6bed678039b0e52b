# How a stage is made: by its job alone, or by many processes of it.
#   WORKERS=4          processes of this machine, as its CPUs, memory and GPUs allow
#   LAUNCHER=slurm     tasks of a Slurm cluster (docs/slurm.md)
#   POLICY_SERVERS=2   the policy is served by so many servers of their own while it plays
#   JUDGE=DIR          the judge is a model in that folder, served by JUDGE_SERVERS while it judges
LAUNCHER      ?= local
WORKERS       ?=
SBATCH_FLAGS  ?=
LAUNCHFLAGS   ?=
POLICY_SERVERS ?=
JUDGE         ?=
JUDGE_SERVERS ?= 1

# The one place that decides the number of shards.
shards = --shards $(SHARDS)

# $(call launch,FLAGS) stands before the command line of a job. Without any of the
# variables above it is nothing, and the job makes its shards itself.
launched = $(filter-out local,$(LAUNCHER))$(WORKERS)$(1)
launch   = $(if $(launched),bin/launch --launcher $(LAUNCHER) --recipe $(RECIPE) $(foreach s,$(SET),--set $(s)) $(addprefix --workers ,$(WORKERS)) $(addprefix --sbatch=,$(SBATCH_FLAGS)) $(LAUNCHFLAGS) $(1) -- )

# Servers of the stage, and how the job is told.
policyservers = $(if $(POLICY_SERVERS),$(if $(POLICY_URL),,--serve 'policy=$(POLICY_SERVERS):bin/serve --policy $(call policydir,$(1))'))
policyserved  = $(if $(POLICY_SERVERS),$(if $(POLICY_URL),,--policy-url @policy))
judgeservers  = $(if $(JUDGE),--serve 'judge=$(JUDGE_SERVERS):bin/serve --policy $(JUDGE) --name judge')
judgeserved   = $(if $(JUDGE),--judge-url @judge --judge-model judge)
