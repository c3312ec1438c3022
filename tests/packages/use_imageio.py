import imageio.v3 as imageio
import numpy as np
import torch

torch.manual_seed(0)
frames = (torch.rand(3, 24, 24, 3) * 255).to(torch.uint8).numpy()
imageio.imwrite("frames.gif", frames, loop=0)
imageio.imwrite("frame.png", frames[0])
back = imageio.imread("frame.png")
print(imageio.imread("frames.gif").shape, np.array_equal(back, frames[0]), imageio.improps("frame.png").dtype)
print(torch.nn.Conv2d(3, 1, 3)(torch.tensor(back).permute(2, 0, 1)[None].float()).sum().item())
