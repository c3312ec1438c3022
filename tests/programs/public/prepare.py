"""Synthetic data for programs that would download theirs: the same bytes every time, small, drawn from fixed seeds.

python prepare.py mnist FOLDER | text FILE [WORDS] | corpus FOLDER | cora FOLDER PREFIX | images FOLDER COUNT SIZE
"""

import sys
from pathlib import Path

import numpy as np

GENERATOR = np.random.default_rng(20260101)
WORDS = "the same bits or the first operation that differs and why a run is watched and run again then compared".split()


def write_mnist(folder: str, train: str = "256", test: str = "64") -> None:
    """Digits of scikit-learn, enlarged to 28 x 28, in the files that torchvision reads."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images * 15, np.ones((3, 3))).astype(np.uint8)
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    raw = Path(folder) / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    start = 0
    for name, count in (("train", int(train)), ("t10k", int(test))):
        part, labels = images[start : start + count], digits.target[start : start + count].astype(np.uint8)
        start += count
        head = b"\x00\x00\x08\x03" + b"".join(int(n).to_bytes(4, "big") for n in part.shape)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(head + part.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(
            b"\x00\x00\x08\x01" + len(labels).to_bytes(4, "big") + labels.tobytes()
        )


def make_text(count: int) -> str:
    words = GENERATOR.choice(WORDS, count)
    return "\n".join(" ".join(words[at : at + 12]) for at in range(0, count, 12)) + "\n"


def write_text(file: str, count: str = "3000") -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(make_text(int(count)))


def write_corpus(folder: str) -> None:
    for name, count in (("train", 3000), ("valid", 800), ("test", 800)):
        write_text(f"{folder}/{name}.txt", str(count))


def write_cora(folder: str, prefix: str = "cora", nodes: str = "1800") -> None:
    """A citation graph in the two files of the data set."""
    count = int(nodes)
    Path(folder).mkdir(parents=True, exist_ok=True)
    names = GENERATOR.permutation(count) + 1000
    features = (GENERATOR.random((count, 24)) < 0.2).astype(int)
    features[:, 0] = 1
    classes = [f"class_{n}" for n in GENERATOR.integers(0, 7, count)]
    rows = ["\t".join([str(name), *map(str, row), kind]) for name, row, kind in zip(names, features, classes)]
    Path(folder, f"{prefix}.content").write_text("\n".join(rows) + "\n")
    pairs = {(int(a), int(b)) for a, b in GENERATOR.choice(names, (3 * count, 2)) if a != b}
    pairs = {pair for pair in pairs if (pair[1], pair[0]) not in pairs}
    Path(folder, f"{prefix}.cites").write_text("".join(f"{a}\t{b}\n" for a, b in sorted(pairs)))


def write_images(folder: str, count: str, size: str) -> None:
    from PIL import Image

    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(int(count)):
        pixels = GENERATOR.integers(0, 256, (int(size), int(size), 3), dtype=np.uint8)
        Image.fromarray(pixels).save(Path(folder, f"{number:04d}.png"))


if __name__ == "__main__":
    kinds = {"mnist": write_mnist, "text": write_text, "corpus": write_corpus, "cora": write_cora, "images": write_images}
    kinds[sys.argv[1]](*sys.argv[2:])
