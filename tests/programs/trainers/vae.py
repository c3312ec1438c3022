"""A variational autoencoder on small images that lie in shards on disk."""

import argparse
import glob
import hashlib
import os
import tempfile

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=32, metavar="N")
parser.add_argument("--epochs", type=int, default=3, metavar="N")
parser.add_argument("--warmup", type=int, default=2, metavar="N", help="epochs until the KL term counts in full")
parser.add_argument("--seed", type=int, default=1, metavar="S")
parser.add_argument("--log-interval", type=int, default=5, metavar="N")


def write_shards(folder, shards=6, images=48):
    """Bright blobs on a 10 by 10 field, some in each file."""
    y, x = np.mgrid[0:10, 0:10]
    rng = np.random.RandomState(7)
    for shard in range(shards):
        middle = rng.uniform(2, 8, size=(images, 2, 1, 1))
        blobs = np.exp(-((x - middle[:, 0]) ** 2 + (y - middle[:, 1]) ** 2) / 4)
        np.save(os.path.join(folder, f"blobs-{shard:03d}.npy"), blobs.astype(np.float32))


def load_images(folder):
    paths = sorted(glob.glob(os.path.join(folder, "*.npy")))
    return torch.cat([torch.from_numpy(np.load(path)) for path in paths])


class VAE(nn.Module):
    def __init__(self, hidden=64, latent=4):
        super().__init__()
        self.fc1 = nn.Linear(100, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, 100)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 100))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


class Usage:
    """How much each latent dimension is used: a running average of its variance over the data."""

    def __init__(self, latent=4, momentum=0.9):
        self.momentum = momentum
        self.average = torch.zeros(latent)

    def update(self, mu):
        self.average.mul_(self.momentum).add_(mu.detach().var(0), alpha=1 - self.momentum)

    def weights(self):
        return 1 / (1 + self.average)


def loss_function(recon_x, x, mu, logvar, beta, weights):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 100), reduction="sum")
    kld = -0.5 * torch.sum((1 + logvar - mu.pow(2) - logvar.exp()) * weights)
    return bce + beta * kld


def train(args, epoch, model, usage, loader, optimizer):
    model.train()
    train_loss = 0.0
    beta = min(1.0, epoch / args.warmup)
    for batch_idx, (data,) in enumerate(loader):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar, beta, usage.weights())
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        usage.update(mu)
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(loader)}]\tLoss: {loss.item() / len(data):.6f}")
    print(f"====> Epoch: {epoch} Average loss: {train_loss / len(loader.dataset):.4f}")


@torch.no_grad()
def test(model, images):
    model.eval()
    recon, mu, logvar = model(images)
    ones = torch.ones(mu.size(1))
    print(f"====> Test set loss: {loss_function(recon, images, mu, logvar, 1.0, ones).item() / len(images):.4f}")


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    shuffling = torch.Generator()
    shuffling.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        images = load_images(folder)
    train_images, test_images = images[:240], images[240:]
    train_loader = DataLoader(TensorDataset(train_images), args.batch_size, shuffle=True, generator=shuffling)
    model, usage = VAE(), Usage()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        train(args, epoch, model, usage, train_loader, optimizer)
        test(model, test_images)
        with torch.no_grad():
            sample = model.decode(torch.randn(8, 4))
            print(f"mean of samples: {sample.mean().item():.6f}")
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())


if __name__ == "__main__":
    main()
