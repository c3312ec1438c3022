import hashlib

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter, ImageOps

image = Image.new("RGB", (48, 48), "navy")
draw = ImageDraw.Draw(image)
draw.ellipse((8, 8, 40, 40), fill="orange")
draw.text((2, 2), "same", fill="white")
image.save("image.png")
image.save("image.jpg", quality=90)
back = Image.open("image.jpg").convert("L").resize((16, 16), Image.Resampling.BICUBIC)
pixels = np.asarray(ImageOps.autocontrast(back.rotate(30).filter(ImageFilter.GaussianBlur(1))))
print(hashlib.sha256(pixels.tobytes()).hexdigest(), Image.open("image.png").size, image.histogram()[:3])
torch.manual_seed(0)
print(torch.nn.Conv2d(1, 2, 3)(torch.tensor(pixels)[None, None].float()).sum().item())
