"""Checkpoint files: write one with `torch.save`, read one that a stranger may have written, digest the values in it."""

from __future__ import annotations

import os
import signal
import threading
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from xxhash import xxh3_128

from samerun.base.errors import CheckpointError
from samerun.base.files import open_regular_file


@contextmanager
def defer_python_signal_handlers(on_ctrl_c: Callable[[], None]) -> Iterator[None]:
    """Run Python signal handlers only when the block has ended, for the signals that arrived in it.

    torch's writer calls back into Python from C++, and loses, or dies of, what a handler raises there. on_ctrl_c:
    called at a Ctrl-C that would raise KeyboardInterrupt, to end the block soon.
    """
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    noted: set[int] = set()
    handlers: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        noted.add(number)
        if handlers[number] is signal.default_int_handler:
            on_ctrl_c()

    # Replace the handler of Ctrl-C first, and restore it last: the KeyboardInterrupt it raises while other handlers
    # are being exchanged would leave those as they are.
    numbers = sorted(signal.valid_signals(), key=lambda number: number != signal.SIGINT)
    try:
        for number in numbers:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, note)
        yield
    finally:
        for replaced, handler in reversed(handlers.items()):
            signal.signal(replaced, handler)
        for came in sorted(noted, key=lambda number: number == signal.SIGINT):
            signal.raise_signal(came)


def write_torch_archive(content: dict[str, Any], file: IO[bytes]) -> None:
    """Write `content` with `torch.save`. Raises what writing raised: torch would replace it with a RuntimeError."""
    target: Any = _WriteErrorKeepingFile(file)
    try:
        with defer_python_signal_handlers(target.request_interrupt):
            torch.save(content, target)
    except RuntimeError as error:
        raise (target.error or error) from error
    finally:
        target.closed = True
    if target.error is not None:
        raise target.error


class _WriteErrorKeepingFile:
    """A file that keeps the first error of a write, and silently drops later writes.

    torch's writer writes the end of the archive in its destructor if it has not before, and an exception there
    terminates the process.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: BaseException | None = None
        self.closed = self.stopped = False

    def request_interrupt(self) -> None:
        """Make the next write raise KeyboardInterrupt."""
        self.stopped = True

    def write(self, data: Any) -> int:
        if self.closed or self.error is not None:
            return memoryview(data).nbytes
        try:
            if self.stopped:
                raise KeyboardInterrupt
            return self.file.write(data)
        except BaseException as error:
            self.error = error
            raise

    def flush(self) -> None:
        if not self.closed:
            self.file.flush()


def previous_checkpoint_path(path: Path) -> Path:
    """Return where the checkpoint that `path` held before is kept."""
    return path.with_name(path.name + ".previous")


class UnreadableCheckpoint(Exception):
    """The file is not a readable checkpoint; the message says why."""


class UntrustedArchive(NamedTuple):
    """What stands in a file, and its size in bytes."""

    content: Any
    size: int


def map_untrusted_archive_into_memory(path: Path) -> UntrustedArchive:
    """Return what torch reads with `weights_only=True`. Raises UnreadableCheckpoint for an unreadable or unsafe file.

    torch opens the file several times. Each time it has to be the one that was checked, also where another process
    replaces it meanwhile: so it is opened once here, and torch gets a name for the open file where the system has one.

    torch maps the file into memory: a tensor then cannot reach beyond the file, whatever size it claims, and nothing
    is decompressed, so a small file cannot fill the memory. Callers that keep tensors must call
    `copy_tensors_out_of_mapped_file`, because truncating the file later would take the mapped memory with it.
    """
    try:
        with open_regular_file(path) as file:
            _require_uncompressed_disjoint_zip(file)
            size, name = os.fstat(file.fileno()).st_size, f"/proc/self/fd/{file.fileno()}"
            with torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
                content = torch.load(
                    name if os.path.exists(name) else path, map_location="cpu", weights_only=True, mmap=True
                )
    except UnreadableCheckpoint:
        raise
    except Exception as error:  # torch raises what its readers raise: RuntimeError, UnpicklingError, EOFError, ...
        said = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise UnreadableCheckpoint(f"torch cannot read it ({said})") from error
    said = describe_first_unsafe_part_or_empty(content)
    if said:
        raise UnreadableCheckpoint(said)
    return UntrustedArchive(content, size)


def _require_uncompressed_disjoint_zip(file: IO[bytes]) -> None:
    """Raise UnreadableCheckpoint unless torch could have written the archive: uncompressed, without overlaps."""
    try:
        entries = zipfile.ZipFile(file).infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise UnreadableCheckpoint(f"torch cannot read it ({error})") from error
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise UnreadableCheckpoint("parts of it are compressed, which torch.save does not do")
    if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
        raise UnreadableCheckpoint("its parts overlap")


def copy_tensors_out_of_mapped_file(loaded: Any) -> None:
    """Give every tensor memory of its own in the place of the mapped file; tensors that share memory still share it."""
    copies: dict[tuple[int, int], torch.UntypedStorage] = {}
    for _, part in iterate_value_and_nested_parts("", loaded):
        if not isinstance(part, torch.Tensor):
            continue
        if part.layout is not torch.strided or part.is_quantized:
            part.data = part.detach().clone()
            continue
        mapped = part.untyped_storage()
        key = mapped.data_ptr(), mapped.nbytes()
        if key not in copies:
            copies[key] = mapped.clone()  # type: ignore[no-untyped-call]
            copies[copies[key].data_ptr(), mapped.nbytes()] = copies[key]  # a later tensor may already use the copy
        part.data = _view_storage_like(copies[key], part)


def _view_storage_like(storage: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on `storage` with the dtype, shape and strides of `tensor`."""
    empty = torch.empty(0, dtype=tensor.dtype)
    view = empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    view = view.conj() if tensor.is_conj() else view
    return torch._neg_view(view) if tensor.is_neg() else view


