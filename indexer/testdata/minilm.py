# What sentence-transformers makes of the Cranfield collection with MiniLM:
#   python minilm.py MODEL TEXTS.json OUT.json (sentence-transformers 6.0.1, torch 2.11.0)
# TEXTS.json holds doc_ids, docs, query_ids, queries and qrels (lines of query, document,
# gain). OUT.json gets nDCG@10 and some vectors.
import json, math, sys
import torch
from sentence_transformers import SentenceTransformer

model, texts, out = sys.argv[1:]
t = json.load(open(texts))
st = SentenceTransformer(model, device="cpu", model_kwargs={"dtype": torch.float32})
d = torch.tensor(st.encode(t["docs"], batch_size=32))
q = torch.tensor(st.encode(t["queries"], batch_size=32))
gains = {}
for line in t["qrels"].splitlines():
    parts = line.split()
    try:
        gains.setdefault(parts[0], {})[parts[1]] = float(parts[2])
    except ValueError:
        pass  # the heading
total = n = 0
for i, row in zip(t["query_ids"], (q @ d.T).topk(10).indices.tolist()):
    g = gains.get(i)
    if not g:
        continue
    dcg = sum(g.get(t["doc_ids"][r], 0) / math.log2(k + 2) for k, r in enumerate(row))
    ideal = sum(x / math.log2(k + 2) for k, x in enumerate(sorted(g.values(), reverse=True)[:10]))
    if ideal > 0:
        total, n = total + dcg / ideal, n + 1
json.dump({"ndcg": total / n, "judged": n, "docs": d[::200].tolist(), "queries": q[::50].tolist()}, open(out, "w"))
print(total / n, n, st.max_seq_length)
