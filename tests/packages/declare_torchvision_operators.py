"""Make torchvision's wheel importable beside a torch that its compiled operators were not built for.

The wheel of the package index is built for CUDA and does not load beside torch for the CPU; then torchvision cannot be
imported at all, because it describes operators that nobody declared. Declared without kernels they are enough for what
the tests use. Nothing is changed where the compiled operators load.
"""

import importlib.util
from pathlib import Path

import torch

DECLARATION = """

if not _has_ops():  # declared by samerun's tests: the compiled operators were built for another torch
    torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.library.define("torchvision::qnms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

if __name__ == "__main__":
    package = importlib.util.find_spec("torchvision")
    assert package is not None and package.origin is not None
    folder = Path(package.origin).parent
    try:
        torch.ops.load_library(folder / "_C.so")
    except OSError:
        extension = folder / "extension.py"
        if DECLARATION not in extension.read_text():
            extension.write_text(extension.read_text() + DECLARATION)
