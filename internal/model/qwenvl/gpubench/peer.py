"""The peers of gpubench: PyTorch and transformers on the same GPU. Arguments are the figures' names; a line of JSON each
{"name", "value", "peer"} goes to standard output.

Updates: Qwen3 with random weights in bfloat16, SDPA, cross-entropy over every token, fused AdamW without float32 weights; the 4B
shape with gradient checkpointing, which it needs with this head, the 0.6B shape without. Attention: scaled_dot_product_attention
by its flash and cuDNN back ends, the faster one. Head: linear and cross_entropy in bfloat16, with gradients. Operations are counted as gpubench counts them. Medians by CUDA events.
"""
import json
import statistics
import sys

import torch


def tell(name, value, peer):
    print(json.dumps(dict(name=name, value=value, peer=peer)), flush=True)


def median(n, f):
    times = []
    for i in range(n + 2):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        f()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / 1e3)
    return statistics.median(times[2:])


TORCH = "torch " + torch.__version__


def noise(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / 2


def product(name):
    rows, k, out = map(int, name.split()[1].split("x"))
    x, w = noise(rows, k), noise(out, k)
    tell(name, 2 * rows * k * out / median(9, lambda: torch.nn.functional.linear(x, w)) / 1e12, TORCH)


def copy(name):
    x = noise(1 << 31)
    y = torch.empty_like(x)
    tell(name, 4 * x.numel() / median(9, lambda: y.copy_(x)) / 1e9, TORCH)


def attention(name):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    _, n, which = name.split()
    n = int(n)
    flop = 2 * n * n * 32 * 128
    best = (0, "")
    for label, backend in (("FlashAttention-2", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
        try:
            q = noise(1, n, 32, 128).transpose(1, 2).requires_grad_()
            k, v = (noise(1, n, 8, 128).transpose(1, 2).requires_grad_() for _ in range(2))
            g = noise(1, n, 32, 128).transpose(1, 2)
            with sdpa_kernel(backend):
                def run():
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                if which == "forward":
                    with torch.no_grad():
                        t = median(9, run)
                    rate = flop / t / 1e12
                else:
                    o = run()
                    t = median(5, lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True))
                    rate = 2.5 * flop / t / 1e12
            best = max(best, (rate, f"{label} by {TORCH}"))
        except RuntimeError as e:
            print(label, e, file=sys.stderr)
    if best[0]:
        tell(name, *best)


def head(name):
    rows, dim, vocab = map(int, name.split()[1].split("x"))
    x, w = noise(rows, dim).requires_grad_(), (noise(vocab, dim) / 16).requires_grad_()
    y = torch.randint(0, vocab, (rows,), device="cuda")
    x.grad, w.grad = torch.zeros_like(x), torch.zeros_like(w)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()

    def run():
        torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w), y).backward()
    tell(name, 6 * rows * dim * vocab / median(5, run) / 1e12, TORCH)
    tell(name + ", scratch", (torch.cuda.max_memory_allocated() - before) / 2**30, TORCH)


def update(name):
    import transformers
    from transformers import Qwen3Config, Qwen3ForCausalLM
    shapes = {"0.6B": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8),
              "4B": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8)}
    _, size, form = name.split()
    seqs, n = map(int, form.split("x"))
    cfg = Qwen3Config(vocab_size=151936, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960, **shapes[size])
    cfg._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(cfg)
    torch.set_default_dtype(torch.float32)
    model.train()
    if size == "4B":
        model.gradient_checkpointing_enable()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    ids = torch.randint(0, 150000, (seqs, n), device="cuda")
    torch.cuda.reset_peak_memory_stats()

    def step():
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        torch.nn.functional.cross_entropy(logits.reshape(-1, 151936), ids[:, 1:].reshape(-1)).backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
    who = f"transformers {transformers.__version__}, {TORCH}" + (", gradient checkpointing" if size == "4B" else "")
    tell(name, seqs * n / median(5, step), who)
    tell(name + ", memory", torch.cuda.max_memory_allocated() / 2**30, who)


for name in sys.argv[1:]:
    measure = dict(product=product, copy=copy, attention=attention, head=head, update=update)[name.split()[0]]
    if ", " in name:
        continue
    try:
        measure(name)
    except torch.OutOfMemoryError as e:
        print(name, e, file=sys.stderr)
    torch.cuda.empty_cache()
