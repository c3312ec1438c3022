"""Many ways of using torch in one program, each followed by a digest of what came out and of the random states."""

import hashlib
import sys
import threading
import warnings

import numpy as np
import torch
from torch import nn


def say(name, *tensors):
    digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for tensor in tensors:
        tensor = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    print(name, digest.hexdigest()[:16], flush=True)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        print("backward of Square")
        (x,) = ctx.saved_tensors
        return 2 * x * grad


@torch.library.custom_op("features::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    print("noisy was called")
    return x + 1


@torch.library.custom_op("features::add_one", mutates_args={"x"})
def add_one(x: torch.Tensor) -> None:
    x += 1


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return torch.rand(4) + i


def main():
    torch.manual_seed(0)
    x = torch.randn(6, 5)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
    for name, make in {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
        "fused": lambda p: torch.optim.AdamW(p, fused=True, amsgrad=True),
        "for-loop": lambda p: torch.optim.Adam(p, foreach=False),
    }.items():
        optimizer = make(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        say(name, *model.parameters(), *model.buffers())

    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().sum()
    loss.backward()
    say("autocast", loss, *(p.grad for p in model.parameters()))
    with torch.no_grad():
        say("no_grad", model(x))
    with torch.inference_mode():
        y = model(x)
        y += 1
        say("inference_mode", y, y.mul_(2))

    z = torch.randn(4, 4, dtype=torch.complex64, requires_grad=True)
    (z @ z.conj().T).abs().sum().backward()
    w = torch.zeros(2, 2, dtype=torch.complex64)
    w.conj().copy_(z.detach()[:2, :2])
    w.imag.add_(1)
    say("complex", z.grad, w, torch.fft.fft(z.detach()))

    i = torch.tensor([[0, 1, 1], [2, 0, 2]])
    s = torch.sparse_coo_tensor(i, torch.randn(3), (2, 3))
    embedding = nn.Embedding(10, 3, sparse=True)
    sparse = torch.optim.SGD(embedding.parameters(), lr=0.1)
    embedding(torch.tensor([1, 1, 4])).sum().backward()
    sparse.step()
    s.add_(s)
    say("sparse", s, torch.sparse.mm(s, torch.randn(3, 2)), embedding.weight, s.to_dense().to_sparse_csr())

    t = torch.arange(10.0)
    t[1:].add_(t[:-1].clone())
    t[::2].mul_(t[1::2])
    u = t.view(2, 5)
    u.t().copy_(torch.randn(5, 2))
    torch.add(t, 1, out=t)
    torch.cat([t, t], out=torch.empty(20))
    t.as_strided((3, 3), (1, 2)).sub_(0.5)
    t.masked_fill_(t > 1, 7).clamp_(-1, 5)
    t.index_put_((torch.tensor([1, 1]),), torch.tensor([2.0, 3.0]), accumulate=True)
    t.resize_(12)[10:] = 1
    say("in place", t, u)

    own = torch.Generator().manual_seed(5)
    r = torch.rand(4, generator=own)
    r.normal_(generator=own).uniform_()
    r.bernoulli_(0.5, generator=own)
    say("generators", r, torch.randperm(9), torch.randint(9, (3,)), torch.multinomial(torch.rand(5), 2, generator=own),
        own.get_state(), torch.poisson(torch.rand(5)), nn.functional.rrelu(torch.randn(3), training=True))  # fmt: skip

    v = torch.randn(3, requires_grad=True)
    Square.apply(v).sum().backward()
    say("function", v.grad)
    add_one(r)
    say("custom operators", noisy(r), r)
    say("func", torch.func.vmap(torch.func.grad(lambda a: (a**3).sum()))(x), torch.func.jacrev(torch.sin)(x[0]))
    scripted = torch.jit.script(model)
    say("jit", scripted(x))
    say("checkpoint", *torch.autograd.grad(
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum(), list(model.parameters())))  # fmt: skip
    lstm = nn.LSTM(5, 4, batch_first=True, dropout=0.2, num_layers=2)
    lstm(x[None])[0].sum().backward()
    say("lstm", lstm.weight_hh_l0.grad)
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    conv(torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)).sum().backward()
    q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.strided)
    say("layouts", conv.weight.grad, q.dequantize(), (nested * 2).to_padded_tensor(0.0))

    array = np.ones(4, dtype=np.float32)
    shared = torch.from_numpy(array)
    array[1] = 9
    shared.add_(1)
    shared.numpy()[2] = 5
    say("numpy", shared, torch.from_dlpack(shared))
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2)
    say("loader", *loader)

    results = [None] * 3

    def work(number):
        g = torch.Generator().manual_seed(number)
        results[number] = torch.randn(50, 50, generator=g) @ torch.randn(50, 50, generator=g)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("threads", *results)

    warnings.simplefilter("always")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.add(x, 1, out=torch.empty(2))
        torch.tensor(np.broadcast_to(np.float32(1), 3)).sum()
    print("warnings", len(seen))
    for bad in (lambda: x @ x, lambda: x[:, :2].view(-1), lambda: torch.linalg.cholesky(torch.zeros(2, 2))):
        try:
            bad()
        except RuntimeError as error:
            print(type(error).__name__, str(error).splitlines()[0])
    if "--compile" in sys.argv:
        compiled = torch.compile(model)
        for _ in range(2):
            compiled(x).sum().backward()
        say("compile", *(p.grad for p in model.parameters()))
    say("rest", torch.rand(3))
    sys.exit(3)


if __name__ == "__main__":
    main()
