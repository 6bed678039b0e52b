"""Writes the Unigram tokenizers of this folder and unigram.json, their golden values.

    pip install tokenizers==0.22.1 sentencepiece==0.2.3 && python unigram.py

xlmr is made like XLM-R's tokenizer.json: SentencePiece's nmt_nfkc normalisation as it
compiles it, WhitespaceSplit and Metaspace, <s> and </s>. plain has no such
normalisation and spells unknown characters as bytes; first marks only the beginning of
a text.
"""
import base64, hashlib, io, json, os, random
import sentencepiece as spm, tokenizers
from tokenizers import Tokenizer, Regex, AddedToken, models, normalizers, pre_tokenizers, processors

HERE = os.path.dirname(os.path.abspath(__file__))
ALL = json.load(open(os.path.join(HERE, "golden.json")))["texts"]
TEXTS = ALL[:11]
BITS = [" ", "  ", "\n", "\r\n", "\t", "a", "The ", "é", "e\u0301", "Ａ\u0301", "ﬁ", "①", "㍿", "\u0323", "日本", "가", "\u1100\u1161", "1", "٣", "…", "😀", "\u200d", "\u00a0", "\u3000", "ſ", "İ", "ß", "क्", "ﷺ", "ｶﾞ", "<mask>", "</s>", "<unk>", "▁", "~", "\u00ad", "\u0001", "\u0085", "\u0600", "\u0897"]
r = random.Random(3)
MORE = ["".join(r.choice(BITS) for _ in range(r.randint(1, 16))) for _ in range(300)]


def varint(b, i):
    n = s = 0
    while True:
        n |= (b[i] & 127) << s
        s += 7
        i += 1
        if b[i - 1] < 128:
            return n, i


def field(b, want):
    """The bytes of a length-delimited field of a protocol buffer message."""
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        if key & 7 == 0:
            _, i = varint(b, i)
        elif key & 7 == 5:
            i += 4
        elif key & 7 == 1:
            i += 8
        else:
            n, i = varint(b, i)
            if key >> 3 == want:
                return b[i:i + n]
            i += n


def train(**options):
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 3), model_writer=out, model_type="unigram", hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
    sp = spm.SentencePieceProcessor(model_proto=out.getvalue())
    return [(sp.id_to_piece(i), sp.get_score(i)) for i in range(sp.get_piece_size())], out.getvalue()


def finish(name, pieces, unk, configure):
    t = Tokenizer(models.Unigram(pieces, unk, configure.get("bytes", False)))
    if configure.get("normalizer"):
        t.normalizer = configure["normalizer"]
    t.pre_tokenizer = configure["pre"]
    ids = {p: i for i, (p, _) in enumerate(pieces)}
    t.add_special_tokens([AddedToken("<s>", normalized=False), AddedToken("<pad>", normalized=False), AddedToken("</s>", normalized=False), AddedToken("<mask>", lstrip=True, normalized=True)])
    if configure.get("post"):
        t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))])
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    with open(os.path.join(HERE, name, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    planes, lines = [], []
    for c in range(0x30000):
        if not 0xD800 <= c < 0xE000:
            x = chr(c)
            lines.append(" ".join(map(str, t.encode("a%sb %s%s1%s\n%s' %s's" % (x, x, x, x, x, x)).ids)))
        if c % 4096 == 4095:
            planes.append(hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16])
            lines = []
    return {"size": t.get_vocab_size(), "ids": [t.encode(s).ids for s in ALL + MORE], "planes": planes}


big, proto = train(vocab_size=700, normalization_rule_name="nmt_nfkc", character_coverage=0.98)
charsmap = field(field(proto, 3), 2)
# XLM-R's order of the first ids.
xlmr = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [p for p in big if p[0] not in ("<s>", "</s>", "<unk>")]
golden = {"by": "tokenizers " + tokenizers.__version__, "more": MORE, "unigram": {}}
golden["unigram"]["xlmr"] = finish("xlmr", xlmr, 3, {
    "normalizer": normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")]),
    "pre": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), "post": True})
small, _ = train(vocab_size=700, normalization_rule_name="identity", byte_fallback=True, character_coverage=0.98)
golden["unigram"]["plain"] = finish("plain", small, 0, {
    "normalizer": normalizers.Sequence([normalizers.Strip(left=False, right=True), normalizers.Replace("the", "The")]),
    "pre": pre_tokenizers.Metaspace(prepend_scheme="always", split=False), "bytes": True})
golden["unigram"]["first"] = finish("first", small, 0, {"pre": pre_tokenizers.Metaspace(prepend_scheme="first", split=True)})
with open(os.path.join(HERE, "unigram.json"), "w", encoding="utf-8") as f:
    json.dump(golden, f, ensure_ascii=True, separators=(",", ":"))
    f.write("\n")
