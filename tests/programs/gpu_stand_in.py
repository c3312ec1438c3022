"""tools/gpu.py with stand-in parts, for tests/repository/test_gpu.py.

    gpu_stand_in.py OPTIONS...              the runner, whose parts are those below
    gpu_stand_in.py --part NAME OPTIONS...  the process of one of them
"""

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from gpu_parts import checks, machine, record, table

FOLDER = Path(os.environ["STAND_IN_FOLDER"])


def note_call(name):
    with open(FOLDER / "calls", "a") as file:
        file.write(f"{name}\n")


def fail():
    raise AssertionError("two <rows> differ\nsum float32 | 7")


def skip():
    raise checks.SkippedCheck("there is no second device")


def crash():
    print("the driver says no", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang():
    time.sleep(600)


def ignore():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def flood():
    for _ in range(300):
        os.write(1, b"x" * 9999 + b"\n")


def leave():
    """Two that outlive the part: one in its group, one in a session of its own; both hold its output open."""
    for detached in (False, True):
        child = subprocess.Popen(["sleep", "600"], start_new_session=detached)
        with open(FOLDER / "left", "a") as file:
            file.write(f"{child.pid}\n")


def leave_at_the_end():
    os._exit(5)


def measure():
    return {"ratios": {"/ torch": [1.5, 1.25, 2.0]}, "aims": {"/ torch": 1.2}}


def slow():
    time.sleep(0.4)


CHECKS = {
    "ways": {
        "holds": lambda: None, "fails": fail, "skips": skip, "crashes": crash, "hangs": hang, "ignores [SIGTERM]": ignore,
        "floods": flood, "leaves processes": leave, "exits": leave_at_the_end, "measures": measure, "is last": lambda: None,
    },
    "slow": {f"number {n}": slow for n in range(6)},
    "lost": {"loses the device": fail, "next": lambda: {"note": "another process"}},
    "needy": {"never": fail},
}
PARTS = tuple(
    table.PartEntry(name, f"stand-in {name}", 60.0, ("torch_of_tomorrow",) if name == "needy" else (), ("inputs.txt",),
                    measures_time=name == "lost")
    for name in (*CHECKS, "broken")
)


def make_part(name):
    def make_checks(device):
        for check, function in CHECKS[name].items():
            def run(check=check, function=function):
                note_call(check)
                return function()

            yield checks.Check(check, run, 1.0 if check in ("hangs", "ignores [SIGTERM]") else 30.0)

    return types.SimpleNamespace(make_checks=make_checks)


if sys.argv[1:2] == ["--part"]:
    name = sys.argv[2]
    if name == "broken":
        raise SystemExit("no such library")
    sys.modules[f"gpu_parts.{name}"] = make_part(name)
    checks.device_is_lost = lambda device: name == "lost"
    del sys.argv[1]
    sys.exit(checks.main())

import gpu

gpu.PARTS = record.PARTS = PARTS
gpu.LAST_SECONDS = gpu.LEAST_SECONDS = 0.2
record.ROOT = FOLDER
machine.probe_torch = lambda environment, device: {"torch": "2.99", "cuda": None, "devices": []}
machine.shutil.which = lambda name: None
make_environment = machine.make_environment
machine.make_environment = lambda *given: (make_environment(*given)[0], ["torch_of_tomorrow"])
part_command = gpu.part_command


def stand_in_command(part, *given):
    command = part_command(part, *given)
    return [sys.executable, __file__, "--part", *command[command.index(part) :]]


gpu.part_command = stand_in_command
sys.exit(gpu.main(sys.argv[1:]))
