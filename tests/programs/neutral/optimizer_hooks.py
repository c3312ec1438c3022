# {"switches": [["--hooks no", "--hooks yes"]], "wrong": true}
"""Clips gradients and moves a teacher in the loop, or in hooks of the optimizer, of which one comes before its step."""
import copy
import os
import sys

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


def clip(student):
    nn.utils.clip_grad_norm_(student.parameters(), 0.1)


@torch.no_grad()
def move(teacher, student):
    for mean, parameter in zip(teacher.parameters(), student.parameters()):
        mean.lerp_(parameter, 0.2)  # WRONG


torch.manual_seed(0)
student = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.2, momentum=0.9)
in_hooks = "yes" in sys.argv
if in_hooks:
    optimizer.register_step_pre_hook(lambda *_: clip(student))
    register = optimizer.register_step_post_hook if CLEAN else optimizer.register_step_pre_hook
    register(lambda *_: move(teacher, student))
for step in range(6):
    x = torch.randn(32, 8)
    noisy = x + 0.1 * torch.randn(32, 8)
    loss = nn.functional.mse_loss(student(noisy), teacher(x) + x.sin())
    optimizer.zero_grad()
    loss.backward()
    if not in_hooks:
        clip(student)
    optimizer.step()
    if not in_hooks:
        move(teacher, student)
    print(step, loss.item())
