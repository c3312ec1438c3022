import joblib
import numpy as np
import torch

memory = joblib.Memory("cache", verbose=0)


@memory.cache
def features(seed):
    return np.random.default_rng(seed).standard_normal(6)


def slow_square(value):
    return value * value


rows = joblib.Parallel(n_jobs=2)(joblib.delayed(slow_square)(n) for n in range(6))
with joblib.parallel_backend("threading", n_jobs=2):
    more = joblib.Parallel()(joblib.delayed(slow_square)(n) for n in range(6))
joblib.dump({"rows": rows, "more": more}, "rows.joblib", compress=3)
print(joblib.load("rows.joblib"), joblib.hash(np.arange(5)), features(3).sum(), features(3).sum())
torch.manual_seed(0)
print(torch.nn.Linear(6, 1)(torch.tensor(rows).float()).item())
