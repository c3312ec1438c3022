import matplotlib

matplotlib.use("Agg")
import numpy as np
import pandas as pd
import seaborn
import torch

torch.manual_seed(0)
frame = pd.DataFrame(torch.randn(60, 2).numpy(), columns=["x", "y"]).assign(kind=list("ab") * 30)
grid = seaborn.relplot(frame, x="x", y="y", hue="kind")
axes = seaborn.barplot(frame, x="kind", y="y", seed=3)
grid.savefig("grid.png")
print([np.round(bar.get_height(), 9) for bar in axes.patches], seaborn.color_palette("deep")[0])
