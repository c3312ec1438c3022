"""Trains eight steps with draws of every kind; saves after four, or goes on from there. Prints the bits."""

import random
import sys

import numpy
import torch

import samerun


def main(how, path):
    samerun.seed_everything(11)
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.3), torch.nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if how == "resume":
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
        samerun.load_state_dict(saved["samerun"])
    for step in range(first, 8):
        if how == "save" and step == 4:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save({**state, "samerun": samerun.state_dict()}, path)
            return
        data = torch.randn(5, 6) * random.gauss(1, 0.1) + numpy.random.standard_normal()
        augment = samerun.stream("augment")
        data = data * augment.python.uniform(0.9, 1.1) + augment.numpy.normal()
        data = data + torch.rand(data.shape, generator=augment.torch)
        if step > 5:  # first drawn from after the interruption
            data = data + samerun.stream("late").numpy.random() + samerun.stream("mine", seed=3).python.random()
        loss = model(data.float()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    print("weights", [number.hex() for weight in model.parameters() for number in weight.flatten().tolist()])


main(*sys.argv[1:])
