"""Writes what Hugging Face's tokenizers make of 10,000 generated lines in many scripts.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    python multilingual.py            multilingual.json: digests for the tokenizers of this folder, and for two trained on the lines
    python multilingual.py FOLDER     FOLDER/multilingual.json: the digest for FOLDER/tokenizer.json, say a real model's

A digest is of the ids of 1,000 lines, each line's in decimal, with blanks between and a
newline behind. multilingual_test.go generates the same lines from pieces.json.
"""
import hashlib, io, json, os, sys
import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LINES, BLOCK = 10000, 1000
P = json.load(open(os.path.join(HERE, "pieces.json"), encoding="utf-8"))
MASK = (1 << 64) - 1


class Random:  # splitmix64
    def __init__(self, seed):
        self.x = seed

    def below(self, n):
        self.x = (self.x + 0x9E3779B97F4A7C15) & MASK
        z = self.x
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n

    def of(self, items):
        return items[self.below(len(items))]


def line(n):
    r = Random(n)
    out = ""
    for _ in range(1 + r.below(20)):
        k = r.below(16)
        if k == 9:
            lo, hi = r.of(P["ranges"])
            out += chr(lo + r.below(hi - lo))
        elif k == 10:
            out += r.of(r.of(P["words"])) * (1 + r.below(40))
        elif k == 11:
            out += r.of(P["odd"])
        elif k == 12:
            out += str(r.below(1000000))
        elif k == 13:
            out += r.of(P["marks"])
        elif k == 14:
            out += r.of(P["odd"]) + r.of(P["odd"])
        else:
            out += r.of(r.of(P["words"]))
        if r.below(4) > 0:
            out += " "
    return out


ALL = [line(n) for n in range(LINES)]


def digests(t):
    t.no_padding()
    t.no_truncation()
    out = []
    for at in range(0, LINES, BLOCK):
        h = hashlib.sha256()
        for e in t.encode_batch(ALL[at:at + BLOCK]):
            h.update((" ".join(map(str, e.ids)) + "\n").encode())
        out.append(h.hexdigest()[:16])
    return out


def text():
    return [hashlib.sha256("\n".join(ALL[at:at + BLOCK]).encode()).hexdigest()[:16] for at in range(0, LINES, BLOCK)]


def folder(name):
    with open(os.path.join(HERE, name, "tokenizer.json"), encoding="utf-8") as f:
        return json.load(f)


def wordpiece():
    """uncased with a vocabulary of 2,000 entries."""
    spec = folder("uncased")
    t = Tokenizer.from_str(json.dumps(spec))
    special = [a["content"] for a in spec["added_tokens"]]
    t.train_from_iterator(ALL[::2], trainers.WordPieceTrainer(vocab_size=2000, special_tokens=special, show_progress=False, limit_alphabet=1500))
    names = special + sorted(k for k in t.get_vocab() if k not in special)
    spec["model"]["vocab"] = {k: i for i, k in enumerate(names)}
    return names, Tokenizer.from_str(json.dumps(spec))


def unigram():
    """xlmr with some 2,500 pieces."""
    import sentencepiece as spm

    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter([x.replace("\n", " ").replace("\0", " ") for x in ALL[::2]]), model_writer=out, model_type="unigram", vocab_size=2500, hard_vocab_limit=False,
                                   character_coverage=0.995, normalization_rule_name="nmt_nfkc", num_threads=1, minloglevel=2, max_sentence_length=1 << 20)
    sp = spm.SentencePieceProcessor(model_proto=out.getvalue())
    spec = folder("xlmr")
    # Scores in thousandths: short, and the same in every parser.
    own = [p for p, _ in spec["model"]["vocab"][:4]]
    pieces = [[p, 0] for p in own] + [[p, round(sp.get_score(i), 3)] for i in range(sp.get_piece_size()) if (p := sp.id_to_piece(i)) not in ("<s>", "</s>", "<unk>")]
    spec["model"]["vocab"] = pieces
    spec["added_tokens"] = [a for a in spec["added_tokens"] if a["content"] in own]
    return pieces, Tokenizer.from_str(json.dumps(spec))


by = "tokenizers " + tokenizers.__version__
if len(sys.argv) > 1:
    at, result = sys.argv[1], {"by": by, "digests": digests(Tokenizer.from_file(os.path.join(sys.argv[1], "tokenizer.json")))}
else:
    at, result = HERE, {"by": by, "text": text(), "tokens": {}}
    for name in ("cased", "lower", "plain", "first"):  # uncased and xlmr stand behind the two below
        result["tokens"][name] = digests(Tokenizer.from_str(json.dumps(folder(name))))
    result["words"], t = wordpiece()
    result["tokens"]["words"] = digests(t)
    result["pieces"], t = unigram()
    result["tokens"]["pieces"] = digests(t)
with open(os.path.join(at, "multilingual.json"), "w", encoding="utf-8") as f:
    json.dump(result, f, ensure_ascii=False, separators=(",", ":"))
    f.write("\n")
