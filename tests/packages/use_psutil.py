import os

import psutil
import torch

process = psutil.Process()
before = process.memory_info().rss
torch.manual_seed(0)
x = torch.randn(256, 256)
loss = (x @ x).square().mean()
print(process.pid == os.getpid(), process.is_running(), process.memory_info().rss > 0, before > 0)
print(psutil.cpu_count() == os.cpu_count(), psutil.boot_time() > 1e9, process.create_time() > 1e9, loss.item())
