import dask
import dask.array
import dask.dataframe
import pandas as pd
import torch

array = dask.array.random.default_rng(3).standard_normal((200, 8), chunks=(50, 8))
frame = dask.dataframe.from_pandas(pd.DataFrame({"kind": list("abcd") * 10, "value": range(40)}), npartitions=4)


@dask.delayed
def double(value):
    return 2 * value


print(dask.compute(*[double(n) for n in range(5)], scheduler="threads"))
print(frame.groupby("kind")["value"].sum().compute(scheduler="threads").sort_index().to_dict())
values = array.compute(scheduler="threads")
print(values.sum(), float(dask.array.linalg.norm(array, axis=1).max().compute(scheduler="synchronous")))
torch.manual_seed(0)
print(torch.nn.Linear(8, 1)(torch.tensor(values).float()).sum().item())
