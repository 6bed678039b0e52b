#!/usr/bin/env python3
"""Makes the input files of the adapters' golden samples that are not text:
Parquet as pandas, pyarrow and Hugging Face datasets write it, small images in
every format, and candidates.json: what numpy and Python print for lists.

python -m pip install pyarrow==26.0.1 pandas==3.1.1 numpy pillow
python make.py

The rows are invented, in the shapes that docs/questions.md and docs/passages.md
describe. want-*.json beside them is what the adapters must give.
"""
import gzip
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
