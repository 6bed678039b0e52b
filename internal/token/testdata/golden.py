"""Writes the tokenizers and golden values of this folder with Hugging Face's own library.

    pip install tokenizers==0.22.2 && python golden.py

Texts, ids and digests go to golden.json; each tokenizer to NAME/tokenizer.json.
"""
import hashlib, json, os, random
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
MARKS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

TEXTS = """The quick brown fox can't jump over 1234567 lazy dogs; they'll've gone by 3.14 o'clock.
I'M SURE IT'S THEIR'S, we'd said, YOU'LL see'em — don't you 'ſee?
def f(x):\n\treturn {'a': x**2,  "b": [1, 22, 333, 4444]}  # tabs\tand   spaces   \n\n\n    pass\r\n\r\n
Größe, Straße, façade, naïve café, Ærøskøbing, İstanbul'da ılık, ŁÓDŹ, Dvořák, Þingvellir.
Ελληνικά: η γρήγορη αλεπού, ΟΔΟΣ· Русский: съешь ещё этих мягких булок; Українська їжак.
日本語のテキスト、カタカナとひらがな。半角ｶﾀｶﾅ 中文文本：你好，世界！繁體字 龍 한국어 문장 조합 각 하나.
العربية: اَلسَّلَامُ عَلَيْكُمْ ١٢٣ עִבְרִית שָׁלוֹם हिन्दी: नमस्ते दुनिया १२३ ไทย: สวัสดีชาวโลก ၁၂၃ தமிழ் বাংলা
emoji 😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈 flags 🇺🇳🇯🇵 keycap 1️⃣ zalgo Z̴͚̈a̷̢͝l̵͇̽g̶̱̊o̴̰͐ math ∑∫√∞≠≤ ½ ² ³ Ⅷ ㊿ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠮷
<think>We need a search.</think>\n<tool_call>\n{"name": "text_search", "arguments": {"query": "Which river?"}}\n</tool_call>
<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n""".split("\n")
TEXTS = [t.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r") for t in TEXTS]
EDGE = ["", " ", "  ", "\n", "\r", " \n", "\n ", " \n \n  x", "\t\tx", "a  b", "a   b", "   a", "a ", "a  ", "a\u00a0b", "\u00a0\u00a0b", "\u3000全角", "\u200bzero", "a\u0301", "e\u0301\u0323 \u0323\u0301",
        "\u1100\u1161\u11a8 가\u11a8", "\u2126\u212b", "\ufb01 \ufb05", "\u0958", "'", "''", "'s", "'S'", "'x", "x's's", "'re're", "'RE", "'lL", " 's", "!'s", "'\u017f", "'\u017ft", "12", "1 2", " 12", "１２３４", "½x", "x½",
        "!!!\n\n", " !!!\r\n", "!\n!", ".\n \n.", "a\u0300" * 40, "x" + "\u0300\u0323" * 40, "a" * 300, "ab" * 200, "the" * 100, "\0\1\2", "\ufffd", "\U0001f600" * 3, "\u2028\u2029\u0085", "a\u200db", "\u0e33", "\u0344",
        "<|im_end|>", "<|im_end|", "<|im_end|><|im_end|>", "x<|im_end|>y", " <|im_end|> ", "<think></think>", "<think", "<<think>>", "a<mask>b", "a <mask> b", " \n<mask>\t b", "<word>", "a<word>", "a <word> b", "<word>s", "é<word>", "é<ñ>é", "<n\u0303>"]


def fuzz(seed, n):
    r, out = random.Random(seed), []
    bits = ["'s", "'LL", " ", "  ", "\n", "\r\n", "\t", "a", "The", "é", "e\u0301", "\u0323", "日本", "가", "1", "23", "٣", "!", "...", "<|im_end|>", "<think>", "<mask>", "<word>", "😀", "\u200d", "\u00a0", "ſ", "İ", "ß", "\u0898", "क्", "[MASK]", "[SEP]", "##", "_", "-"]
    for _ in range(n):
        out.append("".join(r.choice(bits) for _ in range(r.randint(1, 14))))
    return out


ALL = TEXTS + EDGE + fuzz(1, 120)


def sha(s):
    return hashlib.sha256(s.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def planes(pieces):
    """One digest per 4096 code points, over how a text around each is cut."""
    out, lines = [], []
    for c in range(0x30000):
        if not 0xD800 <= c < 0xE000:
            x = chr(c)
            lines.append("|".join(pieces("a%sb %s%s1%s\n%s' %s's" % (x, x, x, x, x, x))))
        if c % 4096 == 4095:
            out.append(sha("\n".join(lines)))
            lines = []
    return out


def save(t, name):
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    with open(os.path.join(HERE, name, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def cases(t):
    plain = [t.encode(s, add_special_tokens=False).ids for s in ALL]
    t.encode_special_tokens = True
    ordinary = [t.encode(s, add_special_tokens=False).ids for s in ALL]
    t.encode_special_tokens = False
    return plain, ordinary


def bpe(name, pattern, size, nfc, ignore=False, prefix_space=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore))
    if nfc:
        t.normalizer = normalizers.NFC()
    if pattern is None:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=True)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[], show_progress=False)
    t.train_from_iterator(TEXTS * 2, trainer)
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=pattern is None), AddedToken("<|im_start|>", normalized=False), AddedToken("<|im_end|>", normalized=False)])
    t.add_tokens([AddedToken(s, normalized=False) for s in ["<think>", "</think>", "<tool_call>", "</tool_call>"]])
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("<word>", single_word=True, normalized=False), AddedToken("<ñ>", normalized=True)])
    save(t, name)
    plain, ordinary = cases(t)
    r = random.Random(7)
    n = t.get_vocab_size()
    random_ids = [[r.randrange(n) for _ in range(r.randint(1, 24))] for _ in range(40)]
    pre = t.pre_tokenizer if pattern is None else pre_tokenizers.Split(Regex(pattern), "isolated")
    text = (lambda s: normalizers.NFC().normalize_str(s)) if nfc else (lambda s: s)
    if pattern is None:
        inverse = {v: k for k, v in byte_table().items()}
        cut = lambda s: [bytes(inverse[c] for c in p).decode() for p, _ in pre.pre_tokenize_str(text(s))]
    else:
        cut = lambda s: [p for p, _ in pre.pre_tokenize_str(text(s))]
    return {"size": n, "ids": plain, "ordinary": ordinary, "merges": json.loads(t.to_str())["model"]["merges"][:0], "decode": [[ids, t.decode(ids, skip_special_tokens=False)] for ids in random_ids],
            "planes": planes(cut) if not prefix_space else None}


