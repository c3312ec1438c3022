"""Graph convolutional network on a synthetic citation graph (two layers, early stopping)."""
import argparse
import math
import random
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.FloatTensor(in_features, out_features))
        self.bias = nn.Parameter(torch.FloatTensor(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, x, adj):
        support = torch.mm(x, self.weight)
        out = torch.spmm(adj, support)
        return out + self.bias if self.bias is not None else out


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def load_data(n=300, k=4, seed=3):
    rng = random.Random(seed)
    label_of = {f"paper{i}": f"class_{rng.randrange(k)}" for i in range(n)}
    papers = list(label_of)
    cites = []
    for p in papers:
        for _ in range(5):
            q = rng.choice(papers)
            if label_of[q] == label_of[p] or rng.random() < 0.2:
                cites.append((p, q))
    classes = sorted(set(label_of.values()))
    onehot = {c: i for i, c in enumerate(classes)}
    index = {p: i for i, p in enumerate(papers)}
    neighbours = defaultdict(list)
    for a, b in cites:
        neighbours[index[a]].append(index[b])
        neighbours[index[b]].append(index[a])
    rows, cols, vals = [], [], []
    for i in range(n):
        js = sorted(set(neighbours[i])) + [i]
        for j in js:
            rows.append(i), cols.append(j), vals.append(1.0 / len(js))
    adj = torch.sparse_coo_tensor(torch.tensor([rows, cols]), torch.tensor(vals), (n, n))
    feats = torch.from_numpy(np.random.RandomState(seed).randn(n, 64).astype(np.float32))
    labels = torch.tensor([onehot[label_of[p]] for p in papers])
    feats[torch.arange(n), labels] += 1.5
    return adj, feats, labels


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=42)
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--lr", type=float, default=0.01)
    ap.add_argument("--weight_decay", type=float, default=5e-4)
    ap.add_argument("--hidden", type=int, default=16)
    ap.add_argument("--dropout", type=float, default=0.5)
    args = ap.parse_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    adj, features, labels = load_data()
    perm = np.random.permutation(len(labels))
    idx_train, idx_val, idx_test = (torch.from_numpy(p) for p in (perm[:60], perm[60:150], perm[150:]))
    model = GCN(features.shape[1], args.hidden, int(labels.max()) + 1, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    t_total = time.time()
    best, bad = 1e9, 0
    for epoch in range(args.epochs):
        t = time.time()
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            output = model(features, adj)
            val = F.nll_loss(output[idx_val], labels[idx_val]).item()
        if epoch % 10 == 0:
            print(f"Epoch: {epoch:04d} loss_train: {loss.item():.4f} loss_val: {val:.4f}")
            print(f"time: {time.time() - t:.4f}s")
        bad = 0 if val < best else bad + 1
        best = min(best, val)
        if bad > 10:
            break
    print(f"time: in all {time.time() - t_total:.4f}s")
    acc = (output[idx_test].argmax(1) == labels[idx_test]).double().mean()
    print("Test set results:", acc.item())


if __name__ == "__main__":
    main()
