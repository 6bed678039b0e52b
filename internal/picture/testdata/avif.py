#!/usr/bin/env python3
"""Makes avif-*.avif: four quarters of colour in every orientation, with and
without alpha, and 10 bits if the encoder has them.

python -m pip install pillow==13.0.0
"""
import io
import pathlib

from PIL import Image

here = pathlib.Path(__file__).parent
im = Image.new("RGB", (48, 32))
for x in range(48):
    for y in range(32):
        im.putpixel((x, y), [(220, 30, 40), (40, 200, 60), (30, 60, 210), (230, 220, 50)][(x >= 24) + 2 * (y >= 16)])
for o in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = o
    im.save(here / f"avif-{o}.avif", quality=95, subsampling="4:4:4", exif=exif)
a = im.convert("RGBA")
a.putalpha(Image.linear_gradient("L").resize((48, 32)).point(lambda v: 0 if v < 128 else 255))
a.save(here / "avif-alpha.avif", quality=95, subsampling="4:4:4")
