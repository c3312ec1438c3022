"""What keyed samples cost: samerun's loader beside torch's, torchdata's, grain and mosaicml-streaming.

    python benchmarks/bench_data.py [--workers 0,1,2] [--loads image,decode] [--rounds 5] [--loaders torch,samerun]

Kinds of samples: `nothing`, their own index; `tensors`, a TensorDataset; `image`, a crop and a flip of a 3x32x32
image in memory; `decode`, 200 us of unpacking and augmentation, like a small JPEG. Loaders take turns, round by round;
printed are the best samples/s of all rounds, and the median over rounds of how much of torch's speed this is: by CPU
time without workers, where this process alone works, and by the clock with workers. Loaders that are not installed are
left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import shutil
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from result_tables import Results, add_json_option
from torch.utils.data import DataLoader, Dataset, TensorDataset

import samerun.data

BATCH = 128
SAMPLES = {"nothing": 12_800, "tensors": 12_800, "image": 12_800, "decode": 2_560}
SLOW = {"grain": 4, "streaming": 4}
"""These see fewer samples: they take much longer."""


class Nothing(Dataset[int]):
    """Draws nothing, so that what is left is the cost of the loader."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


def tensors(count: int) -> Dataset[Any]:
    return TensorDataset(torch.zeros(count, 4), torch.arange(count))


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Augmented with torch's generator, as in the torchvision recipes."""

    def __init__(self, count: int) -> None:
        self.images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        top, left, flip = torch.randint(0, 5, (3,)).tolist()
        image = self.images[index][:, top : top + 28, left : left + 28]
        return (image.flip(2) if flip > 2 else image), index


class Packed(Dataset[tuple[torch.Tensor, int]]):
    """Unpacked from a compressed block, then augmented with all three generators."""

    def __init__(self, count: int) -> None:
        pixels = np.random.default_rng(0).integers(0, 40, size=(96, 96, 3), dtype=np.uint8)
        self.block, self.count = zlib.compress(pixels.tobytes(), 1), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = np.frombuffer(zlib.decompress(self.block), dtype=np.uint8).reshape(96, 96, 3)
        top, left = np.random.randint(0, 32, size=2)
        image = image[top : top + 64, left : left + 64]
        if random.random() < 0.5:
            image = image[:, ::-1]
        scaled = torch.from_numpy(np.ascontiguousarray(image)) * torch.rand(())
        return scaled, index


LOADS: dict[str, Callable[[int], Dataset[Any]]] = {
    "nothing": Nothing, "tensors": tensors, "image": Images, "decode": Packed
}  # fmt: skip
Batches = Iterator[Any]


def torch_loader(dataset: Any, workers: int) -> Any:
    return DataLoader(dataset, BATCH, shuffle=True, num_workers=workers)


def samerun_loader(dataset: Any, workers: int) -> Any:
    return samerun.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, seed=1)


def samerun_torch_loader(dataset: Any, workers: int) -> Any:
    return samerun.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, seed=1, keyed="torch")


def stateful_loader(dataset: Any, workers: int) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(dataset, BATCH, shuffle=True, num_workers=workers)


def grain_loader(dataset: Any, workers: int) -> Any:
    import grain

    source = grain.MapDataset.source(dataset).shuffle(seed=1).batch(BATCH, batch_fn=torch.utils.data.default_collate)
    stream = source.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=16))
    return stream.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)) if workers else stream


_folders: dict[int, str] = {}


def streaming_loader(dataset: Any, workers: int) -> Any:
    """Over raw bytes in local shards; the sample's work is done in `__getitem__`, as streaming asks for."""
    from streaming import MDSWriter, StreamingDataset

    folder = _folders.get(id(dataset))
    if folder is None:
        folder = _folders[id(dataset)] = tempfile.mkdtemp(prefix="bench-mds-")
        with MDSWriter(out=folder, columns={"index": "int"}) as writer:
            for index in range(len(dataset)):
                writer.write({"index": index})

    class Streamed(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: int) -> Any:
            return dataset[super().__getitem__(at)["index"]]

    return DataLoader(Streamed(local=folder, shuffle=True, batch_size=BATCH), BATCH, num_workers=workers)


LOADERS: dict[str, tuple[str, Callable[[Any, int], Any]]] = {
    "torch": ("torch", torch_loader),
    "samerun": ("samerun", samerun_loader),
    "samerun keyed=torch": ("samerun", samerun_torch_loader),
    "stateful": ("torchdata", stateful_loader),
    "grain": ("grain", grain_loader),
    "streaming": ("streaming", streaming_loader),
}


def measure(make: Callable[[Any, int], Any], dataset: Any, workers: int, count: int) -> tuple[float, float]:
    """(seconds, CPU seconds of this process) a sample, from the first batch on: starting workers is left out."""
    batches = iter(make(dataset, workers))
    next(batches)
    begin, cpu, seen = time.perf_counter(), time.process_time(), 0
    for _ in batches:
        seen += BATCH
        if seen >= count - BATCH:
            break
    return (time.perf_counter() - begin) / seen, (time.process_time() - cpu) / seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("--loads", default="nothing,tensors,image,decode")
    parser.add_argument("--loaders", default=",".join(LOADERS))
    parser.add_argument("--rounds", type=int, default=5)
    add_json_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with Results(options.json) as results:
        measure_loads(results, options)
    for folder in _folders.values():
        shutil.rmtree(folder, ignore_errors=True)


def measure_loads(results: Results, options: argparse.Namespace) -> None:
    asked = [name for name in options.loaders.split(",") if importlib.util.find_spec(LOADERS[name][0])]
    for load in options.loads.split(","):
        # "decode" draws from all three generators
        names = [name for name in asked if load != "decode" or "keyed" not in name]
        dataset = LOADS[load](SAMPLES[load])
        for workers in map(int, options.workers.split(",")):
            times: dict[str, list[tuple[float, float]]] = {}
            for _ in range(options.rounds):
                for name in list(names):
                    try:
                        count = SAMPLES[load] // SLOW.get(name, 1)
                        wall, cpu = measure(LOADERS[name][1], dataset, workers, count)
                    except Exception as error:
                        print(f"{name} does not run here: {error!r}")
                        names.remove(name)
                        continue
                    times.setdefault(name, []).append((wall, cpu))
            show(results, load, workers, times)


def show(results: Results, load: str, workers: int, times: dict[str, list[tuple[float, float]]]) -> None:
    """times: (seconds, CPU seconds) a sample, of each round."""
    columns = {"loader": "", "samples/s": ",.0f", "of torch": ".2f"}
    if not workers:
        columns |= {"CPU us/sample": ".1f", "more than torch": "+.1f"}
    table = results.table(f"{load}, {workers} workers", columns)
    base = times.get("torch", next(iter(times.values())))
    for name, rounds in times.items():
        which = 0 if workers else 1
        ratio = statistics.median(one[which] / own[which] for one, own in zip(base, rounds, strict=False))
        more = statistics.median(own[1] - one[1] for one, own in zip(base, rounds, strict=False))
        cpu = [] if workers else [min(own[1] for own in rounds) * 1e6, more * 1e6]
        table.add(name, 1 / min(own[0] for own in rounds), ratio, *cpu)


if __name__ == "__main__":
    main()
