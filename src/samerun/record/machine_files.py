"""Files and programs that show what the machine is doing, and devices that give random bytes."""

from __future__ import annotations

import re

MACHINE_STATE_FOLDERS = ("/proc/", "/sys/")
RANDOM_DEVICES = ("/dev/urandom", "/dev/random", "/dev/hwrng")
RANDOM_FILES = "/proc/sys/kernel/random/"
MACHINE_FILE = "open of machine state"
"""The fact that one of the files was read."""
STARTED_PROGRAM = "subprocess"
"""The fact that a program was started and read; it is the command line."""
MACHINE_FACTS = (MACHINE_FILE, "os.sysconf", "os.getloadavg", "os.statvfs")
"""Facts that are other ones in every run, as the machine has more or less to do."""
TIME_PROGRAMS = ("date", "uptime")
STATE_PROGRAMS = ("free", "df", "du", "ps", "top", "vmstat", "nvidia-smi", "who", "mktemp", "uuidgen")
"""Programs that print another text in every run, or at other times."""
_LINKS = re.compile(r"/(fd|root|cwd|exe|map_files|task)(/|$)")


def gives_random_bytes(path: str) -> bool:
    """Whether a path is a device or a file of the system that gives other bytes each time."""
    return path in RANDOM_DEVICES or path.startswith(RANDOM_FILES)


def is_machine_state_file(path: str) -> bool:
    """Whether the system makes up what a file holds, and reading it twice does no harm: `/proc/self/fd/0` is a pipe."""
    return path.startswith(MACHINE_STATE_FOLDERS) and not _LINKS.search(path)
