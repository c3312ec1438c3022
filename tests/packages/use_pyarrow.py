import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

moments = [datetime.datetime(2024, 5, day, tzinfo=datetime.timezone.utc) for day in range(1, 9)]
table = pa.table({"when": moments, "value": [0.5 * n for n in range(8)], "name": [f"row{n % 3}" for n in range(8)]})
pq.write_table(table, "rows.parquet")
back = pq.read_table("rows.parquet")
print(back.schema)
print(back.equals(table), pc.sum(back["value"]), back.group_by("name").aggregate([("value", "sum")]).to_pydict())
print(back["when"][0].as_py(), pc.day(back["when"]))
torch.manual_seed(0)
print(torch.nn.Linear(8, 2)(torch.tensor(back["value"].to_pylist())).tolist())
