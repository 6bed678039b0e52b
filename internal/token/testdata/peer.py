"""Compares DIR/want.json (texts, ids and, if there, corpus and merges) with what
Hugging Face's tokenizers make of them: python peer.py DIR [FOLDER OF tokenizer.json]"""
import json, sys
import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

want = json.load(open(sys.argv[1] + "/want.json", encoding="utf-8"))
t = Tokenizer.from_file(sys.argv[-1] + "/tokenizer.json")
t.no_padding()
t.no_truncation()
bad = 0
for s, ids in zip(want["texts"], want["ids"]):
    got = t.encode(s, add_special_tokens=False).ids
    if got != ids:
        bad += 1
        i = next((i for i, (a, b) in enumerate(zip(got, ids)) if a != b), min(len(got), len(ids)))
        if bad <= 20:
            print("differs: %r at token %d: reference %r, ours %r" % (s[:80], i, got[i : i + 8], ids[i : i + 8]))
if "corpus" in want:
    u = Tokenizer(models.BPE())
    u.normalizer = normalizers.NFC()
    pattern = json.loads(t.to_str())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    u.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    special = [a.content for a in t.get_added_tokens_decoder().values()]
    # The trainer itself does not split at specials.
    import re
    texts = [p for s in want["corpus"] for p in re.split("|".join(map(re.escape, special)), s)]
    u.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=256 + len(want["merges"]), min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[], show_progress=False))
    got = json.loads(u.to_str())["model"]["merges"]
    if got != want["merges"]:
        bad += 1
        i = next((i for i, (a, b) in enumerate(zip(got, want["merges"])) if a != b), -1)
        print("merges differ from %d on: reference %r, ours %r" % (i, got[i : i + 3], want["merges"][i : i + 3]))
print("tokenizers %s: %d texts, %d differences" % (tokenizers.__version__, len(want["texts"]), bad))
sys.exit(1 if bad else 0)
