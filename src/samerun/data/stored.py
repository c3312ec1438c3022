"""Read a file of `torch.save` that a stranger may have written: its content as plain values, or why not."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from samerun.base.regular_file import open_regular
from samerun.data import plain


class NotReadable(Exception):
    """The file is no checkpoint; the text says why."""


def read_values(path: Path) -> Any:
    """What torch reads with `weights_only=True`. Raises NotReadable for everything that cannot be or should not be.

    Torch is let read by mapping the file into memory: then a tensor cannot reach beyond the file, whatever size it
    claims, and nothing is unpacked, however small a giant was packed. All is copied before it is handed out, because a
    file that is cut off later would take the mapped memory with it.
    """
    try:
        _check_archive(path)
        with torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except NotReadable:
        raise
    except Exception as error:  # torch raises what its readers raise: RuntimeError, UnpicklingError, EOFError, ...
        said = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise NotReadable(f"torch cannot read it ({said})") from error
    said = plain.check_loaded(content)
    if said:
        raise NotReadable(said)
    return content


def _check_archive(path: Path) -> None:
    """Raises NotReadable unless it is an archive as torch writes it: nothing is packed, no bytes count twice."""
    with open_regular(path) as file:
        try:
            entries = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise NotReadable(f"torch cannot read it ({error})") from error
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise NotReadable("parts of it are packed, which torch.save does not do")
        if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
            raise NotReadable("its parts overlap")


def copy_memory(content: Any) -> None:
    """Give every tensor memory of its own in the place of the mapped file; what was shared stays shared."""
    copies: dict[tuple[int, int], torch.UntypedStorage] = {}
    for _, part in plain._parts("", content):
        if not isinstance(part, torch.Tensor):
            continue
        if part.layout is not torch.strided or part.is_quantized:
            part.data = part.detach().clone()
            continue
        mapped = part.untyped_storage()
        key = mapped.data_ptr(), mapped.nbytes()
        if key not in copies:
            copies[key] = mapped.clone()  # type: ignore[no-untyped-call]
            copies[copies[key].data_ptr(), mapped.nbytes()] = copies[key]  # met again: it is a copy already
        part.data = _on(copies[key], part)


def _on(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(0, dtype=like.dtype)
    made = empty.set_(storage, like.storage_offset(), like.shape, like.stride())
    made = made.conj() if like.is_conj() else made
    return torch._neg_view(made) if like.is_neg() else made
