# Writes a tiny random Jina-CLIP and what public implementations compute with it:
#   python golden.py FOLDER TOKENIZER.json (torch 2.11.0, torchvision 0.26.0, transformers 5.24.0, timm 1.0.31, tokenizers 0.23.3, Pillow 11.3.0)
#   clip/  a jina_clip folder as published (without a tokenizer), bfloat16
#   clip.json  {"images": [{"png", "vector"}], "texts": [{"text", "ids", "vector"}]}, vectors not normalised
# The vision tower is timm's Eva, prepared for by torchvision; the text tower is
# transformers' jina_embeddings_v3 with the adapter added to its weights.
import base64, io, json, math, os, sys
import timm.models.eva, tokenizers, torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import transforms
from transformers import JinaEmbeddingsV3Config, JinaEmbeddingsV3Model

out, tokenizer = sys.argv[1], tokenizers.Tokenizer.from_file(sys.argv[2])
g = torch.Generator().manual_seed(41)
DIM, IMAGE, PATCH, LAYERS, HEAD, RATIO, ROPE = 16, 22, 4, 2, 8, 2.6667, 3
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def exact(x):  # in bfloat16
    return (x * 128).round().clamp(-255, 255) / 128


def randomise(model):
    with torch.no_grad():
        for n, p in model.named_parameters():
            centre = 1 if n.endswith("weight") and p.ndim == 1 else 0
            p.copy_(exact(centre + torch.randn(p.shape, generator=g) * (0.2 if p.ndim == 1 else 1.5 / math.sqrt(p[0].numel()))))
    return model.double().eval()


vision = randomise(timm.models.eva.Eva(
    img_size=IMAGE, patch_size=PATCH, embed_dim=DIM, depth=LAYERS, num_heads=DIM // HEAD, mlp_ratio=RATIO, qkv_fused=False, swiglu_mlp=True, scale_mlp=True,
    scale_attn_inner=True, use_rot_pos_emb=True, ref_feat_shape=(ROPE, ROPE), global_pool="token", num_classes=0))
text_size = dict(vocab_size=tokenizer.get_vocab_size(), hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=32, max_position_embeddings=80)
text = randomise(JinaEmbeddingsV3Model(JinaEmbeddingsV3Config(attn_implementation="eager", **text_size), add_pooling_layer=False))

tensors = {"logit_scale": torch.tensor(2.6592)}
for k, v in vision.state_dict().items():
    for a, b in (("q_proj.bias", "q_bias"), ("v_proj.bias", "v_bias"), ("attn.norm", "attn.inner_attn_ln"), ("mlp.norm", "mlp.ffn_ln"), ("fc1_g", "w1"), ("fc1_x", "w2"), ("fc2", "w3")):
        k = k.replace(a, b)
    tensors["vision_model." + k] = v

rank, alpha = 2, 2
merged = {}


def adapt(name, weight, embedding):
    left, right = exact(torch.randn(weight.shape[0], rank, generator=g) * 0.3), exact(torch.randn(rank, weight.shape[1], generator=g) * 0.3)
    at = "text_model.transformer.roberta." + name + ".parametrizations.weight."
    a, b = (left, right) if embedding else (right, left)
    tensors.update({at + "original": weight, at + "0.lora_A": a[None], at + "0.lora_B": b[None]})
    return weight + left.double() @ right.double() * alpha / rank


base = {k: v.clone() for k, v in text.state_dict().items()}
for i in range(LAYERS):
    at, to = "layers.%d." % i, "encoder.layers.%d." % i
    three = [at + "self_attn.%s_proj." % x for x in "qkv"]
    tensors["text_model.transformer.roberta." + to + "mixer.Wqkv.bias"] = torch.cat([base[x + "bias"] for x in three])
    merged.update(zip([x + "weight" for x in three], adapt(to + "mixer.Wqkv", torch.cat([base[x + "weight"] for x in three]), False).chunk(3)))
    for a, b in (("self_attn.o_proj", "mixer.out_proj"), ("mlp.fc1", "mlp.fc1"), ("mlp.fc2", "mlp.fc2")):
        merged[at + a + ".weight"] = adapt(to + b, base[at + a + ".weight"], False)
        tensors["text_model.transformer.roberta." + to + b + ".bias"] = base[at + a + ".bias"]
    for a, b in (("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2")):
        for p in (".weight", ".bias"):
            tensors["text_model.transformer.roberta." + to + b + p] = base[at + a + p]
