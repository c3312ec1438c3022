"""On whose threads kernels compute: torch's own in the main thread, a pool's elsewhere; the same bits everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from samerun.numerics.kernels import library

PROGRAM = """
import json, os, threading, torch, samerun
from samerun.numerics.kernels import library

torch.set_num_threads(2)
a, b = torch.randn(512, 512).exp(), torch.randn(512, 512)
a @ b  # wakes torch's own threads

def tasks():  # which, not how many: a thread of a library that ends meanwhile hides one that is new
    return set(os.listdir("/proc/self/task"))

def product():
    with samerun.portable():
        return (a @ b).sum().item()

before = tasks()
found = [product()]
after = tasks()
thread = threading.Thread(target=lambda: found.append(product()))
thread.start()
thread.join()
with_pool = tasks()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps([product(), len(tasks())]).encode())
    os._exit(0)
in_child = json.loads(os.read(read, 1000))
os.wait()
found.append(product())
torch.set_num_threads(1)
found.append(product())
started = [len(before), len(after - before), len(with_pool - after)]
print(json.dumps([started, [*found, in_child[0]], in_child[1]]))
"""

pytestmark = pytest.mark.skipif(
    not library.is_available() or not os.path.isdir("/proc/self/task"), reason="counts threads of the C library's"
)


def test_kernels_borrow_torchs_threads_where_they_may() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    (before, by_main_thread, by_another), found, tasks_of_child = json.loads(done.stdout)
    assert len(found) == 5 and len(set(found)) == 1
    assert before >= 2
    assert by_main_thread == 0, "the main thread has torch's threads and starts none"
    assert by_another >= 1, "another thread computes with workers of a pool"
    assert tasks_of_child == 2, "a forked child cannot use torch's threads: it has workers of its own"
