"""Steps guarded by peers: RANKS TRIALS LAYOUT. Trials come as JSON, `[rank, kind, at, bit, how often]` each, and results
go as JSON, by trial. Layout: "ddp", "fsdp" (fully_shard), "tensor" parallel.

kind: "result", "gradient", "state", "collective", or "" for no fault; "reads rank", "draws by rank" for a program that
is another one on each rank; "hook" with samerun's; "uneven" and "flat" for shards that cannot be exchanged; "clean" for
`at` steps, each of them checked.
rank: -1 for all. How often: "once" or "always".
"""

import contextlib
import ctypes
import json
import os
import sys
import tempfile
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

import samerun
from samerun.record.watching import torch_internals
from samerun.record.watching.watched_operator import WatchedOperator

STRUCK, STEPS = 3, 4


class Fault(TorchDispatchMode):
    """A machine that computes wrong: at the operator, gradient, state or collective with this number."""

    def __init__(self, kind, at, bit, often):
        super().__init__()
        self.kind, self.at, self.bit, self.often = kind, at, bit, often
        self.count, self.struck, self.armed = 0, 0, False

    def begin(self):
        self.armed = True
        if self.often == "always":
            self.count = 0  # the same place in each computation

    def strike(self, kind, tensors):
        for tensor in tensors:
            tensor = getattr(tensor, "_local_tensor", tensor)
            if self.armed and kind == self.kind and tensor.numel() and tensor.is_contiguous():
                if self.count == self.at:
                    # Not by an operator, which would be digested; nor through numpy, whose memory FSDP2 cannot resize.
                    address = tensor.data_ptr() + self.bit // 8 % (tensor.numel() * tensor.element_size())
                    ctypes.c_uint8.from_address(address).value ^= 1 << self.bit % 8
                    self.struck += 1
                self.count += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch_internals.is_on_fake_tensors():
            return func(*args, **(kwargs or {}))
        if any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented  # of a DTensor: the operators on what it is made of come here too
        out = func(*args, **(kwargs or {}))
        name = str(func)
        if name.startswith("c10d."):
            if self.armed and self.kind == "collective":
                torch._C._distributed_c10d.Work.unbox(out[-1]).wait()
                self.strike("collective", args[0] if isinstance(args[0], list) else [args[0]])
        elif name.startswith("_c10d_functional."):
            self.strike("collective", [out] if "wait" in name else [])
        elif self.armed and self.kind == "result" and not is_gloo_copying():
            operator = WatchedOperator(func, None, None)
            if not operator.silent and not operator.allocates:
                results = list(out) if isinstance(out, (list, tuple)) else [out]
                results = results if out is not None else operator.flatten_written_arguments(args, kwargs)
                # A wrong index would end this rank with an exception, and the others would wait for it.
                self.strike("result", [each for each in results if torch.is_tensor(each) and each.is_floating_point()])
        return out


def is_gloo_copying():
    """Whether an operator is the copy that gloo makes of a result when it is waited for."""
    return any(frame.name == "_wait" for frame in traceback.extract_stack(limit=8))


def train(rank, fault, on_mismatch, folder):
    samerun.seed_everything(0)
    kind = fault.kind if fault else ""
    layout = {"uneven": "fsdp", "flat": "flat"}.get(kind, sys.argv[3])
    classes = 5 if kind == "uneven" else 6
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, classes))
    if layout == "fsdp":
        fully_shard(model[0])
        fully_shard(model)
    elif layout == "flat":
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    elif layout == "tensor":
        rank = 0  # what parts of the same products are multiplied with
        whole = ColwiseParallel(output_layouts=Replicate())
        parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), {"0": whole, "4": whole})
    else:
        model = nn.parallel.DistributedDataParallel(model)
    if fault and fault.kind == "hook":
        samerun.ddp_comm_hook(model)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
    own = torch.Generator().manual_seed(10 + rank)
    torch.manual_seed(rank)

    def step(x):
        if guard is not None and guard.steps == STRUCK and fault:
            fault.begin()
        x.mul_(1.5)
        if fault and fault.kind == "draws by rank":
            torch.manual_seed(rank)
        if fault and fault.kind == "reads rank":
            x = x + torch.tensor(float(rank))
        x = x + torch.rand(x.shape, generator=own) + torch.rand(x.shape, generator=noise.torch)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), torch.arange(len(x)) % 2)
        loss.backward()
        if fault:
            fault.strike("gradient", [each.grad for each in model.parameters()])
        opt.step()
        schedule.step()
        if fault:
            fault.strike("state", [each for state in opt.state.values() for each in state.values()])
            fault.armed = False
        return loss.detach()

    every, steps = (1, fault.at) if fault and fault.kind == "clean" else (2, STEPS)
    noise = samerun.stream("noise", rank="distinct")
    guard = samerun.guard(model, opt, schedule, every=every, also="peer", on_mismatch=on_mismatch, folder=folder)
    guard = guard if on_mismatch else None
    data = torch.Generator().manual_seed(20 + rank)
    said = []
    with warnings.catch_warnings(record=True) as caught, fault or contextlib.nullcontext():
        warnings.simplefilter("always")
        try:
            for _ in range(steps):
                x = torch.randn(5 + rank, 6, generator=data)
                said.append((guard.step(step, x) if guard else step(x)).item())
        except samerun.SamerunError as error:
            said.append(f"{type(error).__name__}: {error.message}")
    said += [str(each.message) for each in caught if each.category is samerun.WrongResultWarning]
    if kind in ("uneven", "flat"):
        return {"said": said, "records": guard.records}
    held = [getattr(each, "_local_tensor", each) for each in [*model.parameters(), *model.buffers()]]
    total = sum(each.double().sum().item() for each in held)
    return {
        "said": said, "total": total, "drawn": torch.rand(1, generator=own).item() + torch.rand(1).item(),
        "records": guard.records if guard else [], "struck": fault.struck if fault else 0,
    }  # fmt: skip


def run(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world)
    done = []
    plain = train(rank, None, "raise", folder)
    for where, kind, at, bit, often in json.loads(sys.argv[2]):
        fault = Fault(kind, at, bit, often) if kind and where in (rank, -1) else None
        done.append([None] * world)
        dist.all_gather_object(done[-1], train(rank, fault, "warn", folder))
    alone = [None] * world
    dist.all_gather_object(alone, plain)
    if rank == 0:
        with open(f"{folder}/told", "w") as file:
            json.dump({"plain": alone, "trials": done}, file)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # a mesh keeps gloo's threads, and one that drops a tensor at the interpreter's end aborts it


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        world = int(sys.argv[1])
        torch.multiprocessing.spawn(run, (world, folder), nprocs=world)
        print(open(f"{folder}/told").read())
