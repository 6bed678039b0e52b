#!/usr/bin/env python3
"""Compares what prep --as writes with what verl's users have, by pandas and
pyarrow: types of the columns to the last leaf, nullability, values, images.

    prep --format verl --in mini_data.parquet --as mmsearch-r1 --out OUT
    verl_check.py mmsearch-r1 mini_data.parquet OUT/part-00000-of-00001.parquet

python -m pip install pyarrow==26.0.1 pandas==3.1.1
"""
import json
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

form, published, written = sys.argv[1:]
want, got = pq.read_schema(published), pq.read_schema(written)


def plain(t):
    """large_string and string are one type in Parquet; only pandas tells them apart."""
    if pa.types.is_large_string(t):
        return pa.string()
    if pa.types.is_struct(t):
        # Fields are found by name; their order is the writer's.
        return pa.struct(sorted((pa.field(f.name, plain(f.type), f.nullable) for f in t), key=lambda f: f.name))
    if pa.types.is_list(t):
        return pa.list_(pa.field(t.value_field.name, plain(t.value_type), t.value_field.nullable))
    return t


bad = 0


def check(ok, *what):
    global bad
    if not ok:
        bad += 1
        print("DIFFERENT", *what)


common = [n for n in want.names if n in got.names]
for name in want.names:
    check(name in got.names, "no column", name)
for name in common:
    a, b = plain(want.field(name).type), plain(got.field(name).type)
    # A column that is null throughout has no type; ours keeps the one it has with values.
    check(a == b or pa.types.is_null(a), name, a, b)
    check(got.field(name).nullable, name, "is not nullable")

a, b = pd.read_parquet(published), pd.read_parquet(written)
check(len(a) == len(b), len(a), "rows and", len(b))
for i, (x, y) in enumerate(zip(a.to_dict("records"), b.to_dict("records"))):
    for name in common:
        u, v = x[name], y[name]
        check(type(u) is type(v) or u is None, i, name, type(u), type(v))
        if name == "images":
            check([c["bytes"] for c in u] == [c["bytes"] for c in v], i, "image bytes")
            check(all(c["path"] is None for c in v), i, "image path")
        elif name == "prompt":
            check([(m["role"], m["content"].strip()) for m in u] == [(m["role"], m["content"].strip()) for m in v], i, "prompt", u, v)
        elif name == "reward_model":
            check(set(u) == set(v) and u["style"] == v["style"], i, "reward_model", u, v)
            t = lambda m: m["ground_truth"] if isinstance(m["ground_truth"], str) else list(m["ground_truth"]["target"])
            check(t(u) == t(v), i, "ground truth", u, v)
            if form == "mmsearch-r1":
                check(json.loads(u["candidate_answers"]) == json.loads(v["candidate_answers"]), i, "candidates", u, v)
        elif name == "extra_info":
            check(set(u) == set(v), i, "extra_info", set(u) ^ set(v))
            for k in ("question", "split", "need_tools_kwargs") + (("index",) if form != "search-r1" else ()):
                check(u.get(k) == v.get(k), i, k, u.get(k), v.get(k))
            for tool in u.get("tools_kwargs") or {}:
                p, q = u["tools_kwargs"][tool]["create_kwargs"], v["tools_kwargs"][tool]["create_kwargs"]
                check(set(p) == set(q) and p["data_id"] == q["data_id"] and p["question"] == q["question"], i, tool, p, q)
        elif isinstance(u, str):
            # Search-R1's ids start again in every source; ours are made unique.
            check(u == v or form == "search-r1" and name == "id" and v.endswith(u), i, name, u, v)
print(f"{form}: {len(b)} rows, {len(common)} columns of {len(want.names)} compared, {bad} differences; images of", [len(c["bytes"]) for r in b["images"] for c in r] if "images" in b else "none", "bytes")
sys.exit(bad > 0)
