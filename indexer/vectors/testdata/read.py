"""Reads a file of vectors with pyarrow and prints its type, ids and the bits of its numbers."""
import json
import sys

import numpy
import pyarrow as pa

table = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all()
column = table["vector"].combine_chunks()
values = column.values.to_numpy(zero_copy_only=False)
bits = values.view({"float16": numpy.uint16, "float32": numpy.uint32}[values.dtype.name])
json.dump({"type": str(column.type), "dtype": values.dtype.name, "ids": table["id"].to_pylist(), "bits": bits.tolist()}, sys.stdout)