for n in ("word", "token_type"):
    merged["embeddings.%s_embeddings.weight" % n] = adapt("embeddings.%s_embeddings" % n, base["embeddings.%s_embeddings.weight" % n], True)
for p in (".weight", ".bias"):
    tensors["text_model.transformer.roberta.emb_ln" + p] = base["embeddings.LayerNorm" + p]
text.load_state_dict({**base, **merged})

folder = os.path.join(out, "clip")
os.makedirs(folder, exist_ok=True)
save_file({k: v.to(torch.bfloat16).contiguous() for k, v in tensors.items()}, os.path.join(folder, "model.safetensors"))
with open(os.path.join(folder, "config.json"), "w") as f:
    json.dump({"model_type": "jina_clip", "add_projections": False, "projection_dim": DIM, "matryoshka_dimensions": [4, 8, DIM], "truncate_dim": None,
               "text_config": {"default_instruction_task": None, "default_lora_task": "retrieval.query", "embed_dim": DIM, "hf_model_name_or_path": "jinaai/jina-embeddings-v3",
                               "hf_model_config_kwargs": {"lora_adaptations": ["retrieval.query"], "lora_alpha": alpha, "lora_rank": rank, **text_size,
                                                          "task_instructions": {"retrieval.query": "Represent the query for retrieving evidence documents: "}},
                               "pooler_type": "mean_pooler", "proj_bias": False, "proj_type": None},
               "vision_config": {"embed_dim": DIM, "fused_layer_norm": False, "head_width": HEAD, "image_size": IMAGE, "intp_freq": True, "layers": LAYERS, "ls_init_value": None,
                                 "mlp_ratio": RATIO, "naive_swiglu": True, "patch_dropout": 0.1, "patch_size": PATCH, "post_norm": False, "proj_type": None, "pt_hw_seq_len": ROPE,
                                 "qkv_bias": True, "rope_embeddings": True, "subln": True, "width": DIM, "x_attention": True}}, f, indent=1)
    f.write("\n")
with open(os.path.join(folder, "preprocessor_config.json"), "w") as f:
    json.dump({"fill_color": 0, "image_processor_type": "JinaCLIPImageProcessor", "interpolation": "bicubic", "mean": MEAN, "processor_class": "JinaCLIPProcessor",
               "resize_mode": "shortest", "size": IMAGE, "std": STD}, f, indent=1)
    f.write("\n")

prepare = transforms.Compose([transforms.Resize(IMAGE, interpolation=transforms.InterpolationMode.BICUBIC), transforms.CenterCrop((IMAGE, IMAGE)),
                              transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
images, texts = [], []
with torch.no_grad():
    for h, w in ((22, 22), (31, 20), (23, 40)):
        im = Image.fromarray(torch.randint(0, 256, (h, w, 3), generator=g, dtype=torch.uint8).numpy())
        b = io.BytesIO()
        im.save(b, "PNG")
        images.append({"png": base64.b64encode(b.getvalue()).decode(), "vector": [round(x, 9) for x in vision(prepare(im)[None].double())[0].tolist()]})
    for s in ("The quick brown fox", "Größe, façade", "日本語のテキスト、カタカナ", "x"):
        ids = tokenizer.encode(s).ids
        hidden = text(input_ids=torch.tensor([ids])).last_hidden_state[0]
        texts.append({"text": s, "ids": ids, "vector": [round(x, 9) for x in hidden.mean(0).tolist()]})
with open(os.path.join(out, "clip.json"), "w") as f:
    json.dump({"images": images, "texts": texts}, f, separators=(",", ":"))
    f.write("\n")
