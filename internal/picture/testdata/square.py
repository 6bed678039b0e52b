"""Writes square.json: small images and what torchvision's Resize and CenterCrop make of
them, as Jina-CLIP's image processor puts them together.

    pip install pillow==11.3.0 torchvision==0.26.0 numpy && python square.py
"""
import base64, hashlib, io, json, os
import numpy as np
import PIL, torchvision
from PIL import Image
from torchvision import transforms

HERE = os.path.dirname(os.path.abspath(__file__))
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
r = np.random.RandomState(5)
cases = []
# Larger, smaller, an odd rest on either side, a rest of one and three rows (halves to even), nothing to resize, extreme.
for h, w, side in ((31, 53, 24), (53, 31, 24), (7, 5, 24), (24, 25, 24), (27, 24, 24), (24, 24, 24), (24, 99, 24), (99, 25, 24), (3, 200, 16), (200, 3, 16), (60, 61, 14), (45, 30, 28)):
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([127 + 120 * np.sin(x / 3.0 + y / 5.0), 255.0 * x / w, 255.0 * y / h], -1) + r.normal(0, 9, (h, w, 3))
    im = Image.fromarray(np.clip(a, 0, 255).astype(np.uint8))
    b = io.BytesIO()
    im.save(b, "PNG")
    cut = transforms.Compose([transforms.Resize(side, interpolation=transforms.InterpolationMode.BICUBIC), transforms.CenterCrop((side, side))])(im)
    values = transforms.Normalize(MEAN, STD)(transforms.ToTensor()(cut))
    at = [[int(c), int(y), int(x), float(values[c, y, x])] for c, y, x in zip(r.randint(0, 3, 6), r.randint(0, side, 6), r.randint(0, side, 6))]
    cases.append({"png": base64.b64encode(b.getvalue()).decode(), "side": side, "sha": hashlib.sha256(np.asarray(cut).tobytes()).hexdigest(), "at": at})
with open(os.path.join(HERE, "square.json"), "w") as f:
    json.dump({"by": "Pillow %s, torchvision %s" % (PIL.__version__, torchvision.__version__), "mean": MEAN, "std": STD, "cases": cases}, f, separators=(",", ":"))
    f.write("\n")
