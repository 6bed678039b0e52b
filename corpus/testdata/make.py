#!/usr/bin/env python3
"""Makes the input files of the adapters' golden samples that are not text:
Parquet as pandas, pyarrow and Hugging Face datasets write it, small images in
every format, and candidates.json: what numpy and Python print for lists.

python -m pip install pyarrow==26.0.1 pandas==3.1.1 numpy pillow
python make.py

The rows are invented, in the shapes that docs/questions.md and docs/passages.md
describe. want-*.json beside them is what the adapters must give.
"""
import base64
import gzip
import hashlib
import io
import json
import pathlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

here = pathlib.Path(__file__).parent
formats = here / "formats"


def picture(kind, shade, size=(12, 8)):
    im = Image.new("RGB", size)
    for x in range(size[0]):
        for y in range(size[1]):
            im.putpixel((x, y), (shade, (x * 20) % 256, (y * 30) % 256))
    b = io.BytesIO()
    im.save(b, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return b.getvalue()


JPG, PNG, GIF, WEBP, BMP = (picture(k, 40 * i + 10) for i, k in enumerate(["JPEG", "PNG", "GIF", "WEBP", "BMP"]))


def folder(*parts):
    d = formats.joinpath(*parts)
    d.mkdir(parents=True, exist_ok=True)
    return d


# MM-DeepResearch: two messages, struct ground truth, candidates as str() of a list, tools_kwargs, null columns.
def mmdr(i, question, target, candidates, images, index=None):
    index = index or f"MMSearch_{i}"
    kwargs = {"create_kwargs": {"ground_truth": {"target": target}, "question": "<image>" + question, "data_source": "searchR1_MMSearch",
                                "candidate_answers": candidates, "data_id": index}}
    return {
        "images": images, "agent_name": "tool_agent", "data_source": "searchR1_MMSearch",
        "prompt": [{"role": "system", "content": "Use the tools."}, {"role": "user", "content": "Answer it. Question: <image>" + question}],
        "ability": None, "reward_model": {"ground_truth": {"target": target}, "style": "rule", "candidate_answers": candidates},
        "extra_info": {"index": index, "need_tools_kwargs": True, "question": "<image>" + question, "split": "test",
                       "tools_kwargs": {t: kwargs for t in ["text_search", "image_search_by_lens"]}},
        "metadata": None,
    }


def cell(data):
    return {"bytes": data, "path": None}


pd.DataFrame([
    mmdr(0, "Which tower is this?", ["Eiffel Tower"], str(["La Tour Eiffel", 'the "Tower"', "l'Eiffel"]), [cell(JPG)]),
    mmdr(3, "Question: why?", ["Because"], str(np.array(["Spain", "ESP"])), [cell(PNG)]),
    mmdr(4, "Two images?", ["yes"], "None", [cell(GIF), cell(WEBP)]),
    mmdr(5, "Broken image", ["x"], "[]", [cell(JPG[:20])]),
    mmdr(6, "", ["x"], "[]", [cell(BMP)]),
    mmdr(7, "No answer", [], "['but a candidate']", [cell(BMP)]),
    mmdr(8, "Broken candidates", ["x"], "['a', b]", [cell(BMP)]),
    mmdr(9, "Which tower is this, again?", ["Eiffel Tower"], "[]", [cell(JPG)], index="MMSearch_0"),
]).to_parquet(folder("verl", "mmdr", "in") / "MMSearch_test.parquet", row_group_size=3)

# FVQA: one message without placeholder, JSON candidates, category, data_id, null image_urls.
pd.DataFrame([
    {"data_id": f"fvqa_train_{i}", "prompt": [{"content": q, "role": "user"}], "images": [cell(im)],
     "reward_model": {"candidate_answers": json.dumps(c), "ground_truth": t, "style": "rule"},
     "data_source": "mmsearch_r1/fvqa_train", "image_urls": None, "category": cat}
    for i, q, im, t, c, cat in [
        (0, "What is the country of origin?", BMP, "Spain", ["Kingdom of Spain", "\U0001F1EA\U0001F1F8", "Spain"], "search_required"),
        (1, "Question: a quoted one?", PNG, "5", [], "search_free"),
    ]]).to_parquet(folder("verl", "fvqa", "in") / "fvqa_train.parquet")

# InfoSeek as in mini_data: no id anywhere.
pd.DataFrame([
    {"prompt": [{"content": "Who owns it?", "role": "user"}], "images": [cell(JPG)],
     "reward_model": {"candidate_answers": "[\"PRT\"]", "ground_truth": "Portugal", "style": "rule"},
     "data_source": "mmsearch_r1/infoseek_train_split", "image_urls": None}]).to_parquet(folder("verl", "infoseek", "in") / "mini.data.parquet")

# Search-R1: text only, ids and indices that start again for every source.
pd.DataFrame([
    {"id": f"train_{i}", "question": q, "golden_answers": np.array(a, dtype=object), "data_source": s,
     "prompt": [{"role": "user", "content": f"Reason first. Question: {q}\n"}], "ability": "fact-reasoning",
     "reward_model": {"ground_truth": {"target": np.array(a, dtype=object)}, "style": "rule"},
     "extra_info": {"index": i, "split": "train"}, "metadata": None}
    for s, i, q, a in [("nq", 0, "total number of death row inmates in the us?", ["2,718"]), ("nq", 1, "who?", ["Ray", "Ray Charles"]),
                       ("hotpotqa", 0, "Which magazine was started first?", ["Arthur's Magazine"])]
]).to_parquet(folder("verl", "search-r1", "in") / "train.parquet")
# The same without question and id columns, so that both come from elsewhere.
pd.DataFrame([
    {"data_source": s, "prompt": [{"role": "user", "content": f"Reason first. Question: {q}\n"}], "ability": "fact-reasoning",
     "reward_model": {"ground_truth": {"target": a}, "style": "rule"}, "extra_info": {"index": i, "split": "train"}}
    for s, i, q, a in [("nq", 0, "Which is Question: 7?", ["x"]), ("hotpotqa", 0, "who?", ["y"])]
]).to_parquet(folder("verl", "bare", "in") / "train.parquet")

# Images by path and as arrays of uint8; candidates as a list column.
pq.write_table(pa.Table.from_pylist([
    {"data_id": "p0", "question": "By path?", "images": [{"bytes": None, "path": "one.png"}], "answers": ["a"], "candidate_answers": ["A", None, "a"]},
    {"data_id": "p1", "question": "Absent?", "images": [{"bytes": None, "path": "absent.png"}], "answers": ["a"], "candidate_answers": None},
    {"data_id": "p2", "question": "None?", "images": None, "answers": ["a"], "candidate_answers": []},
]), folder("verl", "paths", "in") / "rows.parquet")
(folder("verl", "paths", "in", "images") / "one.png").write_bytes(PNG)

# MMSearch: the end2end file of the benchmark.
pq.write_table(pa.Table.from_pylist([
    {"sample_id": "a1", "query": "Who is in the picture?", "query_image": cell(JPG), "gt_answer": "Ann", "alternative_gt_answers": ["Ann B."],
     "area": "news", "subfield": "sports"},
    {"sample_id": "a2", "query": "When did it open?", "query_image": None, "gt_answer": "2024", "alternative_gt_answers": [], "area": "knowledge", "subfield": "finance"},
    {"sample_id": "a3", "query": "And this?", "query_image": cell(WEBP), "gt_answer": "", "alternative_gt_answers": None, "area": "news", "subfield": None},
]), folder("mmsearch", "end2end", "in") / "end2end.parquet")

# Text-to-image corpus.
pq.write_table(pa.Table.from_pylist([
    {"image": cell(JPG), "img_path": "/data/cache/0.jpg", "text": "A tower at night"},
    {"image": cell(b"<html>404</html>"), "img_path": "/data/cache/1.jpg", "text": "Not an image"},
    {"image": {"bytes": None, "path": None}, "img_path": "two.png", "text": "By its path"},
    {"image": cell(PNG), "img_path": None, "text": " "},
    {"image": cell(WEBP), "img_path": None, "text": "A web picture"},
]), folder("image-corpus", "published", "in") / "image_search_result_rag.parquet")
(folder("image-corpus", "published", "in") / "images").mkdir(exist_ok=True)
(formats / "image-corpus" / "published" / "in" / "images" / "two.png").write_bytes(PNG)

# LiveVQA: photographs, one of them WebP under the name of a JPEG.
d = folder("livevqa", "news", "in", "News_imgs")
(d / "bbc_1.jpg").write_bytes(JPG)
(d / "forbes_2.jpg").write_bytes(WEBP)

# Plain questions with image files.
d = folder("jsonl", "plain", "in", "images")
(d / "a.gif").write_bytes(GIF)

# A compressed corpus of two gzip members.
d = folder("passages", "compressed", "in")
lines = [json.dumps({"id": str(i), "contents": f"\"Title {i}\"\nText of passage {i}."}) + "\n" for i in range(4)]
(d / "corpus.jsonl.gz").write_bytes(gzip.compress("".join(lines[:2]).encode(), mtime=0) + gzip.compress("".join(lines[2:]).encode(), mtime=0))

# What Python and numpy print.
words = ["Spain", "l'Espagne", 'the "Kingdom"', "both ' and \"", "back\\slash", "new\nline", "ünïcode", "\U0001F1EA\U0001F1F8", "\u200b zero", "tab\tin", "\x07"]
long = [f"a rather long answer number {i}" for i in range(12)]
cases = []
for ws in [words, long, ["one"], []]:
    for text in [str(ws), str(tuple(ws)), str(np.array(ws, dtype=object)), repr(np.array(ws, dtype=object)), str(np.array(ws)), repr(np.array(ws)),
                 json.dumps(ws), json.dumps(ws, ensure_ascii=False), str([np.str_(w) for w in ws]), str(np.array(ws, dtype=object).reshape(1, -1))]:
        cases.append({"text": text, "want": ws})
json.dump(cases, open(here / "candidates.json", "w"), indent=1)

# InfoSeek: texts, a number with its range, a time; kinds and entities in files of their own; images of OVEN by name.
d = folder("infoseek", "val", "in")
images = folder("infoseek", "val", "in", "oven_images")
(images / "oven_01.jpg").write_bytes(JPG)
(images / "oven_02.JPEG").write_bytes(JPG)
(images / "oven_03.png").write_bytes(PNG)
rows = [
    {"data_id": "infoseek_val_0", "image_id": "oven_01", "question": "Who designed this building?", "answer": ["Antoni Gaudí"],
     "answer_eval": ["Antoni Gaudí", "Gaudi"], "data_split": "val_unseen_question"},
    {"data_id": "infoseek_val_1", "image_id": "oven_02", "question": "How tall is it in metre?", "answer": ["98.0"],
     "answer_eval": [{"wikidata": 98.0, "range": [88.2, 107.8]}], "data_split": "val_unseen_entity"},
    {"data_id": "infoseek_val_2", "image_id": "oven_03", "question": "When was it built?", "answer": ["1923"],
     "answer_eval": ["1922", "1923", "1924", "1 May 1923"], "data_split": "val_unseen_question"},
    {"data_id": "infoseek_val_3", "image_id": "oven_03", "question": "How wide?", "answer": ["7"], "answer_eval": {"wikidata": 7, "range": [6.3, 7.7]}, "data_split": "val_unseen_entity"},
    {"data_id": "infoseek_val_4", "image_id": "oven_99", "question": "No such image?", "answer": ["x"], "answer_eval": ["x"], "data_split": "val_unseen_entity"},
    {"data_id": "infoseek_val_5", "image_id": "oven_03", "question": "A broken range?", "answer": ["x"], "answer_eval": [{"wikidata": 1.0, "range": ["a", "b"]}], "data_split": "val_unseen_entity"},
]
def jsonl(path, rows):
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
jsonl(d / "infoseek_val.jsonl", rows)
jsonl(d / "infoseek_val_qtype.jsonl", [{"data_id": f"infoseek_val_{i}", "question_type": t} for i, t in enumerate(["String", "Numerical", "Time"])])
jsonl(d / "infoseek_val_withkb.jsonl", [{"data_id": "infoseek_val_0", "entity_id": "Q48435", "entity_text": "Sagrada Família"}])

# SimpleVQA: base64 text; the Chinese half is left out.
b64 = lambda data: base64.b64encode(data).decode()
pd.DataFrame([
    {"data_id": i, "image": b64(im), "image_description": "", "language": lang, "question": q, "answer": a, "original_category": "Nature",
     "source": "s", "atomic_question": "What is it?", "atomic_fact": "a tower", "vqa_category": "Object"}
    for i, im, lang, q, a in [(0, JPG, "EN", "Which tower?", "Eiffel Tower"), (1, PNG, "CN", "这是什么?", "塔"), (2, PNG, "EN", "Which style?", "[Gothic]")]
]).to_parquet(folder("simplevqa", "test", "in") / "test.parquet")

# MMSearch-Plus: an Arrow stream as datasets writes it, texts scrambled with the canary.
def scramble(text, canary="MMSearch-Plus"):
    key = hashlib.sha256(canary.encode()).digest()
    return b64(bytes(c ^ key[i % len(key)] for i, c in enumerate(text.encode())))
image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
schema = pa.schema([("question", pa.string()), ("answer", pa.list_(pa.string())), ("num_images", pa.int64()), ("arxiv_id", pa.string()), ("video_url", pa.string()),
                    ("category", pa.string()), ("difficulty", pa.string()), ("subtask", pa.string())] + [(f"img_{i}", image) for i in range(1, 6)])
def plus(q, answers, images, **more):
    r = {"question": scramble(q), "answer": [scramble(a) for a in answers], "num_images": len(images), "arxiv_id": None, "video_url": None,
         "category": "Academic", "difficulty": "hard", "subtask": None, **more}
    return r | {f"img_{i + 1}": cell(images[i]) if i < len(images) else None for i in range(5)}
table = pa.Table.from_pylist([
    plus("Which figure is this from?", ["Figure 2", "Fig. 2"], [JPG, PNG], arxiv_id=scramble("2508.21475")),
    plus("Ünïcode – where was the video shot?", ["Lisboa"], [WEBP], video_url=scramble("https://example.org/v"), category="Vlog"),
    plus("Three?", ["3"], [GIF, BMP, PNG], difficulty="easy"),
], schema=schema)
d = folder("mmsearch-plus", "stream", "in")
with pa.ipc.new_stream(d / "data-00000-of-00001.arrow", schema) as w:
    w.write_table(table, max_chunksize=2)
with pa.ipc.new_file(folder("mmsearch-plus", "file", "in") / "plus.arrow", schema) as w:
    w.write_table(table.slice(0, 1))

# VDR-Bench.
pd.DataFrame([{"id": f"v{i}", "question": q, "answer": a, "category": "Sports", "image": cell(im)} for i, q, a, im in
              [(0, "Which club's shirt is in the crowd?", "Porto", JPG), (1, "Who?", "", PNG)]]).to_parquet(folder("vdr-bench", "testmini", "in") / "vdr.parquet")

# BrowseComp-VL: one file of lines, one of objects over several lines.
d = folder("browsecomp-vl", "levels", "in")
for level in (1, 2):
    (folder("browsecomp-vl", "levels", "in", "images", f"level{level}") / f"level{level}_1.jpg").write_bytes(JPG)
bc = lambda level, n: {"question": f"Question {n} of level {level}?", "image_path": f"image/level{level}/level{level}_{n}.jpg", "answers": ["a", "b"], "domain": "History"}
jsonl(d / "bc_vl_level1.jsonl", [bc(1, 1), bc(1, 2)])
(d / "bc_vl_level2.jsonl").write_text("".join(json.dumps(bc(2, n), indent=4) + "\n" for n in (1, 2)))

# Vision-DeepResearch: every encoding of an image's bytes.
dicted = {str(i): c for i, c in enumerate(PNG)}
q = "image_id: 1 \n Question: "
d = folder("vision-deepresearch", "encodings", "in")
jsonl(d / "rows.jsonl", [
    {"id": "ints", "question": q + "A list of ints?", "answer": "a", "image": list(PNG)},
    {"id": "dict", "question": q + "An object of ints?", "answer": "a", "image": dicted},
    {"id": "dicts", "question": "A list of them?", "answer": "a", "images": [dicted, list(JPG)]},
    {"id": "url", "question": "A data URL?", "answer": "a", "image": "data:image/png;base64," + b64(PNG)},
    {"id": "base64", "question": "Bare base64?", "answer": "a", "image": b64(JPG)},
    {"id": "path", "question": "A path?", "answer": "a", "images": ["images/one.png"]},
    {"id": "wrong", "question": "Not bytes?", "answer": "a", "image": [1, 2, 300]},
    {"id": "gap", "question": "A hole in the object?", "answer": "a", "image": {"0": 137, "2": 80}},
])
folder("vision-deepresearch", "encodings", "in", "images").joinpath("one.png").write_bytes(PNG)
d = folder("vision-deepresearch", "parquet", "in")
pq.write_table(pa.table({"question": ["bytes?"], "answer": ["b"], "image": pa.array([JPG])}), d / "bytes.parquet")
pq.write_table(pa.table({"question": ["uint8?"], "answer": ["b"], "image": pa.array([list(PNG)], pa.list_(pa.uint8()))}), d / "ints.parquet")
pq.write_table(pa.Table.from_pylist([{"question": "struct?", "answer": "b", "image": {str(i): c for i, c in enumerate(GIF)}}]), d / "struct.parquet")

# Search-R1's sources as FlashRAG has them.
d = folder("search-r1", "flashrag", "in")
jsonl(d / "train.jsonl", [{"id": "train_0", "question": "who got the first nobel prize in physics", "golden_answers": ["Wilhelm Conrad Röntgen"], "metadata": {}},
                          {"id": "train_1", "question": "who?", "golden_answers": []}])

# MMSearch-R1's caches: pickled dicts with Pillow images of every mode, in every protocol, and what may not be read.
import os
import pickle

d = here / "pickles"
d.mkdir(exist_ok=True)


def opened(mode, kind, **options):
    im = Image.new("RGB", (5, 4))
    im.putdata([(x * 50, y * 60, 90) for y in range(4) for x in range(5)])
    b = io.BytesIO()
    im.convert(mode).save(b, kind, **options)
    b.seek(0)
    im = Image.open(b)
    im.load()
    return im


ims = [opened("RGB", "JPEG", dpi=(72, 72)), opened("L", "PNG"), opened("P", "PNG"), opened("RGBA", "PNG"), opened("1", "PNG"), opened("LA", "PNG"),
       opened("CMYK", "JPEG"), opened("RGB", "WEBP", lossless=True), opened("P", "GIF"), opened("RGB", "TIFF", dpi=(72, 72)), Image.new("RGB", (2, 2), (1, 2, 3))]
cache = {f"fvqa_train_{i}": {"tool_returned_web_title_list": [f"Title {i}", "Second – ü"], "tool_returned_images_urls": [im, f"https://example.org/{i}.jpg"]}
         for i, im in enumerate(ims)}
cache["fvqa_train_nothing"] = {"tool_returned_web_title_list": [], "tool_returned_images_urls": []}
cache["fvqa_train_none"] = None
cache["fvqa_train_short"] = {"tool_returned_web_title_list": ["only a title"], "tool_returned_images_urls": []}
cache["fvqa_train_float"] = {"tool_returned_web_title_list": ["x"], "tool_returned_images_urls": [Image.new("F", (2, 2))]}
cache["fvqa_train_wrong"] = {"tool_returned_web_title_list": "x", "tool_returned_images_urls": 7}
for protocol in range(2, 6):
    (d / f"cache{protocol}.pkl").write_bytes(pickle.dumps(cache, protocol))
pixels = lambda im: hashlib.sha256((im.convert("RGBA") if im.mode in ("RGBA", "LA", "P") else im.convert("RGB").convert("RGBA")).tobytes()).hexdigest()
json.dump([{"mode": im.mode, "rgba": pixels(im)} for im in ims if im.mode != "CMYK"], open(d / "want.json", "w"), indent=1)


class Evil:
    def __init__(self, f, *args):
        self.f, self.args = f, args

    def __reduce__(self):
        return self.f, self.args


for name, evil in {"system": Evil(os.system, "touch /tmp/owned"), "eval": Evil(eval, "1+1"), "getattr": Evil(getattr, Image.Image, "show"), "open": Evil(Image.open, "/etc/passwd")}.items():
    (d / f"evil-{name}.pkl").write_bytes(pickle.dumps({"a": evil}))

# Pictures of every kind.
import struct
import zlib

d = here / "images"
d.mkdir(exist_ok=True)


def put(name, im, kind, **options):
    b = io.BytesIO()
    im.save(b, kind, **options)
    (d / name).write_bytes(b.getvalue())


random = np.random.default_rng(1)
im = Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8))
exif = Image.Exif()
exif[0x0112] = 6
put("rotated.jpg", im, "JPEG", exif=exif)
put("progressive.jpg", im, "JPEG", progressive=True)
put("cmyk.jpg", im.convert("CMYK"), "JPEG")
put("gray.jpg", im.convert("L"), "JPEG")
put("rgba.png", im.convert("RGBA"), "PNG")
put("palette.png", im.convert("P"), "PNG")
put("gray16.png", Image.fromarray(random.integers(0, 65536, (30, 40), dtype=np.uint16)), "PNG")
put("lossless.webp", im, "WEBP", lossless=True)
put("lossy.webp", im, "WEBP")
put("frames.gif", im.convert("P"), "GIF", save_all=True, append_images=[im.rotate(90).convert("P")])
put("plain.bmp", im, "BMP")
put("plain.avif", im, "AVIF")
chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
(d / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(bytes(1000000))) + chunk(b"IEND", b""))
