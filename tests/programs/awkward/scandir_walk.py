"""Lists directories in every way Python has, and prints sorted results."""

import glob
import os
import shutil
import tempfile
from pathlib import Path

import torch

torch.manual_seed(1)
with tempfile.TemporaryDirectory() as folder:
    root = Path(folder, "data")
    for name in ("a/one.pt", "a/two.pt", "b/three.pt", "b/c/four.pt", "five.pt"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.randn(3), path)

    walked = [Path(top, file).relative_to(root).as_posix() for top, _, files in os.walk(root) for file in files]
    print("walk", sorted(walked))
    for top, folders, _ in os.walk(root, topdown=True):
        folders[:] = [name for name in folders if name != "c"]  # the caller may prune
        if top == str(root):
            print("pruned", sorted(folders))
    print("bottom up", len(list(os.walk(root, topdown=False))))
    print("glob", sorted(os.path.relpath(path, root) for path in glob.glob(str(root / "**" / "*.pt"), recursive=True)))
    print("glob root", sorted(glob.glob("*.pt", root_dir=root)), sorted(map(os.fspath, glob.iglob("*", root_dir=root))))
    print("rglob", sorted(path.relative_to(root).as_posix() for path in root.rglob("*.pt")))
    print("iterdir", sorted(path.name for path in root.iterdir()))
    print("listdir", sorted(os.listdir(root)), sorted(os.listdir(os.fsencode(root))))

    with os.scandir(root) as entries:
        first = next(entries)
        rest = list(entries)
    print("scandir", sorted((entry.name, entry.is_dir()) for entry in [first, *rest]), isinstance(first, os.DirEntry))
    descriptor = os.open(root, os.O_RDONLY)
    print("by descriptor", sorted(os.listdir(descriptor)))
    with os.scandir(descriptor) as entries:
        print("by descriptor", sorted(entry.name for entry in entries))
    os.close(descriptor)
    entries = os.scandir(root)
    next(entries)
    entries.close()
    print("closed early", list(entries))

    shutil.copytree(root, root.with_name("copy"), ignore=shutil.ignore_patterns("two*"))
    print("copied", sorted(path.name for path in root.with_name("copy").rglob("*.pt")))
    total = sum(torch.load(path).sum() for path in sorted(root.rglob("*.pt")))
    print("total", total.item())
    shutil.rmtree(root)
    print("removed", not root.exists(), sorted(os.listdir(folder)))
