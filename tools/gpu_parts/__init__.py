"""What `tools/gpu.py` runs on a machine with a CUDA device: its parts, and what starts, limits and records them."""