# --- plain values: those that `torch.load(weights_only=True)` returns ---
#
# A loaded value may have been made by a stranger: a list that contains itself, one that contains another many times
# over, a tensor whose one element stands for 10^12. So traversal has a budget, and an error ends it.


_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_LISTS = (list, tuple, set)
_MAPPINGS = (dict, OrderedDict, Counter)
_TENSORS = (torch.Tensor, torch.nn.Parameter)
MAX_DEPTH = 100
MAX_INT_BITS = 1 << 14
"""Python refuses to convert integers of more than 4300 digits to text, which is a little less than this."""
MAX_SHARED_PARTS = 200_000
"""How many parts may be visited again inside of containers visited before."""
MAX_PATH_LENGTH = 1 << 16
MIN_EXPANDED_BYTES = 1 << 20
"""A tensor of more bytes than this, and of more than twice its memory, is digested as memory and geometry."""
CHUNK_BYTES = 16 << 20
MIN_BUDGET = 1 << 30
"""Bytes that may be digested of any checkpoint, in addition to four times the size of its file."""


def require_loadable_with_weights_only(value: Any, value_path: str) -> None:
    """Raise CheckpointError, with its path, for the first part of a value that is not plain."""
    for where, part in iterate_value_and_nested_parts(value_path, value):
        if _is_type_loadable_with_weights_only(part):
            continue
        kind = type(part)
        hint = "Save numbers, strings, lists, dicts and tensors; of other objects what is needed to make them."
        if kind.__module__ == "numpy":
            hint = "Turn NumPy numbers into Python's (.item()), and arrays into tensors (torch.from_numpy)."
        raise CheckpointError(
            f"checkpoint.save(): {where} is a {kind.__module__}.{kind.__qualname__}, which torch does not load"
            " with weights_only=True.",
            hint,
        )


def describe_first_unsafe_part_or_empty(value: Any) -> str:
    """Return what is unsafe about a value read from a file; "" if it holds only what
    `require_loadable_with_weights_only` accepts.
    """
    try:
        for where, part in iterate_value_and_nested_parts("", value):
            if not _is_type_loadable_with_weights_only(part):
                return f"{where[:100]} is a {type(part).__qualname__}, which has no place there"
            if isinstance(part, _MAPPINGS) and not _is_mapping_with_plain_keys_and_attributes(part):
                return f"{where[:100]} has odd keys or attributes"
            if isinstance(part, set) and not all(_is_plain_key(each) for each in part):
                return f"{where[:100]} holds odd members"
            if isinstance(part, torch.Tensor) and (said := _describe_unsafe_tensor_or_empty(part)):
                return f"{where[:100]} {said}"
    except CheckpointError as error:
        return error.message
    return ""


def _is_type_loadable_with_weights_only(part: Any) -> bool:
    """Return whether a value, without those in it, is of a type that torch loads with weights_only=True."""
    kind = type(part)
    if isinstance(part, torch.Tensor):
        return not part.is_meta and not part.is_nested
    if kind is int:
        return bool(part.bit_length() <= MAX_INT_BITS)
    if isinstance(part, dict):
        return kind.__module__ in ("builtins", "collections")
    return kind in _SCALARS or kind in _LISTS


def _is_mapping_with_plain_keys_and_attributes(part: Any) -> bool:
    """Return whether keys and attributes are plain: a file may set an attribute `items`, hiding the method."""
    own = getattr(part, "__dict__", {})
    return type(part) in _MAPPINGS and set(own) <= {"_metadata"} and all(_is_plain_key(key) for key in dict.keys(part))


def _is_plain_key(key: Any) -> bool:
    """Return whether a key is a scalar, or a tuple of at most 64 scalars."""
    if type(key) is tuple:
        return len(key) <= 64 and all(
            type(each) in _SCALARS and _is_type_loadable_with_weights_only(each) for each in key
        )
    return type(key) in _SCALARS and _is_type_loadable_with_weights_only(key)


def _describe_unsafe_tensor_or_empty(tensor: torch.Tensor) -> str:
    """Return what is unsafe about a tensor that was read from a file; "" if nothing is."""
    if type(tensor) not in _TENSORS:
        return f"is a {type(tensor).__qualname__}"
    if any(hasattr(torch.Tensor, name) for name in vars(tensor)):
        return "has attributes in the place of its methods"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return ""
    if tensor.device.type != "cpu":
        return f"is on {tensor.device}"
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size() if tensor.numel() else 0
    return "reaches beyond its memory" if end > tensor.untyped_storage().nbytes() else ""


