"""Free memory, load and `/proc` decide what a program computes; random devices do; printing them does not count."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_command import check
from watched_program import run

READS = """\
import os, shutil
from pathlib import Path
print(Path("/proc/uptime").read_text(), os.sysconf("SC_AVPHYS_PAGES"), os.getloadavg(), shutil.disk_usage(".").free)
print(open("/dev/urandom", "rb").read(20), open("/proc/sys/kernel/random/uuid").read())
"""


STARTS = """\
import os, subprocess
print(subprocess.run(["date", "+%s.%N"], stdout=-1, stderr=-1, text=True).stdout, os.popen("date +%s.%N").read())
print(subprocess.check_output("date +%s.%N", shell=True))
"""


def test_a_pin_holds_still_what_programs_print_that_are_started(tmp_path: Path) -> None:
    shown = [
        run(STARTS, tmp_path / str(number), pins=pins).stdout.splitlines()
        for number, pins in enumerate((("machine",), ("machine",), ()))
    ]
    assert shown[0] == shown[1] != shown[2]
    assert [len(line) for line in shown[0]] == [len(line) for line in shown[2]]


def test_a_pin_holds_still_what_the_machine_is_doing_or_what_its_devices_give(tmp_path: Path) -> None:
    shown = [
        run(READS, tmp_path / str(number), pins=pins).stdout.splitlines()
        for number, pins in enumerate((("machine",), ("machine",), ("entropy",), ("entropy",)))
    ]
    state, devices = [lines[:2] for lines in shown], [lines[2:] for lines in shown]
    assert state[0] == state[1] != state[2]
    assert devices[2] == devices[3] != devices[0]


def test_what_lies_in_a_pipe_is_the_programs(tmp_path: Path) -> None:
    program = """\
import os
reading, writing = os.pipe()
os.write(writing, b"all of it")
os.close(writing)
print(open(f"/proc/self/fd/{reading}").read())
"""
    assert run(program, tmp_path, pins=("machine",)).stdout == b"all of it\n"


def check_cause(program: str, folder: Path) -> tuple[int, str, int, bool]:
    (folder / "program.py").write_text(program)
    code, report = check(["--vary", "rerun", "program.py"], folder)
    cause = report["cause"]
    return code, cause["kind"], cause["line"], cause["certain"]


@pytest.mark.exhaustive
def test_the_state_of_the_machine_is_printed_and_no_difference(tmp_path: Path) -> None:
    program = READS.rsplit("\n", 2)[0] + "\nimport torch\nprint(torch.ones(9).sum() / 7)\n"
    (tmp_path / "program.py").write_text(program)
    code, report = check(["--vary", "rerun", "program.py"], tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report


@pytest.mark.slow
def test_a_random_device_is_named_where_it_is_opened(tmp_path: Path) -> None:
    program = "with open('/dev/urandom', 'rb') as device:\n    raw = device.read(2)\nprint('score', raw[0] / 7)\n"
    assert check_cause(program, tmp_path) == (1, "os-entropy", 1, True)


@pytest.mark.exhaustive
def test_what_is_made_of_free_memory_is_named_where_it_is_read(tmp_path: Path) -> None:
    program = """\
import os, torch
from pathlib import Path
def free():
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0])
x = torch.ones(8) * (free() % 1009)
print(os.getloadavg(), x.relu().shape)
"""
    assert check_cause(program, tmp_path) == (1, "os-entropy", 4, True)


@pytest.mark.exhaustive
def test_a_seed_that_a_program_prints_is_named_where_it_is_started(tmp_path: Path) -> None:
    program = """\
import subprocess, torch
def shell(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
print("begun", shell("date"))
torch.manual_seed(int(shell("date", "+%s%N")) % 1009)
print(torch.rand(3).shape)
"""
    assert check_cause(program, tmp_path) == (1, "time", 3, True)
