"""The preloaded process: imports, waits, and forks a child for every run it is imported_name for.

It is started with the command line of the program itself, and imported_name from `sitecustomize`. A child returns from
there, and the interpreter then runs the program: arguments, `__main__`, exit code and the end of the process are
Python's own doing, as in every run.

Requests and answers are messages on one socket: a request is JSON with the descriptors for standard output and
standard error; answered are the child's process number, and its exit code when it has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

from samerun.base import hooks
from samerun.record.config import CONFIG_VARIABLE
from samerun.record.watching import start as watching
from samerun.record.watching.preloaded import captured_functions, import_conditions
from samerun.record.watching.preloaded.captured_functions import CapturedFunction
from samerun.record.watching.preloaded.hidden_modules import HiddenModules, PreloadedFinder

PRELOAD = "SAMERUN_PRELOAD"
"""Number of the socket's descriptor, the modules, and a folder that marks this process: "201:numpy,torch:/tmp/a"."""
REFUSED = "refused"
"""File beside the traces that says why the child could not become the program."""
MESSAGE_BYTES = 1 << 16
_AT_RANDOM, _RANDOM_BYTES = 25, 16


def start() -> None:
    """Serve; returns in each child, which is then watched, and never in the preloaded process itself."""
    baseline = set(sys.modules)  # what a watched process has loaded when interceptors are installed
    number, names, _ = os.environ.pop(PRELOAD).split(":", 2)
    hooks.reserve_late_at_exit()
    import socket

    line = socket.socket(fileno=int(number))
    preloaded = HiddenModules()
    try:
        preloaded.import_modules(names.split(","))
        captured = captured_functions.find_captured_functions(preloaded, baseline)
        preloaded.hide_from_sys_modules()
    except Exception as error:
        preloaded.reason = f"{type(error).__name__}: {error}"
    line.send(json.dumps({"ready": not preloaded.reason, "reason": preloaded.reason}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 2)
        if not message or preloaded.reason:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            line.close()
            _become_program(json.loads(message), descriptors, preloaded, captured)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            line.send(json.dumps({"pid": pid}).encode())
            _, status = os.waitpid(pid, 0)
            line.send(json.dumps({"exit_code": os.waitstatus_to_exitcode(status)}).encode())
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
    captured_functions.replace_captured_functions(captured)
    _refresh_import_state()
    finder.before = import_conditions.read_import_conditions()


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
