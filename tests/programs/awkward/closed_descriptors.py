"""Closes every descriptor but the first three, as daemons do, and opens files of its own; a fork does the same."""

import os
import tempfile

import torch

torch.manual_seed(0)


def open_many(folder, name):
    paths = [os.path.join(folder, f"{name}-{number}") for number in range(200)]
    files = [os.open(path, os.O_RDWR | os.O_CREAT, 0o644) for path in paths]
    ours = os.open(os.path.join(folder, f"{name}-ours"), os.O_RDWR | os.O_CREAT, 0o644)
    files += [os.dup2(ours, number, False) for number in range(700, 1000)]
    return files, [*paths, os.path.join(folder, f"{name}-ours")]


def work():
    for _ in range(300):
        x = torch.randn(3) + 1
    return float(x.sum())


print(work())
with tempfile.TemporaryDirectory() as folder:
    for attempt in ("first", "second"):
        os.closerange(3, 4096)
        files, paths = open_many(folder, attempt)
        print(work())
        print(sum(os.path.getsize(path) for path in paths), sorted(files) == sorted(set(files)))
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 4096)
        files, paths = open_many(folder, "child")
        value = work()
        os._exit(0 if sum(os.path.getsize(path) for path in paths) == 0 else 7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(sum(os.path.getsize(path) for path in paths))
    print(all(os.fstat(number) for number in files))
