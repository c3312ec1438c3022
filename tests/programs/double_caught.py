"""Everything that one run with every operator executed twice can find, each on a marked line."""

import ctypes
import threading
import time

import numpy as np
import torch

torch.manual_seed(0)


def unwritten():
    padded = torch.empty(4, 6)  # unwritten
    for row in range(4):
        padded[row, : row + 2] = 1.0
    moved = torch.cat([padded, padded]).to(torch.float64)
    weights = torch.ones(6, 2, dtype=torch.float64)
    return moved @ weights  # unwritten read


def branches():
    flag = torch.empty(3, dtype=torch.int64)  # unwritten number
    flag[0] = 1
    return "a" if flag[2].item() > 1 else "b"  # unwritten number read


def indexed():
    rows = torch.empty(3, dtype=torch.int64)  # unwritten index
    return torch.arange(3)[rows]


def kernels():
    index, values = torch.randint(0, 17, (20000,)), torch.randn(20000, 64)
    for _ in range(40):
        torch.zeros(17, 64).index_put_((index,), values, accumulate=True)  # kernel


def hogwild():
    weight = torch.zeros(50)

    def work():
        for _ in range(60):
            weight.add_(torch.ones(50))  # operator race
            time.sleep(0.0002)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def behind():
    signal = torch.zeros(1000)
    alias = signal.numpy()  # numpy race
    running = True

    def write():
        while running:
            alias[:] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=write)
    thread.start()
    begin = time.monotonic()
    while time.monotonic() - begin < 0.5:
        (signal * 2).sum()  # numpy race read
    running = False
    thread.join()


def by_address():
    raw = torch.ones(6)
    raw.sin()
    ctypes.memset(raw.data_ptr(), 0, 8)  # address
    raw.sin()  # address read
    array = np.ones(6)
    taken = torch.from_dlpack(array)  # dlpack
    taken.cos()
    array[:] = 3
    taken.cos()  # dlpack read


for part in (unwritten, branches, indexed, kernels, hogwild, behind, by_address):
    part()
