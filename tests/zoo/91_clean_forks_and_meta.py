# {"cause": "none", "differs": [], "culprit_line": null, "source": "threads that fork as they come; draws that take no random number"}
# clean: which thread forks first changes from run to run, and meta tensors draw nothing from the unseeded generator
import os
import threading

import torch


def work(number):
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            torch.full((3,), float(number)) + 1
            os._exit(0)
        os.waitpid(pid, 0)


torch.seed()
torch.nn.functional.dropout(torch.randn(3, device="meta"))
with torch.device("meta"):
    torch.nn.Linear(3, 3)
torch.manual_seed(0)
threads = [threading.Thread(target=work, args=(number,), name=f"forking{number}") for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print((torch.randn(3) + 1).sum().item())
