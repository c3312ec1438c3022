"""Train and validate an image classifier, with augmentation in worker processes, meters and checkpoints."""

import argparse
import hashlib
import os
import random
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-j", "--workers", default=2, type=int, metavar="N")
parser.add_argument("--epochs", default=2, type=int, metavar="N")
parser.add_argument("-b", "--batch-size", default=32, type=int, metavar="N")
parser.add_argument("--lr", "--learning-rate", default=0.05, type=float, dest="lr")
parser.add_argument("--seed", default=0, type=int)


class Patterns(Dataset):
    """Stripes of eight directions in noise; the training images are also flipped at random."""

    def __init__(self, size, train, seed=0):
        self.train, self.seed, self.epoch = train, seed, 0
        generator = torch.Generator().manual_seed(1 if train else 2)
        self.labels = torch.randint(8, (size,), generator=generator)
        angle = self.labels.view(-1, 1, 1) * (torch.pi / 8)
        y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
        stripes = torch.sin(x * torch.cos(angle) + y * torch.sin(angle))
        noise = torch.randn(size, 3, 12, 12, generator=generator)
        self.images = stripes.unsqueeze(1) + 0.3 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.train:
            rng = np.random.default_rng((self.seed, self.epoch, index))
            image = image.flip((1, 2)) if rng.random() < 0.5 else image
            image = image + 0.1 * torch.from_numpy(rng.standard_normal((3, 12, 12), dtype=np.float32))
        return image, self.labels[index]


class Residual(nn.Module):
    def __init__(self, inp, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inp, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.down = nn.Conv2d(inp, out, 1, stride, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.down(x) + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


class AverageMeter:
    """The latest value of something, and its average."""

    def __init__(self, name, fmt, clock=False):
        self.name, self.fmt, self.clock = name, fmt, clock
        self.val = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n

    def __str__(self):
        return f"{self.name} {self.val:{self.fmt}} ({self.sum / self.count:{self.fmt}})"


class ProgressMeter:
    def __init__(self, num_batches, meters, prefix):
        self.num_batches, self.meters, self.prefix = num_batches, meters, prefix

    def display(self, batch):
        others = [str(meter) for meter in self.meters if not meter.clock]
        print("\t".join([f"{self.prefix}[{batch}/{self.num_batches}]", *others]))
        print("time:", *[meter for meter in self.meters if meter.clock])


@torch.no_grad()
def accuracy(output, target, k=1):
    _, pred = output.topk(k, 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return correct[:k].reshape(-1).float().sum().mul(100.0 / target.size(0))


def run_epoch(loader, model, prefix, optimizer=None):
    batch_time = AverageMeter("Time", "6.3f", clock=True)
    data_time = AverageMeter("Data", "6.3f", clock=True)
    losses, top1 = AverageMeter("Loss", ".4e"), AverageMeter("Acc@1", "6.2f")
    progress = ProgressMeter(len(loader), [batch_time, data_time, losses, top1], prefix)
    model.train(optimizer is not None)
    end = time.time()
    with torch.set_grad_enabled(optimizer is not None):
        for i, (images, target) in enumerate(loader):
            data_time.update(time.time() - end)
            output = model(images)
            loss = nn.functional.cross_entropy(output, target)
            losses.update(loss.item(), images.size(0))
            top1.update(accuracy(output, target).item(), images.size(0))
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            batch_time.update(time.time() - end)
            end = time.time()
            if i % 4 == 0:
                progress.display(i + 1)
    return top1.sum / top1.count


def save_checkpoint(state, is_best, folder):
    path = os.path.join(folder, "checkpoint.pth.tar")
    torch.save(state, path)
    if is_best:
        shutil.copyfile(path, os.path.join(folder, "model_best.pth.tar"))


def main():
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8)]
    model = nn.Sequential(Residual(3, 8, 1), Residual(8, 16, 2), *head)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    settings = {"batch_size": args.batch_size, "num_workers": args.workers}
    train_set = Patterns(192, train=True, seed=args.seed)
    train_loader = DataLoader(train_set, shuffle=True, **settings)
    val_loader = DataLoader(Patterns(64, train=False), shuffle=False, **settings)

    best_acc1 = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            train_set.epoch = epoch
            run_epoch(train_loader, model, f"Epoch: [{epoch}]", optimizer)
            acc1 = run_epoch(val_loader, model, "Test: ")
            scheduler.step()
            state = {"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_checkpoint(state, acc1 > best_acc1, folder)
            best_acc1 = max(acc1, best_acc1)
        print(f" * best Acc@1 {best_acc1:.3f}", sorted(os.listdir(folder)))
    print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in model.state_dict().values())).hexdigest())


if __name__ == "__main__":
    main()
