import numba
import numpy as np
import torch


@numba.njit
def running_mean(values, width):
    means = np.empty(len(values) - width + 1)
    for start in range(len(means)):
        means[start] = values[start : start + width].mean()
    return means


@numba.vectorize(["float64(float64, float64)"])
def hypotenuse(a, b):
    return (a * a + b * b) ** 0.5


@numba.njit
def draw(seed):
    np.random.seed(seed)
    return np.random.random(3)


values = np.linspace(0, 1, 50)
means = running_mean(values, 5)
print(means[:4], hypotenuse(values, values).sum(), draw(4))
torch.manual_seed(0)
print(torch.nn.Linear(46, 1)(torch.tensor(means).float()).item())
