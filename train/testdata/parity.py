"""Gives the same rows to verl's and TRL's own loss code and writes what they make of them to parity.json.

    WHEELS=folder OUT=somewhere python3 parity.py trl verl
    WHEELS=folder OUT=somewhere FROM=parity.json python3 parity.py verl      # the same rows, beside what FROM holds

The folder holds the wheels of verl and TRL (and datasets, dill, multiprocess, which TRL imports); versions are in
parity.json. Only the functions that compute losses are run: verl's with stand-ins for what they import beside torch, TRL's
GRPOTrainer._compute_loss with a stand-in for the trainer. Log-probs are float32 numbers in float64 arithmetic. Every entry
of cases holds its settings in the recipe's words, the loss, its gradient by the new log-probs, and metrics.
"""
import collections
import glob
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import traceback
import types

import numpy as np
import torch

OUT, WHEELS = os.environ.get("OUT", "."), os.environ.get("WHEELS", ".whl")
torch.manual_seed(7)
B, T = 6, 9


def f32(x):
    return x.float().double()


new = f32(-2.5 * torch.rand(B, T))
old = f32(new + 0.35 * torch.randn(B, T))
sampled = f32(old + 0.25 * torch.randn(B, T))
ref = f32(new + 0.8 * torch.randn(B, T))
old[1, 2] = f32(new[1, 2] - 1.4)  # dual clip
sampled[2, 3] = f32(old[2, 3] - 1.2)
ref[3, 0] = f32(new[3, 0] + 4)  # beyond the clamp of k3
lengths = [9, 7, 9, 4, 1, 6]
mask = torch.zeros(B, T).double()
for i, n in enumerate(lengths):
    mask[i, :n] = 1
mask[0, 3:5] = 0  # an observation
mask[2, 1] = 0
rewards = torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0, 0.0]).double()
groups = ["a", "a", "a", "b", "b", "b"]
advantages = f32(torch.tensor([1.2, -0.9, 0.4, 1.1, -0.6, -0.7]))
report = dict(versions={}, rewards=rewards.tolist(), groups=groups, advantages=advantages.tolist(),
              mask=mask.int().tolist(), new=new.tolist(), old=old.tolist(), sampled=sampled.tolist(), ref=ref.tolist(),
              cases=[], estimates=[], corrections=[])

if os.environ.get("FROM"):
    with open(os.environ["FROM"]) as f:
        before = json.load(f)
    new, old, sampled, ref = (torch.tensor(before[k]).double() for k in ("new", "old", "sampled", "ref"))
    report = dict(before, cases=[c for c in before["cases"] if c["source"] not in sys.argv], estimates=[], corrections=[])


def keep(source, settings, value, lp, metrics=None):
    value.backward()
    report["cases"].append(dict(source=source, settings=settings, loss=value.item(), slopes=lp.grad.tolist(),
                                norm=lp.grad.norm().item(), metrics=metrics or {}))


REAL = {"verl.trainer.ppo.core_algos", "verl.trainer.ppo.rollout_corr_helper", "verl.utils.torch_functional"}
PACKAGES = {"verl", "verl.trainer", "verl.trainer.ppo", "verl.utils"}


