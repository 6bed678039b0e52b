"""Writes golden.json: small image files and what Pillow and numpy make of them.

    pip install pillow==11.3.0 numpy && python golden.py

Pillow 13 resizes some portraits rows first; all before it, columns first.
"""
import base64, hashlib, io, json, math, os, random
import numpy as np
import PIL
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
r = np.random.RandomState(3)


def scene(h, w):
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([127 + 120 * np.sin(x / 5.0 + y / 9.0), 255.0 * x / w, 255.0 * y / h], -1)
    a[h // 4 : h // 2, w // 3 : w // 2] = (250, 10, 30)
    return np.clip(a + r.normal(0, 6, a.shape), 0, 255).astype(np.uint8)


def sha(a):
    return hashlib.sha256(np.ascontiguousarray(a, dtype=np.uint8).tobytes()).hexdigest()


def data(im, fmt, **kw):
    b = io.BytesIO()
    im.save(b, fmt, **kw)
    return b.getvalue()


def rgb(raw):
    im = Image.open(io.BytesIO(raw))
    if im.mode in ("LA", "RGBA", "PA") or "transparency" in im.info:
        im = im.convert("RGBA")
        white = Image.new("RGB", im.size, (255, 255, 255))
        white.paste(im, mask=im.split()[3])
        return white
    return im.convert("RGB")


files = []


def add(name, raw, exact, want=None):
    im = want or rgb(raw)
    files.append({"name": name, "data": base64.b64encode(raw).decode(), "w": im.size[0], "h": im.size[1], "sha": sha(np.asarray(im)) if exact else "", "rgb": "" if exact else base64.b64encode(np.asarray(im).tobytes()).decode()})


base = Image.fromarray(scene(19, 26))
alpha = base.copy()
alpha.putalpha(Image.fromarray(np.mgrid[0:19, 0:26][1].astype(np.uint8) * 10))
add("png rgb", data(base, "PNG"), True)
add("png rgba", data(alpha, "PNG"), True)
add("png gray", data(base.convert("L"), "PNG"), True)
add("png gray alpha", data(alpha.convert("LA"), "PNG"), True)
add("png palette", data(base.quantize(16), "PNG"), True)
p = base.quantize(16)
add("png palette transparent", data(p, "PNG", transparency=3), True)
add("png 1 bit", data(base.convert("1"), "PNG"), True)
add("bmp", data(base, "BMP"), True)
add("gif", data(base.quantize(16), "GIF"), True)
add("gif of two frames", data(base.quantize(16), "GIF", save_all=True, append_images=[Image.new("P", base.size)]), True)
add("webp lossless", data(base, "WEBP", lossless=True), True)
add("webp lossless alpha", data(alpha, "WEBP", lossless=True, exact=True), True)
add("webp", data(base, "WEBP", quality=95), True)
add("webp alpha", data(alpha, "WEBP", quality=95), True)
for h, w in ((1, 1), (2, 3), (3, 2), (5, 4), (4, 5), (16, 17)):
    small = Image.fromarray(scene(h, w))
    add("webp %dx%d" % (h, w), data(small, "WEBP", quality=95), True)
    for sub in (1, 2):
        add("jpeg %dx%d subsampling %d" % (h, w, sub), data(small, "JPEG", quality=98, subsampling=sub), False)
add("jpeg gray", data(base.convert("L"), "JPEG", quality=95), False)
add("jpeg 444", data(base, "JPEG", quality=95, subsampling=0), False)
add("jpeg 420", data(base, "JPEG", quality=95, subsampling=2), False)
add("jpeg progressive", data(base, "JPEG", quality=95, progressive=True, subsampling=0), False)
add("jpeg cmyk", data(base.convert("CMYK"), "JPEG", quality=98), False)
from PIL import ImageOps

for o in range(1, 9):
    for fmt in ("PNG", "WEBP", "JPEG"):
        if fmt != "JPEG" and o not in (3, 6, 7):
            continue
        e = Image.Exif()
        e[0x0112] = o
        kw = {"lossless": True} if fmt == "WEBP" else {"subsampling": 0, "quality": 98} if fmt == "JPEG" else {}
        raw = data(base, fmt, exif=e, **kw)
        add("%s orientation %d" % (fmt.lower(), o), raw, fmt != "JPEG", ImageOps.exif_transpose(Image.open(io.BytesIO(raw))).convert("RGB"))

resizes = []
for (h, w), (h2, w2) in [((19, 26), (38, 52)), ((19, 26), (7, 9)), ((19, 26), (19, 13)), ((19, 26), (40, 26)), ((97, 61), (32, 32)), ((5, 200), (32, 64)), ((1, 1), (8, 8)), ((300, 211), (28, 28))]:
    a = scene(h, w) if h < 300 else r.randint(0, 2, (h, w, 3)).astype(np.uint8) * 255
    im = Image.fromarray(a)
    resizes.append({"h": h, "w": w, "png": base64.b64encode(data(im, "PNG")).decode(), "h2": h2, "w2": w2, "sha": sha(np.asarray(im.resize((w2, h2), Image.BICUBIC)))})


def smart(h, w, f, lo, hi):  # as transformers' processors have it
    if max(h, w) / min(h, w) > 200:
        return None
    a, b = round(h / f) * f, round(w / f) * f
    if a * b > hi:
        beta = math.sqrt(h * w / hi)
        a, b = max(f, math.floor(h / beta / f) * f), max(f, math.floor(w / beta / f) * f)
    elif a * b < lo:
        beta = math.sqrt(lo / (h * w))
        a, b = math.ceil(h * beta / f) * f, math.ceil(w * beta / f) * f
    return a, b


sizes = []
q = random.Random(4)
for f, lo, hi in ((28, 3136, 12845056), (32, 65536, 16777216), (32, 1024, 65536), (16, 256, 4096)):
    for _ in range(60):
        h = int(math.exp(q.uniform(0, 9)))
        w = int(math.exp(q.uniform(0, 9)))
        sizes.append([h, w, f, lo, hi, list(smart(h, w, f, lo, hi) or [])])
    for k in range(1, 9):
        h = f * k + f // 2
        sizes.append([h, f * 9, f, lo, hi, list(smart(h, f * 9, f, lo, hi))])

# Patches the way the image processor of Qwen-VL cuts them: reshape and transpose.
ps, ms, tp = 16, 2, 2
im = Image.fromarray(scene(70, 110))
h2, w2 = smart(70, 110, ps * ms, 1024, 65536)
x = np.asarray(im.resize((w2, h2), Image.BICUBIC)).astype(np.float64) / 255
x = ((x - 0.5) / 0.5).astype(np.float32).transpose(2, 0, 1)[None]
x = np.concatenate([x] * tp, 0)
gh, gw = h2 // ps, w2 // ps
x = x.reshape(1, tp, 3, gh // ms, ms, ps, gw // ms, ms, ps).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(gh * gw, -1)
level = np.rint((x + 1) * 127.5).astype(np.uint8)  # back to levels, so that a digest is stable
patches = {"png": base64.b64encode(data(im, "PNG")).decode(), "grid": [1, gh, gw], "sha": sha(level), "at": [[int(i), int(j), float(x[i, j])] for i, j in zip(r.randint(0, x.shape[0], 40), r.randint(0, x.shape[1], 40))]}

with open(os.path.join(HERE, "golden.json"), "w") as f:
    json.dump({"by": "Pillow %s, numpy %s" % (PIL.__version__, np.__version__), "files": files, "resizes": resizes, "sizes": sizes, "patches": patches}, f, separators=(",", ":"))
    f.write("\n")