def digest_plain_value(value: Any, *, max_bytes: int | None = None, ignore_expansion: bool = False) -> str:
    """Return 32 hex digits that depend on every bit of a plain value, its types and its order.

    max_bytes: how many may be digested before CheckpointError is raised. ignore_expansion: digest expanded tensors
    as if each element had memory of its own, as older versions did.
    """
    running = xxh3_128()
    spent = 0
    for where, part in iterate_value_and_nested_parts("", value):
        kind = "tensor" if isinstance(part, torch.Tensor) else type(part).__name__
        name = f"{where}\0{kind}\0".encode("utf-8", "surrogatepass")
        running.update(name)
        spent += len(name)
        if isinstance(part, torch.Tensor):
            spent += _count_digested_bytes(part, ignore_expansion)
            _require_within_budget(spent, max_bytes)
            running.update(f"{part.dtype}{tuple(part.shape)}".encode())
            for piece in _iterate_tensor_bytes_to_digest(part, ignore_expansion):
                running.update(piece)
        elif kind == "set":
            running.update(repr(sorted(map(repr, part))).encode("utf-8", "surrogatepass"))
        elif not isinstance(part, (*_LISTS, dict)):
            running.update(repr(part).encode("utf-8", "surrogatepass"))
        else:
            running.update(str(len(part)).encode())
        _require_within_budget(spent, max_bytes)
    return running.hexdigest()


def _count_digested_bytes(tensor: torch.Tensor, ignore_expansion: bool) -> int:
    whole = tensor.numel() * tensor.element_size()
    return whole if ignore_expansion or not _is_large_and_expanded(tensor) else tensor.untyped_storage().nbytes()


def _require_within_budget(digested_bytes: int, max_bytes: int | None) -> None:
    if max_bytes is not None and digested_bytes > max_bytes:
        raise CheckpointError("it holds the same memory over and over again")


def iterate_value_and_nested_parts(value_path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value and everything in it, in order, each with its path. Raises CheckpointError if that is endless."""
    yield value_path, value
    met: set[int] = set()
    again = 0
    levels = [_iterate_children(value_path, value)]
    repeated = [False]
    while levels:
        item = next(levels[-1], None)
        if item is None:
            levels.pop(), repeated.pop()
            continue
        where, part = item
        if len(where) > MAX_PATH_LENGTH:
            raise CheckpointError(f"{where[:100]}... has a name of {len(where)} characters")
        yield where, part
        again += repeated[-1]
        if again > MAX_SHARED_PARTS:
            raise CheckpointError(f"{where[:100]} is one of too many that share the same lists")
        if isinstance(part, (dict, list, tuple)) and not isinstance(part, torch.Size) and len(part):
            if len(levels) > MAX_DEPTH:
                raise CheckpointError(f"{where[:100]} is nested deeper than {MAX_DEPTH}, or holds itself")
            repeated.append(repeated[-1] or id(part) in met)
            met.add(id(part))
            levels.append(_iterate_children(where, part))


def _iterate_children(value_path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{value_path}[{key!r}]", inner) for key, inner in dict.items(value))
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return ((f"{value_path}[{at}]", inner) for at, inner in enumerate(value))
    return iter(())


def _is_large_and_expanded(tensor: torch.Tensor) -> bool:
    """Return whether elements share memory, so that a few bytes can stand for any number of them."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    size = tensor.numel() * tensor.element_size()
    return size > MIN_EXPANDED_BYTES and size > 2 * tensor.untyped_storage().nbytes()


def _iterate_tensor_bytes_to_digest(tensor: torch.Tensor, ignore_expansion: bool) -> Iterator[Any]:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        yield repr(tensor).encode()
        return
    plain = tensor.detach().cpu()
    if _is_large_and_expanded(plain) and not ignore_expansion:
        bits = f"{plain.storage_offset()} {plain.stride()} {plain.is_conj()} {plain.is_neg()}"
        yield f"expanded {bits}".encode()
        plain = torch.empty(0, dtype=torch.uint8).set_(plain.untyped_storage())
    yield from _iterate_chunks_of_bytes(plain)


def _iterate_chunks_of_bytes(tensor: torch.Tensor) -> Iterator[Any]:
    """Yield the bytes of the elements in order, copying not much more than a chunk at a time."""
    if not tensor.numel():
        return
    size = tensor.numel() * tensor.element_size()
    if size <= CHUNK_BYTES or (tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()):
        whole = tensor.resolve_conj().resolve_neg().contiguous()
        yield whole.reshape(-1).view(torch.uint8).numpy()
        return
    rows = max(1, CHUNK_BYTES * tensor.shape[0] // size)
    parts = tensor.unbind(0) if rows == 1 and tensor.dim() > 1 else tensor.split(rows)  # type: ignore[no-untyped-call]
    for part in parts:
        yield from _iterate_chunks_of_bytes(part)