class Standin(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "deprecated":
            made = lambda *a, **k: (lambda f: f)
        elif name == "ActorConfig":
            made = Settings
        else:
            made = type(name, (), {"from_dict": staticmethod(lambda tensors: types.SimpleNamespace(batch=tensors))})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top == "verl" and name not in REAL or top in ("omegaconf", "tensordict", "ray", "transformers"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        m = Standin(spec.name)
        if spec.name in PACKAGES:
            m.__path__ = [os.path.join(glob.glob(f"{WHEELS}/verl-*.whl")[0], *spec.name.split("."))]
        return m

    def exec_module(self, module):
        pass


class Settings(types.SimpleNamespace):
    def get(self, key, default=None):
        return getattr(self, key, default)


def verl():
    sys.meta_path.insert(0, Finder())
    wheel = glob.glob(f"{WHEELS}/verl-*.whl")[0]
    report["versions"]["verl"] = os.path.basename(wheel).split("-")[1]
    algos = importlib.import_module("verl.trainer.ppo.core_algos")
    corr = importlib.import_module("verl.trainer.ppo.rollout_corr_helper")

    def policy(loss, agg, low=0.2, high=0.28, weights=None, m=mask, **settings):
        lp = new.clone().requires_grad_()
        info = dict(loss_scale_factor=8) if agg == "seq-mean-token-sum-norm" else {}
        cfg = Settings(clip_ratio=0.2, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=20.0 if loss == "dppo_tv" else 3.0, global_batch_info=info,
                       tau_pos=1.0, tau_neg=1.05)
        cfg.policy_loss = cfg
        value, metrics = algos.get_policy_loss_fn(loss)(
            old_log_prob=old, log_prob=lp, advantages=advantages[:, None].expand(B, T), response_mask=m, loss_agg_mode=agg,
            config=cfg, rollout_is_weights=weights)
        keep("verl", dict(loss={"vanilla": "ppo", "dppo_tv": "dppo"}.get(loss, loss), aggregation=agg, clip_low=low, clip_high=high,
                          dual_clip=3.0 if loss == "vanilla" else 0, norm_tokens=info.get("loss_scale_factor", 0), **settings),
             value, lp, metrics)

    for agg in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        policy("vanilla", agg)
    policy("gspo", "seq-mean-token-mean", 3e-4, 4e-4)
    policy("gspo", "seq-mean-token-mean", 0.1, 0.05)
    policy("cispo", "token-mean")
    policy("sapo", "seq-mean-token-mean")
    # Its value is that of the ratio, held, times the log-prob: only the gradient is the same as with the ratio itself.
    policy("dppo_tv", "token-mean", 0.02, 0.03, slopes_only=True)
    policy("dppo_tv", "seq-mean-token-mean", 0.2, 0.2, slopes_only=True)
    for how, kw in [
        ("token", dict(rollout_is="token", rollout_is_threshold=2.0)),
        ("icepop", dict(rollout_is="token", rollout_is_threshold="0.7_1.3")),
        ("sequence", dict(rollout_is="sequence", rollout_is_threshold=1.5)),
        ("token-norm", dict(rollout_is="token", rollout_is_threshold=2.0, rollout_is_batch_normalize=True)),
        ("token-k1", dict(rollout_rs="token_k1", rollout_rs_threshold="0.7_1.3")),
        ("token-k3", dict(rollout_rs="token_k3", rollout_rs_threshold="0.05")),
        ("seq-sum-k1", dict(rollout_rs="seq_sum_k1", rollout_rs_threshold="0.6_1.6")),
        ("seq-mean-k1", dict(rollout_rs="seq_mean_k1", rollout_rs_threshold="0.9_1.1")),
        ("seq-mean-k3", dict(rollout_rs="seq_mean_k3", rollout_rs_threshold="0.04")),
        ("seq-max-k2", dict(rollout_rs="seq_max_k2", rollout_rs_threshold="0.1")),
    ]:
        try:
            proto, m, metrics = corr.compute_rollout_correction_and_rejection_mask(old, sampled, mask, **kw)
            w = None if proto is None else proto.batch["rollout_is_weights"]
            report["corrections"].append(dict(how=how, settings=kw, weights=None if w is None else (w * mask).tolist(),
                                              mask=m.int().tolist(), metrics=metrics))
            policy("vanilla", "token-mean", weights=w, m=m, correction=how)
        except Exception:
            traceback.print_exc()
    for name, ours in [("kl", "k1"), ("mse", "k2"), ("low_var_kl", "k3"), ("low_var_kl+", "k3+")]:
        lp = new.clone().requires_grad_()
        k = algos.kl_penalty(lp, ref, name)
        keep("verl", dict(kl_only=ours, aggregation="token-mean"), algos.agg_loss(k, mask, "token-mean"), lp)
    scores = torch.zeros(B, T).double()
    scores[:, 0] = rewards
    for method, kw in [("grpo", {}), ("dr_grpo", dict(norm_adv_by_std_in_grpo=False))]:
        a, _ = algos.compute_grpo_outcome_advantage(scores, mask, np.array(groups), **kw)
        report["estimates"].append(dict(source="verl", method=method, eps=1e-6, values=a[:, 0].tolist()))
    a, _ = algos.compute_rloo_outcome_advantage(scores, mask, np.array(groups))
    report["estimates"].append(dict(source="verl", method="rloo", eps=0, values=a[:, 0].tolist()))


def trl():
    import trl
    from trl.trainer.grpo_trainer import GRPOTrainer
    report["versions"]["trl"] = trl.__version__

    def loss(kind, agg, low=0.2, high=0.28, level="token", beta=0.0, delta=None, bias=False, weights=None, ours="ppo", **settings):
        lp = new.clone().requires_grad_()
        me = types.SimpleNamespace(
            aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level=level,
            beta=beta, loss_type=kind, epsilon_low=low, epsilon_high=high, use_vllm=weights is not None,
            vllm_importance_sampling_correction=True, current_gradient_accumulation_steps=1, max_completion_length=8,
            _entropy_bonus_enabled=False, _metrics=collections.defaultdict(lambda: collections.defaultdict(list)),
            model=types.SimpleNamespace(training=True),
            args=types.SimpleNamespace(use_bias_correction_kl=bias, delta=delta, steps_per_generation=1,
                                       sapo_temperature_pos=1.0, sapo_temperature_neg=1.05),
            accelerator=types.SimpleNamespace(num_processes=1, gather=lambda x: x, gather_for_metrics=lambda x: x,
                                              reduce=lambda x, reduction: x),
            _get_per_token_logps_and_entropies=lambda *a, **k: (lp, torch.zeros(B, T).double(), None))
        inputs = dict(prompt_ids=torch.zeros(B, 1).long(), prompt_mask=torch.ones(B, 1), completion_ids=torch.zeros(B, T).long(),
                      completion_mask=mask, advantages=advantages, old_per_token_logps=old, ref_per_token_logps=ref,
                      num_items_in_batch=mask.sum())
        if weights is not None:
            inputs["importance_sampling_ratio"] = weights
        value = GRPOTrainer._compute_loss(me, None, inputs)
        metrics = {k: v[0] for k, v in me._metrics["train"].items()}
        keep("trl", dict(loss=ours, aggregation=agg, clip_low=low, clip_high=high, dual_clip=delta or 0, kl=beta,
                         kl_estimator="k3", kl_importance=bias, norm_tokens=8 if kind == "dr_grpo" else 0, **settings), value, lp, metrics)

    loss("dapo", "token-mean")
    loss("grpo", "seq-mean-token-mean")
    loss("luspo", "seq-mean-token-sum")
    loss("dr_grpo", "seq-mean-token-sum-norm")
    loss("dapo", "token-mean", delta=3.0)
    loss("grpo", "seq-mean-token-mean", 3e-4, 4e-4, level="sequence", ours="gspo")
    loss("luspo", "seq-mean-token-sum", 0.1, 0.05, level="sequence", ours="gspo", luspo=True)
    loss("sapo", "seq-mean-token-mean", ours="sapo")
    loss("cispo", "token-mean", 1.0, 1.25, ours="cispo", absolute=True)
    loss("dapo", "token-mean", weights=f32(torch.exp(old - sampled)).clamp(max=2.0), correction="token")
    global ref
    kept = ref
    ref = f32(new + 0.3 * (kept - new).clamp(-2, 2))  # within every clamp: TRL has none
    report["near_ref"] = ref.tolist()
    loss("dapo", "token-mean", beta=0.05, near_ref=True)
    loss("dapo", "token-mean", beta=0.05, bias=True, near_ref=True)
    ref = kept


for part in (trl, verl):  # verl's stand-ins would be in TRL's way
    try:
        if part.__name__ in sys.argv:
            part()
            report["versions"][part.__name__ + "_torch"] = torch.__version__
    except Exception:
        traceback.print_exc()
with open(f"{OUT}/parity.json", "w") as f:
    json.dump(report, f)
print(report["versions"], len(report["cases"]), "cases", len(report["corrections"]), "corrections", [c["settings"] for c in report["cases"]])
