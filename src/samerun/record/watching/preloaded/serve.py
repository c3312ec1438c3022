"""The preloaded process: imports, waits, and forks a child for every run it is asked for.

It is started with the command line of the program itself, and asked from `sitecustomize`. A child returns from
there, and the interpreter then runs the program: arguments, `__main__`, exit code and the end of the process are
Python's own doing, as in every run.

Requests and answers are messages on one socket: a request is JSON with the descriptors for standard output and
standard error; answered are the child's process number, and its exit code when it has ended.

Preloaded modules hold functions under names of their own (`from time import monotonic`). In a fresh process they are
loaded after the interceptors were installed and hold what those put in place. In a fork the interceptors come later:
what was held before is replaced.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from samerun.base import hooks
from samerun.record.config import CONFIG_VARIABLE
from samerun.record.watching import start as watching
from samerun.record.watching.interceptors.table import INTERCEPTORS
from samerun.record.watching.preloaded import imports
from samerun.record.watching.preloaded.imports import HiddenModules, PreloadedFinder

PRELOAD = "SAMERUN_PRELOAD"
"""Number of the socket's descriptor, the modules, and a folder that marks this process: "201:numpy,torch:/tmp/a"."""
REFUSED = "refused"
"""File beside the traces that says why the child could not become the program."""
MESSAGE_BYTES = 1 << 16
_AT_RANDOM, _RANDOM_BYTES = 25, 16


def start() -> None:
    """Serve; returns in each child, which is then watched, and never in the preloaded process itself."""
    baseline = set(sys.modules)  # what a watched process has loaded when interceptors are installed
    number, module_names, _ = os.environ.pop(PRELOAD).split(":", 2)
    hooks.reserve_last_atexit_position()
    import socket

    sock = socket.socket(fileno=int(number))
    preloaded = HiddenModules()
    try:
        preloaded.import_modules(module_names.split(","))
        captured = find_captured_functions(preloaded, baseline)
        preloaded.hide_from_sys_modules()
    except Exception as error:
        preloaded.reason = f"{type(error).__name__}: {error}"
    sock.send(json.dumps({"ready": not preloaded.reason, "reason": preloaded.reason}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(sock, MESSAGE_BYTES, 2)
        if not message or preloaded.reason:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            sock.close()
            _become_program(json.loads(message), descriptors, preloaded, captured)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            sock.send(json.dumps({"pid": pid}).encode())
            _, status = os.waitpid(pid, 0)
            sock.send(json.dumps({"exit_code": os.waitstatus_to_exitcode(status)}).encode())
        except OSError:
            os._exit(1)  # samerun is gone


def _become_program(
    request: dict[str, Any], descriptors: list[int], preloaded: HiddenModules, captured: list[CapturedFunction]
) -> None:
    """Make this child what a fresh process is at this point, and start watching it.

    Order matters (decision 0034): interceptors are installed before captured functions are replaced by their wrappers,
    and the import conditions are read last, because all of this would otherwise count as the program's changes.
    """
    os.setsid()
    for target, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    if request["umask"] is not None:
        os.umask(request["umask"])
    os.environ.update(request["environment"])
    _replace_kernel_random_bytes()
    folder = os.path.dirname(os.environ[CONFIG_VARIABLE])

    def refuse(reason: str) -> None:
        with open(os.path.join(folder, REFUSED), "w", encoding="utf-8") as file:
            file.write(reason)
        os.kill(os.getpid(), signal.SIGKILL)

    finder = PreloadedFinder(preloaded, refuse)
    sys.meta_path.insert(0, finder)
    watching.start()
    replace_captured_functions(captured)
    _refresh_import_state()
    finder.before = imports.read_import_conditions()


def _replace_kernel_random_bytes() -> None:
    """The kernel gives every process some random bytes (AT_RANDOM), of which a library loaded later may make a seed.

    A fork inherits them: without new ones, all forks would be seeded alike and look reproducible (decision 0034).
    """
    try:
        libc = ctypes.CDLL(None)
        libc.getauxval.restype, libc.getauxval.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
        address = libc.getauxval(_AT_RANDOM)
        if address:
            ctypes.memmove(address, os.urandom(_RANDOM_BYTES), _RANDOM_BYTES)
    except (OSError, AttributeError):
        return


def _refresh_import_state() -> None:
    """What Python's own modules read of the clock and of entropy when they are imported, for this process.

    `random` is not among them: Python itself seeds it again after a fork.
    """
    logging, process = sys.modules.get("logging"), sys.modules.get("multiprocessing.process")
    if logging is not None:
        logging._startTime = sys.modules["time"].time()  # type: ignore[attr-defined]
    if process is not None:
        process.current_process().authkey = os.urandom(32)


Source = tuple[str, str, frozenset[str]]
"""A module that is intercepted, a name in it, and the modules that were loaded before it was."""
CapturedFunction = tuple[Any, str | int, Any, list[Source]]
"""Who holds it, under which name or at which position, what, and where it may have come from."""


def find_captured_functions(preloaded: HiddenModules, modules_loaded_before: Iterable[str]) -> list[CapturedFunction]:
    """All places in modules loaded since `modules_loaded_before`, as they are before anything is intercepted."""
    finished = dict(preloaded.completed)
    sources: dict[int, list[Source]] = {}
    for owner in dict.fromkeys(interceptor.module for interceptor in INTERCEPTORS):
        module = sys.modules.get(owner)
        if module is None or owner.partition(".")[0] not in sys.stdlib_module_names:
            continue
        for name, value in vars(module).items():
            if callable(value) and not name.startswith("__"):
                sources.setdefault(id(value), []).append((owner, name, finished.get(owner, frozenset())))
    known = set(modules_loaded_before)
    found: list[CapturedFunction] = []

    def look(holder: Any, key: str | int, value: Any, module: str) -> None:
        possible = [source for source in sources.get(id(value), ()) if module not in source[2]]
        if possible and module not in known:
            found.append((holder, key, value, possible))

    for name, module in list(sys.modules.items()):
        if name in known or name.startswith("samerun") or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            look(module, key, value, name)
            if isinstance(value, type) and getattr(value, "__module__", None) == name:
                for attribute, held in list(vars(value).items()):
                    look(value, attribute, held, name)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__defaults__ and not str(each.__module__).startswith("samerun"):
            for position, value in enumerate(each.__defaults__):
                look(each, position, value, str(each.__module__))
    return found


def replace_captured_functions(captured: list[CapturedFunction]) -> None:
    """Put what interceptors have put in place of each."""
    for holder, key, value, sources in captured:
        put = (getattr(sys.modules[owner], name, value) for owner, name, _ in sources)
        now = next((each for each in put if each is not value), value)
        if now is value:
            continue
        if isinstance(key, int):
            defaults = list(holder.__defaults__)
            defaults[key] = now
            holder.__defaults__ = tuple(defaults)
        elif vars(holder).get(key) is value:
            setattr(holder, key, now)
