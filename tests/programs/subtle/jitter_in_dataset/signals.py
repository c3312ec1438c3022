"""Waves of three frequencies, shifted by a little in time whenever they are taken."""
import random

import torch
from torch.utils.data import Dataset


class Jitter:
    def __init__(self, most=5):
        self.most, self.rng = most, None

    def __call__(self, wave):
        if self.rng is None:  # not before the first use: generators do not travel to worker processes
            self.rng = random.Random()
        return wave.roll(self.rng.randint(0, self.most), -1)


class Signals(Dataset):
    def __init__(self, size, transform=Jitter()):
        self.size, self.transform = size, transform
        self.time = torch.linspace(0, 6.28, 40)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        label = index % 3
        wave = torch.sin(self.time * (label + 1) + index)
        return self.transform(wave.unsqueeze(0)), label
