"""Digests of the plain values that variables of a program hold."""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import suppress
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, cast

from xxhash import xxh3_128_digest

from samerun.base.user_code import is_user_code
from samerun.record.config import CONFIG_VARIABLE
from samerun.record.digests.digest import digest
from samerun.record.digests.state_digests import dict_items_bypassing_overrides, named_buffers, named_parameters

MAX_DEPTH, MAX_ITEMS = 5, 2000
FIRST_ELEMENTS = 256
MODULES_WITH_ADDRESSES = ("builtins", "ctypes")
"""Objects of types from here hold addresses (a library's handle), and are compared by type."""

MODULES_WITH_PROCESS_STATE = (
    "logging", "logging.handlers", "threading", "multiprocessing.context", "multiprocessing.managers",
    "multiprocessing.pool", "multiprocessing.process", "multiprocessing.queues", "multiprocessing.synchronize",
)  # fmt: skip
"""Objects of types from here hold process numbers, sockets, locks and what other modules have registered so far. They
are compared by type, for what results depend on comes out of them as a value."""
MODULES_WITH_VALUES = ("datetime", "decimal", "fractions")
"""Objects of types from here hold nothing but what their text says."""
ATTRIBUTES_OF_THREADS_AND_PROCESSES = frozenset(
    ("_ident", "_native_id", "_handle", "_parent_pid", "_popen", "_sentinel", "_config", "_child_created", "pid")
)
"""Attributes of such objects, in classes of the user's too, that are other ones in every run."""


ENVIRONMENT = b"environment".ljust(16, b"\0")
"""Stands for the environment, or for what a loop over all of it holds: samerun itself changes some of it from run to
run, whatever is varied. What becomes of a variable that the program asks for by name is compared."""


def is_environment_copy(value: Any) -> bool:
    """Whether a value is the process's environment, or all of its values in another container."""
    environ = os.environ
    if type(value) is type(environ):
        return True
    if not isinstance(value, (dict, list, tuple)) or not len(environ) // 2 <= len(value) <= 4 * len(environ):
        return False
    own = CONFIG_VARIABLE, environ.get(CONFIG_VARIABLE)
    for each in value:
        first = each[0] if isinstance(each, (tuple, list)) and each else each
        if isinstance(first, str) and (first in own or first.upper().startswith(CONFIG_VARIABLE)):
            return True
    return False


def digest_module(module: Any, attributes: dict[str, Any], depth: int) -> bytes:
    """Digest of a module: its class, its own attributes, its submodules, and the beginning of each tensor in it.

    Modules of one class differ in their weights, which lie deeper than other objects are looked into. A sharded tensor
    (DTensor) is digested by what this rank holds of it: to view it would call collectives, and a rank that is alone on
    a line would wait for the others for ever.
    """
    import torch

    plain = (torch.Tensor, torch.nn.Parameter)
    parts = [type(module).__qualname__.encode()]
    for name, tensor in (*named_parameters(module), *named_buffers(module)):
        beginning = tensor
        if type(tensor) in plain and tensor.is_contiguous():
            beginning = tensor.detach().view(-1)[:FIRST_ELEMENTS]
        parts += [f"{name}{tuple(tensor.shape)}".encode(), digest(beginning)]
    own = {name: value for name, value in attributes.items() if not name.startswith("_")}
    parts.append(digest_variable(own, depth + 1))
    parts += [digest_variable(each, depth + 1) for _, each in dict_items_bypassing_overrides(attributes["_modules"])]
    return xxh3_128_digest(b"".join(parts))


def is_thread_or_process(value: Any) -> bool:
    """Whether a value is a thread or a child process, or a Popen, of any class."""
    classes = type(value).__mro__
    own = ("threading", "Thread"), ("multiprocessing.process", "BaseProcess"), ("subprocess", "Popen")
    return any((each.__module__, each.__name__) in own for each in classes)


def read_slots_of_user_classes(value: Any) -> dict[str, Any]:
    """What stands in the slots of an object of the user's; classes of libraries keep hashes and addresses there."""
    held, kind = {}, cast(Any, type(value))
    for member in list_slots_of_user_classes(kind):
        with suppress(AttributeError):  # nothing was written there yet
            held[member.__name__] = member.__get__(value)
    return held


@lru_cache(maxsize=1000)
def list_slots_of_user_classes(kind: Any) -> tuple[MemberDescriptorType, ...]:
    found: list[MemberDescriptorType] = []
    for each in kind.__mro__:
        file = getattr(sys.modules.get(each.__module__), "__file__", None)
        if "__slots__" in vars(each) and file is not None and is_user_code(file, each.__module__):
            found += [member for member in vars(each).values() if isinstance(member, MemberDescriptorType)]
    return tuple(found)


def digest_variable(value: Any, depth: int = 0, is_in_slots: bool = False) -> bytes:
    """Digest of a plain value: order counts in lists and dicts, not in sets; addresses never count.

    is_in_slots: held by an object with slots. Of another such object its class counts: nodes of a graph, of which there
    are many, lead to each other.
    """
    if is_environment_copy(value):
        return ENVIRONMENT
    plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes))
    if plain or type(value).__module__ in MODULES_WITH_VALUES:
        return xxh3_128_digest(repr(value).encode("utf-8", "surrogatepass"))
    if depth >= MAX_DEPTH:
        return b"deep"
    if isinstance(value, (list, tuple, deque)):
        items = [digest_variable(v, depth + 1, is_in_slots) for _, v in zip(range(MAX_ITEMS), value, strict=False)]
        return xxh3_128_digest(f"list{len(value)}".encode() + b"".join(items))
    if isinstance(value, dict):
        items = [
            digest_variable(k, depth + 1, is_in_slots) + digest_variable(v, depth + 1, is_in_slots)
            for _, (k, v) in zip(range(MAX_ITEMS), dict_items_bypassing_overrides(value), strict=False)
        ]
        return xxh3_128_digest(f"dict{len(value)}".encode() + b"".join(items))
    if isinstance(value, (set, frozenset)):
        members = sorted(digest_variable(v, depth + 1, is_in_slots) for v in value) if len(value) <= MAX_ITEMS else []
        return xxh3_128_digest(f"set{len(value)}".encode() + b"".join(members))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return digest(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
        return xxh3_128_digest(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    if type(value).__module__ in MODULES_WITH_PROCESS_STATE:
        return xxh3_128_digest(type(value).__qualname__.encode())
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and is_thread_or_process(value):
        held = {name: each for name, each in held.items() if name not in ATTRIBUTES_OF_THREADS_AND_PROCESSES}
    if isinstance(held, dict) and "_parameters" in held and "_modules" in held:
        return digest_module(value, held, depth)
    if isinstance(value, type) or type(value).__module__ in MODULES_WITH_ADDRESSES:
        return xxh3_128_digest(type(value).__qualname__.encode())
    slots = {} if is_in_slots else read_slots_of_user_classes(value)
    if isinstance(held, dict) or slots:
        inside = digest_variable({**slots, **(held or {})}, depth + 1, is_in_slots or bool(slots))
        return xxh3_128_digest(type(value).__qualname__.encode() + inside)
    return xxh3_128_digest(type(value).__qualname__.encode())
