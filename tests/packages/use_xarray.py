import numpy as np
import pandas as pd
import torch
import xarray as xr

times = pd.date_range("2024-01-01", periods=24, freq="h")
values = xr.DataArray(
    np.arange(72.0).reshape(24, 3), dims=("time", "site"), coords={"time": times, "site": list("abc")}, name="t"
)
print(values.resample(time="6h").mean().sel(site="b").values, values.groupby("time.hour").max().sum().item())
print(values.sel(time="2024-01-01T05").to_pandas().to_dict(), values.to_dataset().dims["time"])
torch.manual_seed(0)
print(torch.nn.Linear(3, 1)(torch.tensor(values.values).float()).sum().item())
