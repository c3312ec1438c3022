"""Run programs in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def fresh(program: str, *arguments: str, **environment: str) -> Any:
    """What `program` prints last, as JSON, in a process of its own where every warning is an error."""
    kept = {name: value for name, value in os.environ.items() if name != "RANK"}
    run = [sys.executable, "-W", "error", "-c", program, *arguments]
    done = subprocess.run(run, capture_output=True, text=True, env={**kept, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def fresh_file(path: Path, *arguments: str, **environment: str) -> list[str]:
    """The lines that the program at `path` prints: one that spawns processes has to lie in a file."""
    kept = {name: value for name, value in os.environ.items() if name != "RANK"}
    run = [sys.executable, str(path), *arguments]
    done = subprocess.run(run, capture_output=True, text=True, env={**kept, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def loaded_modules(program: str) -> list[str]:
    """The modules that a program loads, in a process of its own that nothing watches."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SAMERUN_")}
    program += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout)
    return loaded
