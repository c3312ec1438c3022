import numpy as np
import torch
import zarr

root = zarr.open_group("rows.zarr", mode="w")
rows = root.create_array("rows", shape=(32, 4), chunks=(8, 4), dtype="float32")
rows[:] = np.arange(128, dtype=np.float32).reshape(32, 4)
rows.attrs["unit"] = "m"
back = zarr.open_group("rows.zarr", mode="r")["rows"]
print(back.shape, dict(back.attrs), float(back[::3].sum()))
torch.manual_seed(0)
print(torch.nn.Linear(4, 1)(torch.tensor(back[:])).sum().item())
