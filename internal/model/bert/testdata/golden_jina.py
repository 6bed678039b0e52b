# Writes a tiny random jina-embeddings-v3 and what transformers computes with it in
# float64: python golden_jina.py FOLDER (transformers 5.24.0, torch 2.11.0).
#   jina/  as published: model_type xlm-roberta, adapters as torch parametrizations, float16
#   hf/    as transformers saves it: model_type jina_embeddings_v3, no adapters, bfloat16
#   jina.json  {"seqs": [[ids]], "vectors": {"": [[…]], "retrieval.query": …}}; one sequence holds a padding token
# transformers' model has no adapters: it is given the weights that they add up to.
import json, os, sys
import torch
from safetensors.torch import save_file
from transformers import JinaEmbeddingsV3Config, JinaEmbeddingsV3Model

out = sys.argv[1]
torch.manual_seed(31)
g = torch.Generator().manual_seed(32)
size = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=40,
            type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5, hidden_act="gelu")
tasks, rank, alpha = ["retrieval.query", "retrieval.passage"], 2, 1
config = JinaEmbeddingsV3Config(initializer_range=0.3, **size)
model = JinaEmbeddingsV3Model(config, add_pooling_layer=False)


def exact(x):  # in float16 and in bfloat16
    return (x * 128).round().clamp(-255, 255) / 128


with torch.no_grad():
    for n, p in model.named_parameters():
        p.copy_(exact(p + torch.randn(p.shape, generator=g) * 0.2 if p.ndim == 1 else p))
os.makedirs(os.path.join(out, "jina"), exist_ok=True)
model.to(torch.bfloat16).save_pretrained(os.path.join(out, "hf"))
model = JinaEmbeddingsV3Model.from_pretrained(os.path.join(out, "hf"), dtype=torch.float64, attn_implementation="eager", add_pooling_layer=False).eval()
base = {k: v.clone() for k, v in model.state_dict().items()}

# The published names; the projections of query, key and value are one matrix there.
names = {}
for k in base:
    n = k.removesuffix(".weight").removesuffix(".bias")
    new = (n.replace("embeddings.LayerNorm", "emb_ln").replace("layers.", "encoder.layers.").replace("self_attn.o_proj", "mixer.out_proj")
           .replace("post_attention_layernorm", "norm1").replace("post_mlp_layernorm", "norm2"))
    names[k] = "roberta." + new + k[len(n):]
tensors, merged = {}, {t: dict(base) for t in tasks}


def published(name, weight, embedding, assign):
    """Adapters for a weight [rows, cols]; assign(task, what is added)."""
    rows, cols = weight.shape
    n = len(tasks)
    left, right = (exact(torch.randn(n, rows, rank, generator=g) * 0.3), exact(torch.randn(n, rank, cols, generator=g) * 0.3))
    for i, t in enumerate(tasks):
        assign(t, (left[i].double() @ right[i].double()) * alpha / rank)
    a, b = (left, right) if embedding else (right, left)
    at = name.removesuffix(".weight") + ".parametrizations.weight."
    tensors.update({at + "original": weight, at + "0.lora_A": a, at + "0.lora_B": b})


for k, v in base.items():
    if "self_attn.k_proj" in k or "self_attn.v_proj" in k:
        continue
    if "self_attn.q_proj" in k:
        three = [k.replace("q_proj", x) for x in ("q_proj", "k_proj", "v_proj")]
        joined, name = torch.cat([base[x] for x in three]), names[k].replace("self_attn.q_proj", "mixer.Wqkv")
        if joined.ndim == 1:
            tensors[name] = joined
            continue

        def assign(t, d, three=three):
            for x, part in zip(three, d.chunk(3)):
                merged[t][x] = base[x] + part

        published(name, joined, False, assign)
    elif v.ndim == 2:
        published(names[k], v, "embeddings" in k, lambda t, d, k=k: merged[t].__setitem__(k, base[k] + d))
    else:
        tensors[names[k]] = v
save_file({k: v.to(torch.float16).contiguous() for k, v in tensors.items()}, os.path.join(out, "jina", "model.safetensors"))
with open(os.path.join(out, "jina", "config.json"), "w") as f:
    json.dump({"model_type": "xlm-roberta", **size, "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "lora_adaptations": tasks, "lora_rank": rank,
               "lora_alpha": alpha, "task_instructions": {"retrieval.query": "Represent the query for retrieving evidence documents: ",
                                                          "retrieval.passage": "Represent the document for retrieval: "}, "matryoshka_dimensions": [8, 16, 32]}, f, indent=1)
    f.write("\n")

seqs = [torch.randint(2, 60, (n,), generator=g).tolist() for n in [1, 2, 5, 38, 17, 3]]
seqs[4][5] = 1
vectors = {}
with torch.no_grad():
    for task, state in {"": base, **merged}.items():
        model.load_state_dict(state)
        vectors[task] = []
        for s in seqs:
            ids = torch.tensor([s])
            mask = (ids != 1).long()
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state[0]
            mean = (hidden * mask[0, :, None]).sum(0) / mask.sum()
            vectors[task].append([round(x, 9) for x in torch.nn.functional.normalize(mean, dim=0).tolist()])
with open(os.path.join(out, "jina.json"), "w") as f:
    json.dump({"seqs": seqs, "vectors": vectors}, f, separators=(",", ":"))
    f.write("\n")
