# {"cause": "none", "differs": [], "culprit_line": null, "source": "evolution over imap_unordered, whose results are sorted; the pool kills its workers at the end", "reads": ["clock"]}
# trials of a search run in a pool of processes, and the next ones are made from the results by their numbers
import multiprocessing
import time

import torch
from torch import nn


def train(job):
    number, rate = job
    torch.manual_seed(number)
    layer = nn.Linear(6, 1)
    x = torch.randn(64, 6)
    y = x.square().sum(1, keepdim=True)
    for _ in range(10 + 30 * (number % 3)):
        loss = (layer(x) - y).square().mean()
        gradients = torch.autograd.grad(loss, list(layer.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(layer.parameters(), gradients):
                parameter -= rate * gradient
    return number, rate, loss.item()


def main():
    started = time.time()
    draws = torch.Generator().manual_seed(5)
    jobs = [(number, 0.01 * (number + 1)) for number in range(6)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        for generation in range(1, 4):
            results = []
            # each has its number
            for result in pool.imap_unordered(train, jobs):
                results.append(result)
            results.sort()
            parents = [results[int(torch.randint(6, (1,), generator=draws))] for _ in range(6)]
            jobs = [(6 * generation + n, rate * 1.1) for n, (_, rate, _) in enumerate(parents)]
            print(generation, min(score for *_, score in results))
    print(f"{time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
