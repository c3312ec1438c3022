"""Nothing here depends on chance, though much of it looks as if it might."""

import copy
import ctypes
import io
import queue
import threading
import time

import numpy as np
import torch
from torch import nn


def fresh_memory():
    a = torch.empty(4, 3)
    for row in range(4):
        a[row] = row
    b = torch.empty(4, 3).normal_()
    c = torch.add(a, b, out=torch.empty(4, 3))
    d = torch.empty_like(c).copy_(c) + torch.zeros(4, 3).new_empty(4, 3).fill_(2)
    e = torch.empty(6, 3)
    e[torch.tensor([0, 2, 4])] = 1.0
    e.index_copy_(0, torch.tensor([1, 3, 5]), torch.ones(3, 3))
    half = torch.empty(6, 3)
    half[:3] = 1
    grown = torch.cat([half.clone().to(torch.float64), torch.empty(2, 3)])
    grown[3:] = 5
    ring = torch.empty(300_000, 2)
    for at in range(9):
        ring[at] = at
        ring[: at + 1].sum().item()
    mask = torch.zeros(6, dtype=torch.bool)
    mask[:3] = True
    kept = torch.where(mask[:, None], half, torch.zeros(())) * 2
    kept = kept + half.masked_fill(~mask[:, None], 3)
    by_numpy = torch.empty(5)
    by_numpy.numpy()[:] = 0
    by_address = torch.empty(4)
    ctypes.memset(by_address.data_ptr(), 0, 16)
    longer = torch.arange(4.0).resize_(8)
    longer[4:] = 1
    flags = torch.empty(4, dtype=torch.bool)
    flags.random_(2)
    model = nn.utils.skip_init(nn.Linear, 3, 2)
    other = copy.deepcopy(model)
    model.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    other.load_state_dict(model.state_dict())
    file = io.BytesIO()
    torch.save(half, file)
    torch.empty(0).sum()
    return (c + d).sum() + e.sum() + grown.sum() + kept.sum() + (by_numpy + 1).sum() + (by_address * 3).sum() + (
        longer.sum() + flags.sum() + other(c).sum()
    )


def scratch():
    lstm = nn.LSTM(5, 4)
    out, _ = lstm(torch.randn(3, 2, 5))
    norm = nn.BatchNorm1d(4)
    norm(out.flatten(0, 1)).pow(2).sum().backward()
    value, at = torch.randn(4, 4).sort()
    q, _ = torch.linalg.qr(torch.randn(4, 4))
    with torch.profiler.profile(), torch.profiler.record_function("part"):
        (value + q).sum()
    return lstm.weight_hh_l0.grad.sum() + value.sum() + at.sum()


def filled_between():
    buffer = np.zeros((4, 8), dtype=np.float32)
    batch, model = torch.from_numpy(buffer), nn.Linear(8, 1)
    total = torch.zeros(())
    for step in range(3):
        buffer[:] = step
        total = total + model(batch).sum().detach()
    return total


def handed_over():
    slot = np.zeros(1000, dtype=np.float32)
    asked, done = queue.Queue(), queue.Queue()

    def fill():
        while True:
            step = asked.get()
            if step is None:
                return
            slot[:] = step
            done.put(step)

    thread = threading.Thread(target=fill)
    thread.start()
    shared, total = torch.from_numpy(slot), torch.zeros(())
    for step in range(10):
        asked.put(step)
        done.get()
        total = total + shared.sum()
    asked.put(None)
    thread.join()
    return total


def locked():
    """Whole numbers, added up under a lock: the order does not matter."""
    total, lock = torch.zeros(100, dtype=torch.int64), threading.Lock()

    def work(number):
        for step in range(20):
            with lock:
                total.add_(number * step)
            time.sleep(0.0005)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total.sum()


torch.manual_seed(0)
for part in (fresh_memory, scratch, filled_between, handed_over, locked):
    print(part.__name__, part().item())
