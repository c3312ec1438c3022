"""Messages from whoever is first, whose header says how long the rest is, which is then received from that rank.

With `arrival`: they are added in the order in which they came, else in the order of ranks. With `early`: what was
received is used before it was waited for.
"""

import random
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
data = torch.Generator().manual_seed(rank)
total = torch.zeros(64)
for step in range(6):
    if rank == 0:
        inbox, works = {}, []
        for _ in range(size - 1):
            header = torch.empty(1, dtype=torch.long)
            source = dist.recv(header, tag=1)  # WRONG arrival
            body = torch.zeros(int(header))
            receiving = dist.irecv(body, source, tag=2)  # WRONG early
            works.append(receiving) if "early" in sys.argv else receiving.wait()
            inbox[source] = body
        for source in inbox if "arrival" in sys.argv else sorted(inbox):
            total += inbox[source]
        for work in works:
            work.wait()
    else:
        time.sleep(random.SystemRandom().random() * 0.1)
        dist.send(torch.tensor([64]), 0, tag=1)
        time.sleep(random.SystemRandom().random() * 0.01)
        dist.send(torch.randn(64, generator=data), 0, tag=2)
    dist.broadcast(total, 0)
if rank == 0:
    print("RESULT", total.double().sum().item())
dist.destroy_process_group()
