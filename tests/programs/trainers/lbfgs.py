"""Fit a network with L-BFGS: a closure, a line search, and a schedule that watches the loss."""

import argparse
import hashlib

import torch
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn.utils import parameters_to_vector


def load_data(seed):
    x, y = make_friedman1(n_samples=400, n_features=8, noise=0.3, random_state=seed)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=seed)
    x_scaler, y_scaler = StandardScaler().fit(x_train), StandardScaler().fit(y_train[:, None])
    pairs = ((x_train, y_train), (x_test, y_test))
    return [
        (torch.tensor(x_scaler.transform(x)), torch.tensor(y_scaler.transform(y[:, None]))) for x, y in pairs
    ]


class Net(nn.Sequential):
    def __init__(self, features, width):
        super().__init__(
            nn.Linear(features, width), nn.Softplus(), nn.Linear(width, width), nn.Softplus(), nn.Linear(width, 1)
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--max-iter", type=int, default=8, help="iterations of L-BFGS in one step")
    parser.add_argument("--lr", type=float, default=0.8)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_default_dtype(torch.float64)
    (x_train, y_train), (x_test, y_test) = load_data(args.seed)
    model = Net(x_train.shape[1], args.width)
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=args.lr, max_iter=args.max_iter, line_search_fn="strong_wolfe"
    )
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=1e-2)

    calls = 0
    for step in range(1, args.steps + 1):

        def closure():
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            penalty = sum(p.square().sum() for p in model.parameters())
            loss = criterion(model(x_train), y_train) + args.weight_decay * penalty
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        with torch.no_grad():
            test_loss = criterion(model(x_test), y_test)
        scheduler.step(test_loss)
        if step % 3 == 0:
            rate = optimizer.param_groups[0]["lr"]
            print(f"step {step}: loss {loss.item():.6f}, test loss {test_loss.item():.6f}, rate {rate}, calls {calls}")

    weights = parameters_to_vector(model.parameters()).detach()
    print(f"norm of the weights {weights.norm().item():.6f}")
    print(hashlib.sha256(weights.numpy().tobytes()).hexdigest())


if __name__ == "__main__":
    main()
