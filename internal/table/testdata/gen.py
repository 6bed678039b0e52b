"""Writes the Parquet files of TestForeignFiles. Needs pyarrow (26.0.1 was used):
    python3 gen.py
Row i: id, n = i (int32), x = i/2, tags = i%3 strings, a null list in row 1, note null in
odd rows, void a column that is null everywhere."""
import pyarrow as pa, pyarrow.parquet as pq

n = 40
ids = [f"id{i}" for i in range(n)]
tags = [None if i == 1 else [f"täg{k}" for k in range(i % 3)] for i in range(n)]
turns = [[{"role": "user", "text": f"t{i}", "images": ["a"] * (i % 2)}] for i in range(n)]
table = pa.table({
    "id": pa.array(ids), "n": pa.array(range(n), pa.int32()), "x": pa.array([i / 2 for i in range(n)], pa.float32()),
    "tags": pa.array(tags, pa.list_(pa.string())), "turns": pa.array(turns),
    "note": pa.array([f"note{i}" if i % 2 == 0 else None for i in range(n)]), "void": pa.nulls(n),
})
pq.write_table(table, "pyarrow.parquet", row_group_size=7, compression="zstd")
# The names that pyarrow gave list elements before version 14, page headers of version 1, no dictionary.
pq.write_table(table, "pyarrow-item.parquet", use_compliant_nested_type=False, data_page_version="1.0", use_dictionary=False, compression="snappy")
pq.write_table(table, "pyarrow-v2.parquet", data_page_version="2.0", version="2.6", compression="none", write_page_index=True)
