# Writes a tiny random XLM-R encoder and what transformers computes with it in
# float64: python golden_xlmr.py FOLDER (transformers 5.17.0, torch 2.11.0).
#   xlmr/  XLMRobertaModel, float32, mean pooling, length 1; one sequence holds a padding token
#   xlmr.json  {"seqs": [[ids]], "vectors": [[…]]}
import json, os, sys
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

out = sys.argv[1]
torch.manual_seed(22)
g = torch.Generator().manual_seed(23)
seqs = [torch.randint(2, 60, (n,), generator=g).tolist() for n in [1, 2, 5, 38, 17, 3]]
seqs[4][5] = 1
config = XLMRobertaConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=40,
                          type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5, initializer_range=0.3)
model = XLMRobertaModel(config, add_pooling_layer=False)
with torch.no_grad():
    for n, p in model.named_parameters():
        if p.ndim == 1:
            p.add_(torch.randn(p.shape) * 0.2)
folder = os.path.join(out, "xlmr")
model.save_pretrained(folder)
model = XLMRobertaModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", add_pooling_layer=False).eval()
vectors = []
with torch.no_grad():
    for s in seqs:
        hidden = model(input_ids=torch.tensor([s]), attention_mask=torch.ones(1, len(s))).last_hidden_state[0]
        vectors.append(torch.nn.functional.normalize(hidden.mean(0), dim=0).tolist())
with open(os.path.join(out, "xlmr.json"), "w") as f:
    json.dump({"seqs": seqs, "vectors": vectors}, f)
    f.write("\n")
