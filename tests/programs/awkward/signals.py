"""Installs signal handlers and sends itself the signals."""

import os
import signal
import time

import torch

came = []


def handler(number, frame):
    came.append((signal.Signals(number).name, float(torch.ones(3).sum())))


before = signal.signal(signal.SIGUSR1, handler)
signal.signal(signal.SIGALRM, handler)
print("SIGUSR1 was default:", before == signal.SIG_DFL)
print("SIGINT raises:", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print("SIGTERM was default:", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)

torch.manual_seed(1)
os.kill(os.getpid(), signal.SIGUSR1)
total = torch.zeros(4)
while len(came) < 1:
    time.sleep(0.01)
signal.setitimer(signal.ITIMER_REAL, 0.1)
while len(came) < 2:
    torch.zeros(64).cos().sum()
for _ in range(10):
    total += torch.randn(4).sin()
print(came)
print(total.tolist())

try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted, and carries on")
