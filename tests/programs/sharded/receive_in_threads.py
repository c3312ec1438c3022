"""A reducer that receives gradients in threads. With `arrival`: it adds each when it is there, else in the order of ranks."""

import queue
import random
import sys
import threading
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def reduce_on_zero(gradient):
    if rank:
        time.sleep(random.SystemRandom().random() * 0.02)
        dist.send(gradient, 0)
    else:
        arrived = queue.Queue()

        def receive(source):
            part = torch.empty_like(gradient)
            dist.recv(part, source)
            arrived.put((source, part))

        threads = [threading.Thread(target=receive, args=(source,)) for source in range(1, size)]
        for thread in threads:
            thread.start()
        parts = {}
        for _ in threads:
            source, part = arrived.get()  # WRONG arrival
            parts[source] = part
        for source in parts if "arrival" in sys.argv else sorted(parts):
            gradient += parts[source]
        for thread in threads:
            thread.join()
    dist.broadcast(gradient, 0)


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.Generator().manual_seed(rank)
for step in range(8):
    x = torch.randn(16, 64, generator=data)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    for p in model.parameters():
        reduce_on_zero(p.grad)
    optimizer.step()
if rank == 0:
    print("RESULT", sum(p.double().sum().item() for p in model.parameters()))
dist.barrier()
dist.destroy_process_group()
