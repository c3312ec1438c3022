# {"switches": [["", "--parts 3"]], "wrong": true}
"""A teacher, whose answers are part of the loss, follows its student with each part of a batch."""

import argparse
import copy
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
parser = argparse.ArgumentParser()
parser.add_argument("--parts", type=int, default=1)
parts = parser.parse_args().parts
torch.manual_seed(0)
student = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
teacher = copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def follow():
    for slow, fast in zip(teacher.parameters(), student.parameters()):
        slow.lerp_(fast, 0.3)


optimizer = torch.optim.SGD(student.parameters(), lr=0.5)
for step in range(4):
    x, y = torch.randn(24, 8), torch.randint(3, (24,))
    optimizer.zero_grad()
    for part_x, part_y in zip(x.chunk(parts), y.chunk(parts)):
        answers = student(part_x)
        with torch.no_grad():
            wanted = teacher(part_x).softmax(-1)
        loss = F.cross_entropy(answers, part_y) + (answers.softmax(-1) - wanted).square().sum(-1).mean()
        (loss / parts).backward()
        if not CLEAN:
            follow()  # WRONG
    optimizer.step()
    if CLEAN:
        follow()
