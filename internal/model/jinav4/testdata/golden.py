# Writes a tiny random jina-embeddings-v4 and the vectors that transformers' backbone gives with it:
#   python golden.py FOLDER TOKENIZER.json (torch 2.11.0, torchvision 0.26.0, transformers 5.17.0, tokenizers 0.23.3, Pillow 11.3.0)
#   v4/  a folder as published: two shards with the names of transformers before 4.52, all tasks' adapters in one file, bfloat16
#   v4.json  {"tasks": {task: {"queries", "passages", "images": [vector]}}, "texts": [{"text", "ids"}], "images": [PNG],
#             "pillow": [vector], "half": {"dim", "images": [vector]}}: vectors of length 1; ids are those of "Query: " and the text
# The model is transformers' Qwen2_5_VLModel in float64 (its norms are float32); an adapter is a second product beside the
# layer's own, as PEFT computes it. Images are prepared by the torchvision processor; "pillow" are retrieval vectors of images prepared by
# the Pillow one. Prompts, pooling and the cut are written out here after the published code.
import base64, io, json, math, os, sys
import tokenizers, torch
from PIL import Image
from safetensors.torch import save_file
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

out, words = sys.argv[1], json.load(open(sys.argv[2]))
g = torch.Generator().manual_seed(4)
TASKS, RANK, ALPHA, HIDDEN, LAYERS = ["retrieval", "text-matching", "code"], 4, 6, 32, 3
MIN, MAX = 56 * 56, 28 * 28 * 40
folder = os.path.join(out, "v4")
os.makedirs(os.path.join(folder, "adapters"), exist_ok=True)

first = max(t["id"] for t in words["added_tokens"]) + 1
marks = ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
for i, mark in enumerate(marks):
    words["added_tokens"].append(dict(id=first + i, content=mark, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True))
START, END, _, PAD, VIDEO = range(first, first + 5)
VOCAB = (first + 5 + 7) // 8 * 8
with open(os.path.join(folder, "tokenizer.json"), "w") as f:
    json.dump(words, f, ensure_ascii=False)
tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))

text = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, rms_norm_eps=1e-6, hidden_act="silu")
vision = dict(depth=4, hidden_size=32, intermediate_size=44, num_heads=2, patch_size=14, temporal_patch_size=2, spatial_merge_size=2, window_size=112,
              fullatt_block_indexes=[1, 3], out_hidden_size=HIDDEN, tokens_per_second=2, hidden_act="silu")
ids = dict(image_token_id=PAD, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END)
section = [1, 2, 1]


def exact(x):  # in bfloat16
    return (x * 128).round().clamp(-255, 255) / 128


config = Qwen2_5_VLConfig(text_config=dict(text, rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=section)), vision_config=vision, **ids)
config._attn_implementation = "eager"
model = Qwen2_5_VLModel(config)
with torch.no_grad():
    for n, p in model.named_parameters():
        centre = 1 if n.endswith("weight") and p.ndim == 1 else 0
        p.copy_(exact(centre + torch.randn(p.shape, generator=g) * (0.2 if p.ndim == 1 else 1.2 / math.sqrt(p[0].numel()))))
