# {"switches": [["--workers 0", "--workers 2"]], "wrong": true}
"""Noise that is drawn in workers, and in the main process without."""
import os, sys, random
import torch
from torch.utils.data import Dataset, DataLoader

class Noisy(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(6, generator=g)
        if os.environ.get("CLEAN"):
            x = x + 0.1 * torch.randn(6, generator=g)
        else:
            x = x + 0.1 * torch.randn(6)  # WRONG
        return x, x.sum()

def run(workers):
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 1)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    dl = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(4))
    for x, y in dl:
        loss = (model(x).squeeze(1) - y).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

if __name__ == "__main__":
    run(int(sys.argv[2]))
