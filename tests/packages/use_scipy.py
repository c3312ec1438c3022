import numpy as np
import torch
from scipy import integrate, linalg, ndimage, optimize, signal, sparse, special, stats

rng = np.random.default_rng(0)
matrix = rng.standard_normal((12, 12))
print(linalg.svdvals(matrix)[:3].round(8), integrate.quad(np.cos, 0, 1)[0], special.gamma(0.5))
print(optimize.minimize(optimize.rosen, [1.3, 0.7, 0.8]).x.round(4))
print(stats.norm.rvs(size=3, random_state=7), stats.ttest_ind(matrix[0], matrix[1]).pvalue)
print(signal.butter(3, 0.2)[0], ndimage.gaussian_filter(matrix, 1.0).sum().round(8))
graph = sparse.random(20, 20, density=0.2, random_state=3, format="csr")
print(graph.nnz, (graph @ np.ones(20)).sum())
torch.manual_seed(0)
print(torch.nn.Linear(12, 2)(torch.tensor(matrix).float()).sum().item())