model = model.double().eval()
published = {k.replace("language_model.", "model.", 1): v for k, v in model.state_dict().items()}
published["multi_vector_projector.weight"], published["multi_vector_projector.bias"] = torch.zeros(16, HIDDEN), torch.zeros(16)
names = sorted(published)
shards = {"model-00001-of-00002.safetensors": names[: len(names) // 2], "model-00002-of-00002.safetensors": names[len(names) // 2 :]}
for file, part in shards.items():
    save_file({k: published[k].to(torch.bfloat16).contiguous() for k in part}, os.path.join(folder, file), metadata={"format": "pt"})
with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
    json.dump({"metadata": {}, "weight_map": {k: file for file, part in shards.items() for k in part}}, f)


class Adapted(torch.nn.Module):
    """A linear layer with a low-rank product beside it for the task that is set."""
    task = None

    def __init__(self, layer):
        super().__init__()
        self.layer, self.pairs = layer, {}
        for task in TASKS:
            a, b = torch.randn(RANK, layer.in_features, generator=g) * 0.3, torch.randn(layer.out_features, RANK, generator=g) * 0.3
            self.pairs[task] = exact(a).double(), exact(b).double()

    def forward(self, x):
        y = self.layer(x)
        if Adapted.task:
            a, b = self.pairs[Adapted.task]
            y = y + x @ a.T @ b.T * (ALPHA / RANK)
        return y


adapters = {}
for n, m in list(model.language_model.named_modules()):
    if n.startswith("layers.") and isinstance(m, torch.nn.Linear):
        parent, name = n.rsplit(".", 1)
        new = Adapted(m)
        setattr(model.language_model.get_submodule(parent), name, new)
        for task, (a, b) in new.pairs.items():
            at = "base_model.model.model.language_model.%s.lora_%s.%s.weight"
            adapters[at % (n, "A", task)], adapters[at % (n, "B", task)] = a, b
for task in TASKS:
    at = "base_model.model.multi_vector_projector.lora_%s.%s.weight"
    adapters[at % ("A", task)], adapters[at % ("B", task)] = torch.zeros(RANK, HIDDEN), torch.zeros(16, RANK)
save_file({k: v.to(torch.bfloat16).contiguous() for k, v in adapters.items()}, os.path.join(folder, "adapters", "adapter_model.safetensors"), metadata={"format": "pt"})
with open(os.path.join(folder, "adapters", "adapter_config.json"), "w") as f:
    json.dump(dict(peft_type="LORA", task_type=None, base_model_name_or_path="model", r=RANK, lora_alpha=ALPHA, lora_dropout=0.1, bias="none", use_rslora=False, use_dora=False,
                   lora_bias=False, fan_in_fan_out=False, rank_pattern={}, alpha_pattern={}, modules_to_save=None, inference_mode=True,
                   target_modules="(.*(model).*(down_proj|gate_proj|up_proj|k_proj|q_proj|v_proj|o_proj).*$|.*(multi_vector_projector).*$)", exclude_modules=".*visual.*"), f)
rope = dict(rope_theta=1e6, rope_scaling=dict(type="default", rope_type="default", mrope_section=section))
with open(os.path.join(folder, "config.json"), "w") as f:
    json.dump(dict(architectures=["JinaEmbeddingsV4Model"], model_type="qwen2_5_vl", torch_dtype="bfloat16", tie_word_embeddings=True, use_sliding_window=False,
                   text_config=dict(text, model_type="qwen2_5_vl_text", tie_word_embeddings=True, use_sliding_window=False, **rope), vision_config=dict(vision, model_type="qwen2_5_vl", in_chans=3),
                   single_vector_pool_strategy="mean", multi_vector_projector_dim=16, task_names=TASKS, matryoshka_dims=[8, 16, HIDDEN], truncate_dim=None, **ids), f, indent=1)
mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
with open(os.path.join(folder, "preprocessor_config.json"), "w") as f:
    json.dump(dict(min_pixels=MIN, max_pixels=MAX, patch_size=14, temporal_patch_size=2, merge_size=2, image_mean=mean, image_std=std,
                   image_processor_type="Qwen2VLImageProcessorFast", processor_class="JinaEmbeddingsV4Processor"), f)


def pooled(states, first=0, last=None):
    v = states[0, first:last].mean(0)
    return v / v.norm()


def of_text(text):
    t = torch.tensor([tokenizer.encode(text).ids])
    return pooled(model(input_ids=t, attention_mask=torch.ones_like(t)).last_hidden_state)


def of_image(image, processor):
    seen = processor(images=[image], return_tensors="pt", size=dict(shortest_edge=MIN, longest_edge=MAX), image_mean=mean, image_std=std)
    grid = seen["image_grid_thw"]
    pads = int(grid.prod()) // 4
    prompt = "<|im_start|>user\n<|vision_start|>" + "<|image_pad|>" * pads + "<|vision_end|>Describe the image.<|im_end|>\n"
    t = torch.tensor([tokenizer.encode(prompt).ids])
    states = model(input_ids=t, attention_mask=torch.ones_like(t), pixel_values=torch.as_tensor(seen["pixel_values"]).double(), image_grid_thw=torch.as_tensor(grid),
                   mm_token_type_ids=(t == PAD).int()).last_hidden_state
    row = t[0].tolist()
    return pooled(states, row.index(START), row.index(END) + 1)


texts = ["what is a heron", "A heron is a long-legged wading bird. It eats fish, frogs and ~17 other things\n\n  and it is old.", "Grüße, naïve café — 東京 <|image_pad|> and <|im_end|>", "x", "y = f(x) % 2  # code" * 9]
images = []
for w, h in ((60, 84), (140, 33), (301, 262), (28, 28), (224, 112)):
    ramp = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij"))
    noise = torch.randint(0, 60, (h // 7 + 1, w // 5 + 1, 3), generator=g).repeat_interleave(7, 0).repeat_interleave(5, 1)[:h, :w]
    pixels = ((ramp[0] * 3 + ramp[1] * 2).unsqueeze(-1) * torch.tensor([1, 2, 3]) // 3 % 190 + noise).to(torch.uint8)
    images.append(Image.fromarray(pixels.numpy()))


def png(image):
    b = io.BytesIO()
    image.save(b, "PNG")
    return base64.b64encode(b.getvalue()).decode()


with torch.no_grad():
    report = {"tasks": {}, "texts": [dict(text=t, ids=tokenizer.encode("Query: " + t).ids) for t in texts], "images": [png(i) for i in images]}
    fast, pillow = Qwen2VLImageProcessor(), Qwen2VLImageProcessorPil()
    for task in TASKS:
        Adapted.task = task
        passage = "Query: " if task == "text-matching" else "Passage: "
        report["tasks"][task] = dict(queries=[of_text("Query: " + t).tolist() for t in texts], passages=[of_text(passage + t).tolist() for t in texts],
                                     images=[of_image(i, fast).tolist() for i in images])
    Adapted.task = "retrieval"
    report["pillow"] = [of_image(i, pillow).tolist() for i in images]
    cut = [of_image(i, fast)[:16] for i in images]
    report["half"] = dict(dim=16, images=[(v / v.norm()).tolist() for v in cut])
    Adapted.task = None
    report["none"] = [of_text("Query: " + t).tolist() for t in texts]
for a, b in zip(report["pillow"], report["tasks"]["retrieval"]["images"]):
    print("torchvision against Pillow: cosine", float(torch.tensor(a) @ torch.tensor(b)))
with open(os.path.join(out, "v4.json"), "w") as f:
    json.dump(report, f)
