"""Every unusual kind of tensor: sparse, complex, half, bool, quantised, empty, without dimensions or data."""

import warnings

import torch

warnings.filterwarnings("ignore")
torch.manual_seed(1)
dense = torch.randn(4, 5)

coo = dense.relu().to_sparse().requires_grad_()
torch.sparse.mm(coo, torch.randn(5, 2)).sum().backward()
print("coo", coo.grad.to_dense().sum().item())
twice = torch.sparse_coo_tensor([[0, 0, 2], [1, 1, 0]], [1.0, 2.0, 3.0], (3, 3))
print("coo, not coalesced", twice.coalesce().values().tolist(), twice.is_coalesced())
csr = dense.to_sparse_csr()
print("csr", (csr @ torch.ones(5)).tolist())
embedding = torch.nn.Embedding(10, 3, sparse=True)
embedding(torch.tensor([1, 1, 7])).sum().backward()
optimizer = torch.optim.SparseAdam(embedding.parameters())
optimizer.step()
print("sparse gradient", embedding.weight.sum().item())

wave = torch.fft.fft(dense)
print("complex", wave.abs().sum().item(), wave.conj().imag.sum().item(), (wave @ wave.mH).real.sum().item())
print("negative view", torch.view_as_real(wave.conj().resolve_conj()).sum().item())

for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn):
    print(dtype, dense.to(dtype).to(torch.float32).sum().item())
print("bool", (dense > 0).sum().item(), (dense > 0).any(dim=0).tolist())
print("int8", (dense * 40).to(torch.int8).sum().item(), torch.iinfo(torch.int8).min)
print("quantised", torch.quantize_per_tensor(dense, 0.1, 10, torch.quint8).int_repr().sum().item())
print("uint16", torch.tensor([1, 65535]).to(torch.uint16).tolist())

print("empty", torch.empty(0, 3).sum().item(), torch.cat([torch.empty(0, 5), dense]).shape, torch.empty(0).shape)
scalar = torch.tensor(2.5, requires_grad=True)
(scalar**2).backward()
print("no dimensions", scalar.grad.item(), torch.tensor(3).item())
print("expanded", torch.ones(1).expand(1000, 1000).sum().item(), dense.t()[::2].sum().item(), dense.as_strided((3, 3), (1, 1)).sum().item())
print("nan", dense.log().isnan().sum().item(), torch.tensor([0.0, -0.0]).signbit().tolist())
print("nested", torch.nested.nested_tensor([dense[0], dense[1, :2]]).to_padded_tensor(0.0).sum().item())

meta = torch.nn.Linear(1000, 1000, device="meta")
print("meta", meta(torch.empty(3, 1000, device="meta")).shape)
print("materialised", torch.nn.Linear(2, 2, device="meta").to_empty(device="cpu").weight.shape)
