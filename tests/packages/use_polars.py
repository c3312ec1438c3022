from datetime import date, datetime, timedelta

import polars as pl
import torch

frame = pl.DataFrame(
    {
        "start": [datetime(2024, 1, 1) + timedelta(hours=6 * n) for n in range(12)],
        "kind": ["a", "b", "c"] * 4,
        "value": [n * 0.5 for n in range(12)],
    }
)
result = (
    frame.lazy()
    .filter(pl.col("start") > datetime(2024, 1, 1, 3))
    .with_columns(pl.col("start").dt.date().alias("day"), pl.lit(date(2024, 1, 2)).alias("other"))
    .group_by("kind")
    .agg(pl.col("value").sum(), pl.col("day").max())
    .sort("kind")
    .collect()
)
print(result)
torch.manual_seed(0)
x = torch.from_numpy(frame["value"].to_numpy().copy()).float().unsqueeze(1)
print(torch.nn.Linear(1, 3)(x).relu().sum().item())
