"""Writes tokenizer.json and, for each format, conversations with their text by Jinja and their
ids by Hugging Face's tokenizers: golden.json (Qwen3-VL), qwen25vl.json, qwen25.json.

    pip install tokenizers==0.23.3 jinja2==3.1.6 && python golden.py [QWEN3VL [QWEN25VL [QWEN25]]]

The arguments are files with chat templates; by default those written for this package. The published
templates of Qwen3-VL, Qwen2.5-VL and Qwen2.5, as TRL 1.16.0 ships them, give the same files. Conversations that a template cannot
tell (tools in Qwen2.5-VL's, images in Qwen2.5's) are left out of its file.
"""
import json, os, sys
import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
ADDED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

t = Tokenizer(models.BPE())
t.normalizer = normalizers.NFC()
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
t.decoder = decoders.ByteLevel()
words = "system user assistant tool the river flows through town search query name arguments text_search function\n\n\n \n\n".split(" ") * 3
t.train_from_iterator([" ".join(words)] * 2, trainers.BpeTrainer(vocab_size=330, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
t.add_tokens([AddedToken(s, normalized=False, special=False) for s in ADDED])
with open(os.path.join(HERE, "tokenizer.json"), "w", encoding="utf-8") as f:
    json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
    f.write("\n")

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
FORMATS = [("golden", "../template.jinja"), ("qwen25vl", "qwen25vl.jinja"), ("qwen25", "qwen25.jinja")]


def image(h, w):
    return {"type": "image", "grid": [1, h, w]}


def text(s):
    return {"type": "text", "text": s}


TOOLS = [
    {"type": "function", "function": {"name": "text_search", "description": "Searches \"passages\" – naïve\n\ttabs \\ / <b> \u2028 \x01", "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "k": {"type": "integer", "default": 3, "minimum": -1.5, "x": [None, True, False, [], {}]}}, "required": ["query"]}}},
    {"type": "function", "function": {"name": "lens"}},
]
CALL = {"type": "function", "function": {"name": "text_search", "arguments": {"query": "river – \"x\"", "k": 3}}}
CASES = [
    {"messages": [{"role": "user", "content": "Which river flows through the town?"}], "generate": True},
    {"messages": [{"role": "system", "content": "You are the system."}, {"role": "user", "content": "\n\nLeading lines  "}], "generate": True},
    {"messages": [{"role": "user", "content": [image(4, 6), text("What is this?")]}], "generate": True},
    {"messages": [{"role": "user", "content": [image(2, 2), image(8, 4), text("\nTwo images")]}, {"role": "assistant", "content": "Seen."}, {"role": "user", "content": [image(2, 4), text("")]}], "generate": True},
    {"messages": [{"role": "system", "content": "Sys"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>a</think>\n<tool_call>\n{}\n</tool_call>"}, {"role": "tool", "content": "one"}, {"role": "tool", "content": [image(2, 2), text("two\n")]}, {"role": "assistant", "content": "done"}, {"role": "user", "content": "é <think>"}], "generate": False},
    {"messages": [{"role": "system", "content": "Sys"}, {"role": "user", "content": "q"}], "tools": TOOLS, "generate": True},
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL, CALL]}, {"role": "tool", "content": "r"}], "tools": TOOLS, "generate": True},
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}], "tools": TOOLS[1:], "generate": False},
    {"messages": [{"role": "user", "content": [text("Before "), image(2, 2), text(" between\n"), image(4, 2), image(2, 2), text("after")]}, {"role": "tool", "content": [text("é"), image(2, 2)]}], "generate": True},
    {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": ""}, {"role": "user", "content": ""}], "generate": True},
    {"messages": [{"role": "system", "content": "Sys\n"}, {"role": "user", "content": [image(2, 2), text("q")]}, {"role": "assistant", "content": " a"}, {"role": "tool", "content": [text("r "), image(4, 4), image(2, 2)]}, {"role": "assistant", "content": "b"}], "generate": True},
    {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "q"}], "generate": True},
    {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "q"}], "tools": TOOLS[:1], "generate": True},
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}, {"role": "tool", "content": "r1"}, {"role": "tool", "content": "r2"}, {"role": "user", "content": "more"}], "tools": TOOLS, "generate": True},
]


def told(name, c):
    calls = any("tool_calls" in m for m in c["messages"])
    lists = any(isinstance(m["content"], list) for m in c["messages"])
    return not (name == "qwen25vl" and (calls or "tools" in c) or name == "qwen25" and lists)


for k, (name, own) in enumerate(FORMATS):
    path = sys.argv[k + 1] if len(sys.argv) > k + 1 else os.path.join(HERE, own)
    template = env.from_string(open(path, encoding="utf-8").read())
    out = []
    for c in CASES:
        if not told(name, c):
            continue
        s = template.render(messages=c["messages"], tools=c.get("tools"), add_generation_prompt=c["generate"])
        for m in c["messages"]:
            for p in m["content"] if isinstance(m["content"], list) else []:
                if p["type"] == "image":
                    n = p["grid"][1] * p["grid"][2] // 4
                    s = s.replace("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|>" + "\0" * n + "<|vision_end|>", 1)
        c = dict(c, text=s.replace("\0", "<|image_pad|>"))
        out.append(dict(c, ids=t.encode(c["text"], add_special_tokens=False).ids))
    with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, indent=1)
        f.write("\n")
