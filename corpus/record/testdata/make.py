#!/usr/bin/env python3
"""Makes the Parquet files beside it: one table in the layouts that pyarrow writes.

python -m pip install pyarrow==26.0.1
python make.py

layouts.json is what a reader must see, written by hand from the rows below.
"""
import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

here = pathlib.Path(__file__).parent
rows = [
    {"text": "plain", "blob": b"\xff\xd8\x00", "none": None, "n": 7, "f": 1.0, "ok": True, "tags": ["a", None, "b"],
     "cells": [{"bytes": b"\x01\x02", "path": None}, {"bytes": None, "path": None}], "deep": [[1, 2], [], None],
     "kv": [("k", "v"), ("l", None)], "s": {"x": {"target": ["t"]}, "y": None}, "u8": [137, 80]},
    {"text": None, "blob": None, "none": None, "n": None, "f": None, "ok": None, "tags": None, "cells": None, "deep": None,
     "kv": None, "s": None, "u8": None},
    {"text": "", "blob": b"", "none": None, "n": -1, "f": 0.5, "ok": False, "tags": [], "cells": [], "deep": [],
     "kv": [], "s": {"x": None, "y": 3}, "u8": []},
    {"text": "état 🇪🇸", "blob": b"xxx", "none": None, "n": 2**40, "f": float("nan"), "ok": True, "tags": [str(i) for i in range(40)],
     "cells": [None, {"bytes": b"z", "path": None}], "deep": [[i] * i for i in range(5)], "kv": [], "s": {"x": {"target": []}, "y": -3}, "u8": [0, 255]},
]
schema = pa.schema([
    ("text", pa.string()), ("blob", pa.binary()), ("none", pa.null()), ("n", pa.int64()), ("f", pa.float64()), ("ok", pa.bool_()),
    ("tags", pa.list_(pa.string())),
    ("cells", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.null())]))),
    ("deep", pa.list_(pa.list_(pa.int32()))),
    ("kv", pa.map_(pa.string(), pa.string())),
    ("s", pa.struct([("x", pa.struct([("target", pa.list_(pa.string()))])), ("y", pa.int8())])),
    ("u8", pa.list_(pa.uint8())),
])
table = pa.Table.from_pylist(rows * 8, schema=schema)
large = table.cast(pa.schema([
    f.with_type({"text": pa.large_string(), "tags": pa.large_list(pa.large_string()), "u8": pa.large_list(pa.uint8())}.get(f.name, f.type))
    for f in schema]))
variants = {
    "snappy": (table, dict(compression="snappy")),
    "groups": (table, dict(compression="zstd", row_group_size=5)),
    "pages": (table, dict(compression="gzip", data_page_size=1, write_batch_size=3)),
    "v2": (table, dict(compression="brotli", data_page_version="2.0", write_page_index=True)),
    "plain": (table, dict(compression="none", use_dictionary=False, version="1.0", use_compliant_nested_type=False)),
    "large": (large, dict(compression="snappy", store_schema=False)),
}
for name, (t, options) in variants.items():
    pq.write_table(t, here / f"{name}.parquet", **options)
