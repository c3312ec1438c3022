"""Writes raw bytes, zero and 255 among them, to standard output."""

import sys

import torch

torch.manual_seed(1)
values = (torch.rand(16) * 255).to(torch.uint8)
print("header", flush=True)
sys.stdout.buffer.write(b"\x00\xff\xfe\r\n\x80" + values.numpy().tobytes() + b"\x00")
sys.stdout.buffer.flush()
print("\nsum", int(values.sum()))
