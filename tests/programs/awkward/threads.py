"""Threads that compute at the same time, each with its own generator; results in order."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

meeting = threading.Barrier(4)


def work(number):
    generator = torch.Generator().manual_seed(number)
    weight = torch.randn(8, 8, generator=generator, requires_grad=True)
    meeting.wait()
    for _ in range(20):
        loss = (weight @ torch.randn(8, 8, generator=generator)).tanh().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= 0.01 * gradient
    return weight.sum().item()


with ThreadPoolExecutor(max_workers=4) as pool:
    for number, result in enumerate(pool.map(work, range(4))):
        print(number, result)

results = {}
plain = [threading.Thread(target=lambda n=n: results.update({n: work(n)}), daemon=True) for n in range(4)]
for thread in plain:
    thread.start()
for thread in plain:
    thread.join()
print([results[number] for number in sorted(results)])
