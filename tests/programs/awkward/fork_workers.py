"""Two forked DataLoader workers."""

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Noisy(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return index, get_worker_info().id, torch.randn(3) + index


def main():
    torch.manual_seed(1)
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2, multiprocessing_context="fork")
    weight = torch.ones(3, requires_grad=True)
    for indices, workers, values in loader:
        loss = (values * weight).tanh().sum()
        loss.backward()
        print(indices.tolist(), workers.tolist(), values.sum().item())
    print(weight.grad.tolist())


if __name__ == "__main__":
    main()
