#!/usr/bin/env python3
"""The same jobs in Python with json, pandas, pyarrow and Pillow, streaming where
they can: what corpus/bench measures our programs against.

    peer.py passages IN.jsonl OUT.parquet     JSON lines to Parquet, ids and contents checked
    peer.py pandas IN.jsonl OUT.parquet       the same by pandas.read_json
    peer.py lens CACHE.jsonl IMAGES OUT.jsonl paths made absolute, missing ones null
    peer.py questions IN.parquet OUT          images stored by SHA-256, rows written

python -m pip install pyarrow==26.0.1 pandas==3.1.1 pillow==13.0.0
"""
import hashlib
import io
import json
import os
import sys


def passages(src, dst):
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("id", pa.string()), ("contents", pa.string()), ("image_id", pa.string())])
    seen, ids, texts, rejects = set(), [], [], 0
    with pq.ParquetWriter(dst, schema, compression="zstd") as out:
        def flush():
            out.write_table(pa.table([ids, texts, [""] * len(ids)], schema=schema))
            ids.clear()
            texts.clear()

        with open(src, encoding="utf-8") as f:
            for line in f:
                try:
                    row = json.loads(line)
                    i, c = row["id"], row["contents"]
                except (ValueError, KeyError):
                    rejects += 1
                    continue
                if not c.strip() or i in seen:
                    rejects += 1
                    continue
                seen.add(i)
                ids.append(i)
                texts.append(c)
                if len(ids) == 50000:
                    flush()
        flush()


def pandas(src, dst):
    import pandas as pd

    d = pd.read_json(src, lines=True, dtype={"id": str})
    d = d[d.contents.str.strip() != ""].drop_duplicates("id")
    d["image_id"] = ""
    d.to_parquet(dst, compression="zstd", index=False)


def lens(src, root, dst):
    root = os.path.abspath(root)
    entries = {}
    with open(src, encoding="utf-8") as f:
        for line in f:
            e = json.loads(line)
            entries[e["data_id"]] = e
    missing = 0
    with open(dst, "w", encoding="utf-8") as out:
        for e in entries.values():
            for hit in e["cached_data"] or []:
                p = hit.get("cached_images_path")
                if p:
                    p = os.path.join(root, p)
                    if not os.path.exists(p):
                        missing += 1
                        p = None
                    hit["cached_images_path"] = p
            out.write(json.dumps(e, ensure_ascii=False) + "\n")


def questions(src, dst):
    import pandas as pd
    from PIL import Image

    d = pd.read_parquet(src)
    store, rows = os.path.join(dst, "images"), []
    for r in d.to_dict("records"):
        ids = []
        for cell in r["images"]:
            data = cell["bytes"]
            im = Image.open(io.BytesIO(data))  # reads the header
            sha = hashlib.sha256(data).hexdigest()
            ext = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp"}[im.format]
            folder = os.path.join(store, sha[:2])
            path = os.path.join(folder, sha + ext)
            if not os.path.exists(path):
                os.makedirs(folder, exist_ok=True)
                with open(path + ".tmp", "wb") as f:
                    f.write(data)
                os.replace(path + ".tmp", path)
            ids.append(sha)
        m = r["reward_model"]
        rows.append({"id": r["data_id"], "question": r["prompt"][-1]["content"], "answers": [m["ground_truth"]] + json.loads(m["candidate_answers"]),
                     "image_ids": ids, "data_source": r["data_source"], "category": r["category"]})
    os.makedirs(dst, exist_ok=True)
    pd.DataFrame(rows).to_parquet(os.path.join(dst, "questions.parquet"), compression="zstd", index=False)
    os.sync()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
