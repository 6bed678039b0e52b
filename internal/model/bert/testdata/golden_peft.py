# Adds two PEFT adapters to the model in hf/ and writes what transformers computes with
# each in float64: python golden_peft.py FOLDER (transformers 5.24.0, peft 0.21.2, torch 2.15.0).
#   hf-peft/retrieval_query, hf-peft/retrieval_passage  the adapters, as PEFT saves them, float32
#   peft.json  {"seqs": [[ids]], "vectors": {"retrieval.query": [[…]], …}}; one sequence holds a padding token
# The first changes every linear layer and both tables of embeddings, with rank 2 and alpha 1;
# the second only some layers, scaled by the root of its rank.
import json, os, shutil, sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import JinaEmbeddingsV3Model

out = sys.argv[1]
g = torch.Generator().manual_seed(41)
adapters = {
    "retrieval.query": dict(r=2, lora_alpha=1, target_modules=["word_embeddings", "token_type_embeddings", "q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"]),
    "retrieval.passage": dict(r=3, lora_alpha=2, use_rslora=True, target_modules=["v_proj", "fc1", "word_embeddings"]),
}
seqs = [torch.randint(2, 60, (n,), generator=g).tolist() for n in [1, 2, 5, 38, 17, 3]]
seqs[4][5] = 1
vectors = {}
for task, settings in adapters.items():
    base = JinaEmbeddingsV3Model.from_pretrained(os.path.join(out, "hf"), dtype=torch.float64, attn_implementation="eager", add_pooling_layer=False)
    model = get_peft_model(base, LoraConfig(init_lora_weights=False, **settings), autocast_adapter_dtype=False).eval()
    vectors[task] = []
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_((torch.randn(p.shape, generator=g, dtype=torch.float64) * 0.3 * 1024).round() / 1024)
        for s in seqs:
            ids = torch.tensor([s])
            mask = (ids != 1).long()
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state[0]
            mean = (hidden * mask[0, :, None]).sum(0) / mask.sum()
            vectors[task].append([round(x, 9) for x in torch.nn.functional.normalize(mean, dim=0).tolist()])
    folder = os.path.join(out, "hf-peft", task.replace(".", "_"))
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.float32).save_pretrained(folder)
    for name in os.listdir(folder):
        if not name.startswith("adapter_"):
            os.remove(os.path.join(folder, name))
    path = os.path.join(folder, "adapter_config.json")
    config = json.load(open(path))
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"])
    with open(path, "w") as f:
        json.dump(config, f, indent=1, sort_keys=True)
        f.write("\n")
with open(os.path.join(out, "peft.json"), "w") as f:
    json.dump({"seqs": seqs, "vectors": vectors}, f, separators=(",", ":"))
    f.write("\n")
