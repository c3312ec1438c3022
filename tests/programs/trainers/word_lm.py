"""A word-level language model with an LSTM, trained by truncated backpropagation through time."""

import argparse
import hashlib
import math
import time
from datetime import datetime, timezone

import torch
import torch.nn as nn

try:
    from tqdm import tqdm
except ImportError:

    def tqdm(iterable, **settings):
        return iterable


class Dictionary:
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add_word(self, word):
        if word not in self.word2idx:
            self.word2idx[word] = len(self.idx2word)
            self.idx2word.append(word)
        return self.word2idx[word]


class Corpus:
    """Sentences of a diary, each with the second in which it was written; the last days are for validation."""

    SUBJECTS = "the cat|the dog|a bird|my sister|the old captain|nobody".split("|")
    VERBS = "sees|likes|follows|paints|forgets".split("|")
    OBJECTS = "the river|a green door|her brother|two small boats|the moon".split("|")
    ENDINGS = "in the morning|again|without a word|because it rains|".split("|")

    def __init__(self, sentences, seed):
        self.dictionary = Dictionary()
        generator = torch.Generator().manual_seed(seed)
        lines = []
        for number in range(sentences):
            words = []
            for parts in (self.SUBJECTS, self.VERBS, self.OBJECTS, self.ENDINGS):
                words += parts[int(torch.randint(len(parts), (1,), generator=generator))].split()
            lines.append((1_600_000_000 + 9_000 * number, [*words, "<eos>"]))
        for word in (word for _, words in lines for word in words):
            self.dictionary.add_word(word)
        self.train, self.valid = (self.tokenize(lines, last) for last in (False, True))

    def tokenize(self, lines, last):
        ids = []
        for written, words in lines:
            day = datetime.fromtimestamp(written, timezone.utc).day
            if (day > 27) is last:
                ids += [self.dictionary.word2idx[word] for word in words]
        return torch.tensor(ids)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=32, nhid=32, nlayers=2, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight  # tied
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.nlayers, self.nhid = nlayers, nhid

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(output)).flatten(0, 1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return tuple(weight.new_zeros(self.nlayers, bsz, self.nhid) for _ in range(2))


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt):
    length = min(bptt, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].reshape(-1)


def evaluate(model, source, criterion, bptt):
    model.eval()
    total, hidden = 0.0, model.init_hidden(source.size(1))
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, bptt):
            data, targets = get_batch(source, i, bptt)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=10.0)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--bptt", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1111)
    parser.add_argument("--stop-after", type=int, metavar="EPOCH", help="end behind this epoch")
    parser.add_argument("--save", metavar="FILE", help="a checkpoint of the last epoch")
    parser.add_argument("--resume", metavar="FILE", help="a checkpoint to go on from")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    corpus = Corpus(sentences=600, seed=args.seed)
    train_data, val_data = batchify(corpus.train, args.batch_size), batchify(corpus.valid, 4)
    model = RNNModel(len(corpus.dictionary.idx2word))
    criterion = nn.CrossEntropyLoss()
    first, lr, best_val_loss = 1, args.lr, None
    if args.resume:
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["model"])
        torch.set_rng_state(checkpoint["rng"])
        first, lr, best_val_loss = checkpoint["epoch"] + 1, checkpoint["lr"], checkpoint["best"]
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for epoch in range(first, (args.stop_after or args.epochs) + 1):
        start, total = time.time(), 0.0
        model.train()
        hidden = model.init_hidden(args.batch_size)
        for i in tqdm(range(0, train_data.size(0) - 1, args.bptt), disable=None):
            data, targets = get_batch(train_data, i, args.bptt)
            hidden = tuple(h.detach() for h in hidden)
            optimizer.zero_grad()
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            total += loss.item() * len(data)
        val_loss = evaluate(model, val_data, criterion, args.bptt)
        print(f"| epoch {epoch} | loss {total / (len(train_data) - 1):.4f} | valid ppl {math.exp(val_loss):8.3f}")
        print(f"time: {time.time() - start:.2f} s")
        if best_val_loss is None or val_loss < best_val_loss:
            best_val_loss = val_loss
        else:
            lr /= 4.0
            optimizer.param_groups[0]["lr"] = lr
        if args.save:
            state = {"model": model.state_dict(), "epoch": epoch, "lr": lr, "best": best_val_loss}
            torch.save({**state, "rng": torch.get_rng_state()}, args.save)

    model.eval()
    word, hidden, words = torch.zeros(1, 1, dtype=torch.long), model.init_hidden(1), []
    with torch.no_grad():
        for _ in range(12):
            output, hidden = model(word, hidden)
            word.fill_(torch.multinomial(output.squeeze().div(0.8).exp(), 1)[0])
            words.append(corpus.dictionary.idx2word[word.item()])
    print(" ".join(words))
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())


if __name__ == "__main__":
    main()
