#!/usr/bin/env python3
"""The same jobs in Python with json, pandas, pyarrow and Pillow, as one would write
them with these libraries: what corpus/bench measures our programs against. Every
job writes what ours write into a folder OUT.

What both sides do in every job: read the input; SHA-256 of the input and of every
output, in a manifest; outputs forced to the disk before the end (fsync of each
file and its folder; of the images, of which there are many, by one sync, ours of
the file system, the peer's of all, which on one disk is the same: corpus/bench
syncs before it starts either).

    passages, pandas  ids unique, contents not empty; the same three columns, Snappy
    lens              of entries with one id the last; images' headers read (format
                      and size), each image once by its SHA-256, a temporary file
                      and a rename; every path absolute, missing ones null and
                      listed; the cache as JSON lines, its hits as Parquet (Snappy)
    questions         images' headers read, stored as above; rows as Parquet (zstd)

Ours alone: reasons for rejected rows, resuming, a lock, a summary, an image that is
in the store already compared with its bytes; of questions fourteen columns where
the peer writes six. The peer alone: nothing. Neither decodes an image's pixels.

    peer.py passages IN.jsonl OUT       JSON lines to Parquet, ids and contents checked
    peer.py pandas IN.jsonl OUT         the same by pandas.read_json
    peer.py lens CACHE.jsonl IMAGES OUT paths made absolute, missing ones null; images stored by SHA-256, Parquet of the entries
    peer.py paths CACHE.jsonl IMAGES OUT  the paths alone
    peer.py questions IN.parquet OUT    images stored by SHA-256, rows written

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
    os.makedirs(dst)
    with pq.ParquetWriter(os.path.join(dst, "passages.parquet"), schema, compression="snappy") as out:
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
    finish(dst, src)


def pandas(src, dst):
    import pandas as pd

    d = pd.read_json(src, lines=True, dtype={"id": str})
    d = d[d.contents.str.strip() != ""].drop_duplicates("id")
    d["image_id"] = ""
    os.makedirs(dst)
    d.to_parquet(os.path.join(dst, "passages.parquet"), compression="snappy", index=False)
    finish(dst, src)


def lens(src, root, dst):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    root, dst = os.path.abspath(root), os.path.abspath(dst)
    os.makedirs(dst)
    entries, stored, missing = {}, {}, []

    def image(name):
        """SHA-256 and file of an image, taken into the store when it is first named."""
        if name not in stored:
            try:
                with open(os.path.join(root, name), "rb") as f:
                    data = f.read()
                Image.open(io.BytesIO(data))  # reads the header
            except OSError:
                stored[name] = None
            else:
                sha = hashlib.sha256(data).hexdigest()
                stored[name] = sha, store(dst, sha, ".png", data)
        return stored[name]

    with open(src, encoding="utf-8") as f:
        for line in f:
            e = json.loads(line)
            entries[e["data_id"]] = e
    rows = []
    with open(os.path.join(dst, "lens_cached_data.jsonl"), "w", encoding="utf-8") as out:
        for e in entries.values():
            hits = []
            for n, hit in enumerate(e["cached_data"] or []):
                p = hit.get("cached_images_path")
                found = p and image(p)
                if p and not found:
                    missing.append((e["data_id"], n, p))
                hit["cached_images_path"] = found[1] if found else None
                hits.append({"title": hit["cached_title"], "image_id": found[0] if found else "", "path": p})
            rows.append({"data_id": e["data_id"], "hits": hits})
            out.write(json.dumps(e, ensure_ascii=False) + "\n")
    rows.sort(key=lambda r: r["data_id"])
    hit = pa.struct([("title", pa.string()), ("image_id", pa.string()), ("path", pa.string())])
    table = pa.Table.from_pylist(rows, schema=pa.schema([("data_id", pa.string()), ("hits", pa.list_(hit))]))
    pq.write_table(table, os.path.join(dst, "lens.parquet"))
    with open(os.path.join(dst, "report.json"), "w", encoding="utf-8") as out:
        json.dump({"entries": len(rows), "missing": missing}, out)
    finish(dst, src)


def paths(src, root, dst):
    root = os.path.abspath(root)
    entries = {}
    with open(src, encoding="utf-8") as f:
        for line in f:
            e = json.loads(line)
            entries[e["data_id"]] = e
    with open(dst, "w", encoding="utf-8") as out:
        for e in entries.values():
            for hit in e["cached_data"] or []:
                p = hit.get("cached_images_path")
                if p:
                    p = os.path.join(root, p)
                    hit["cached_images_path"] = p if os.path.exists(p) else None
            out.write(json.dumps(e, ensure_ascii=False) + "\n")


def store(dst, sha, ext, data):
    folder = os.path.join(dst, "images", sha[:2])
    path = os.path.join(folder, sha + ext)
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        with open(path + ".tmp", "wb") as f:
            f.write(data)
        os.replace(path + ".tmp", path)
    return path


def finish(dst, src):
    """A manifest with the SHA-256 of input and outputs; everything on the disk."""
    images = os.path.isdir(os.path.join(dst, "images"))
    files = [os.path.join(dst, n) for n in os.listdir(dst)]
    sums = {}
    for path in [src] + [f for f in files if os.path.isfile(f)]:
        with open(path, "rb") as f:
            sums[path] = hashlib.file_digest(f, "sha256").hexdigest()
    with open(os.path.join(dst, "manifest.json"), "w") as f:
        json.dump(sums, f)
    if images:
        os.sync()
        return
    for path in files + [os.path.join(dst, "manifest.json"), dst]:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def questions(src, dst):
    import pandas as pd
    from PIL import Image

    d = pd.read_parquet(src)
    rows = []
    for r in d.to_dict("records"):
        ids = []
        for cell in r["images"]:
            data = cell["bytes"]
            im = Image.open(io.BytesIO(data))  # reads the header
            sha = hashlib.sha256(data).hexdigest()
            ext = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp"}[im.format]
            store(dst, sha, ext, data)
            ids.append(sha)
        m = r["reward_model"]
        rows.append({"id": r["data_id"], "question": r["prompt"][-1]["content"], "answers": [m["ground_truth"]] + json.loads(m["candidate_answers"]),
                     "image_ids": ids, "data_source": r["data_source"], "category": r["category"]})
    os.makedirs(dst, exist_ok=True)
    pd.DataFrame(rows).to_parquet(os.path.join(dst, "questions.parquet"), compression="zstd", index=False)
    finish(dst, src)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
