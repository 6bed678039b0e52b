# Writes two tiny random BERT encoders and what transformers computes with them
# in float64: python golden.py FOLDER (transformers 5.17.0, torch 2.11.0).
#   mean/  BertModel, float32, erf gelu, mean pooling, length 1
#   cls/   BertForMaskedLM (names with "bert."), bfloat16, tanh gelu, first token
#   golden.json  {"seqs": [[ids]], "mean"|"cls": {"vectors": [[…]]}}
import json, os, sys
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

out = sys.argv[1]
torch.manual_seed(20)
g = torch.Generator().manual_seed(21)
lengths = [1, 2, 5, 40, 17, 3]
seqs = [torch.randint(0, 60, (n,), generator=g).tolist() for n in lengths]
golden = {"seqs": seqs}

def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f)
        f.write("\n")

def make(name, cls, act, dtype, pooled):
    config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                        max_position_embeddings=40, hidden_act=act, layer_norm_eps=1e-12, initializer_range=0.3)
    model = cls(config)
    with torch.no_grad():
        for n, p in model.named_parameters():  # biases and norms start as 0 and 1: make them count
            if p.ndim == 1:
                p.add_(torch.randn(p.shape) * 0.2)
    folder = os.path.join(out, name)
    model.to(dtype).save_pretrained(folder)
    model = BertModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    vectors = []
    with torch.no_grad():
        for s in seqs:
            hidden = model(input_ids=torch.tensor([s])).last_hidden_state[0]
            vectors.append(pooled(hidden).tolist())
    golden[name] = {"vectors": vectors}
    st = "sentence_transformers.models."
    modules = [{"idx": 0, "name": "0", "path": "", "type": st + "Transformer"}, {"idx": 1, "name": "1", "path": "1_Pooling", "type": st + "Pooling"}]
    if name == "mean":
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": st + "Normalize"})
    write(os.path.join(folder, "modules.json"), modules)
    write(os.path.join(folder, "1_Pooling", "config.json"),
          {"word_embedding_dimension": 32, "pooling_mode_cls_token": name == "cls", "pooling_mode_mean_tokens": name == "mean"})

make("mean", BertModel, "gelu", torch.float32, lambda h: torch.nn.functional.normalize(h.mean(0), dim=0))
make("cls", BertForMaskedLM, "gelu_new", torch.bfloat16, lambda h: h[0])
write(os.path.join(out, "golden.json"), golden)