def byte_table():
    printable = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table, n = {b: chr(b) for b in printable}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + n)
            n += 1
    return table


def wordpiece(name, **options):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=options.pop("max_chars", 100)))
    t.normalizer = normalizers.BertNormalizer(**options)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False, limit_alphabet=300))
    # Training numbers ties in no fixed order: number anew, sorted.
    names = special + sorted(k for k in t.get_vocab() if k not in special)
    spec = json.loads(t.to_str())
    spec["model"]["vocab"] = {k: i for i, k in enumerate(names)}
    t = Tokenizer.from_str(json.dumps(spec))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    save(t, name)
    cut = lambda s: [p for p, _ in t.pre_tokenizer.pre_tokenize_str(t.normalizer.normalize_str(s))]
    return {"size": t.get_vocab_size(), "ids": [t.encode(s).ids for s in ALL], "planes": planes(cut)}


golden = {"by": "tokenizers " + tokenizers.__version__, "texts": ALL,
          "bpe": {"qwen": bpe("qwen", QWEN, 420, True), "gpt2": bpe("gpt2", None, 420, False), "llama": bpe("llama", LLAMA, 420, False, ignore=True), "marks": bpe("marks", MARKS, 420, True),
                  "prefix": bpe("prefix", None, 300, True, prefix_space=True)},
          "wordpiece": {"uncased": wordpiece("uncased", lowercase=True), "cased": wordpiece("cased", lowercase=False), "lower": wordpiece("lower", lowercase=True, strip_accents=False, handle_chinese_chars=False, max_chars=12)}}
with open(os.path.join(HERE, "golden.json"), "w", encoding="utf-8") as f:
    json.dump(golden, f, ensure_ascii=True, separators=(",", ":"))
    f.write("\n")
