"""Prints what a program can see of the process it runs in, as two lines of JSON: what must not vary, what must."""

import sys

early = sorted(n for n in sys.modules if n.partition(".")[0] in ("torch", "numpy", "typing_extensions", "torchgen"))
import atexit
import ctypes
import hashlib
import json
import logging
import multiprocessing
import os
import random
import resource
import signal
import threading
import time
import types
import warnings

clock = time.time()
stable = {"early": early, "clock": clock if "--clock" in sys.argv else 0, "log": 0}
stable["argv"] = [sys.argv, sys.orig_argv, str(sys.flags)]
stable["path"] = [sys.path, os.getcwd()]
stable["main"] = [__name__, __file__, str(__spec__), __doc__]
mask = os.umask(0)
os.umask(mask)
stable["umask"] = mask
stable["environment"] = [(k, v) for k, v in os.environ.items() if not k.startswith("SAMERUN")]
stable["names"] = list(os.environ)
stable["session"] = [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()]
stable["signals"] = [str(signal.getsignal(s)) for s in sorted(signal.valid_signals())]
with open("/proc/self/status") as file:
    kept = ("SigBlk", "SigIgn", "SigCgt", "Cap", "Cpus", "Threads", "NoNew", "Name")
    stable["status"] = [line for line in file if line.startswith(kept)]
stable["descriptors"] = sorted(os.listdir("/proc/self/fd"))
streams = (sys.stdin, sys.stdout, sys.stderr)
stable["streams"] = [
    [s.name, s.encoding, s.errors, s.line_buffering, s.isatty(), oct(os.fstat(s.fileno()).st_mode), s.buffer.tell()
     if s.seekable() else 0] for s in streams
]
stable["files"] = [os.path.basename(os.readlink(f"/proc/self/fd/{n}")) for n in range(3)]
stable["stdin"] = sys.stdin.read()
stable["limits"] = [resource.getrlimit(n) for n in range(10)]
stable["threads"] = [threading.active_count(), threading.current_thread() is threading.main_thread()]
stable["hash"] = hash("a")
stable["filters"] = str(warnings.filters)
import numpy

stable["behind numpy"] = sorted(n for n in sys.modules if n.partition(".")[0] == "torch")
import torch

varying = {
    "python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
    "torch": torch.initial_seed(),
    "numpy": hashlib.sha256(repr(numpy.random.get_state()).encode()).hexdigest(),
    "authkey": multiprocessing.current_process().authkey.hex(),
    "urandom": os.urandom(8).hex(),
}
libc = ctypes.CDLL(None)
libc.getauxval.restype, libc.getauxval.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
varying["kernel"] = ctypes.string_at(libc.getauxval(25), 16).hex()
stable["log"] = 0 <= clock - logging._startTime < 60
stable["filters behind torch"] = str(warnings.filters)
stable["packages"] = sorted(
    n for n in sys.modules if n.partition(".")[0] not in sys.stdlib_module_names and not n.startswith("samerun")
)
stable["torch"] = [torch.get_num_threads(), torch.get_num_interop_threads(), torch.is_grad_enabled()]

HERE = os.sep + "samerun" + os.sep
PROGRAM = os.sep + "tests" + os.sep


with open("/proc/self/maps") as maps:
    WRAPPERS = [[int(at, 16) for at in line.split()[0].split("-")] for line in maps if "samerun/base/_wrap." in line]
DEFINITION_AT = {types.BuiltinFunctionType: 16, types.MethodDescriptorType: 40, types.ClassMethodDescriptorType: 40}


def is_wrapper(value):
    """Does this function in C begin in samerun's library?"""
    definition = ctypes.c_void_p.from_address(id(value) + DEFINITION_AT[type(value)]).value
    begin = ctypes.c_void_p.from_address(definition + 8).value
    return any(first <= begin < last for first, last in WRAPPERS)


def put_there(value):
    """Did samerun put this function or type in the place of another?"""
    if type(value) in DEFINITION_AT:
        return is_wrapper(value)
    if type(value) in (staticmethod, classmethod, types.MethodType):
        value = value.__func__
    if type(value) is types.FunctionType:
        return HERE in value.__code__.co_filename and PROGRAM not in value.__code__.co_filename
    return str(type(value).__module__).startswith("samerun")


held = []
for name, module in sorted(sys.modules.items()):
    if isinstance(module, types.ModuleType) and not name.startswith("samerun") and name != "__main__":
        for key, value in list(vars(module).items()):
            if put_there(value):
                held.append(f"{name}.{key}")
            if issubclass(type(value), type) and value.__module__ == name:
                held += [f"{name}.{key}.{a}" for a, b in vars(value).items() if put_there(b)]
            if type(value) is types.FunctionType:
                held += [f"{name}.{key}({one.__name__})" for one in value.__defaults__ or () if put_there(one)]
stable["intercepted"] = sorted(held)
atexit.register(lambda: print("last", flush=True))
print(json.dumps(stable))
print(json.dumps(varying))
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
