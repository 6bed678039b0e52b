"""Writes golden.hex: an event file as TensorBoard's own writer makes it, read again by TensorBoard's loader.

    pip install tensorboard==2.21.0 && python golden.py
    python golden.py FILE...        # shows what TensorBoard reads in event files

The step of the first event is written as 0 and default values are kept, as this package does.
"""
import os, struct, sys

from tensorboard.backend.event_processing import event_file_loader
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer import record_writer

HERE = os.path.dirname(os.path.abspath(__file__))
if len(sys.argv) > 1:
    for path in sys.argv[1:]:
        for e in event_file_loader.RawEventFileLoader(path).Load():
            print(event_pb2.Event.FromString(e))
    sys.exit()

at = struct.pack("<d", 1700000000.5)
zero = b"\x09" + at + b"\x10\x00"  # proto3 leaves a step of 0 out; readers take both
events = [
    zero + event_pb2.Event(file_version="brain.Event:2").SerializeToString(),
    event_pb2.Event(wall_time=1700000000.5, step=3, session_log=event_pb2.SessionLog(status=1)).SerializeToString(),
]
scalars = event_pb2.Event(wall_time=1700000000.5, step=3)
scalars.summary.value.add(tag="grpo/loss", simple_value=-0.25)
scalars.summary.value.add(tag="grpo/lr", simple_value=1e-6)
events.append(scalars.SerializeToString())


class File:
    def __init__(self):
        self.data = b""

    def write(self, b):
        self.data += b


f = File()
w = record_writer.RecordWriter(f)
for e in events:
    w.write(e)
with open(os.path.join(HERE, "golden.hex"), "w") as out:
    out.write(f.data.hex() + "\n")
