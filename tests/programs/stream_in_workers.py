"""Prints, as JSON, what the workers of a DataLoader draw: a list for each of two epochs."""

import json
import sys

import torch

import samerun


class Draws(torch.utils.data.Dataset):
    def __init__(self, way):
        self.way = way
        self.stream = samerun.stream("augment")
        self.held = self.stream.numpy, self.stream.python, self.stream.torch

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if self.way == "held":
            numpy, python, generator = self.held
        else:
            stream = self.stream if self.way == "object" else samerun.stream("augment")
            numpy, python, generator = stream.numpy, stream.python, stream.torch
        return [numpy.random(), python.random(), torch.rand(1, generator=generator, dtype=torch.float64).item()]


if __name__ == "__main__":
    context, way = sys.argv[1:]
    samerun.seed_everything(0)
    loader = torch.utils.data.DataLoader(
        Draws(way),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=context,
        generator=samerun.stream("loader").torch,
    )
    samerun.stream("augment").python.random()  # what the parent drew is nothing to the workers
    print(json.dumps([[number for sample in loader for number in sample] for _ in range(2)]))
