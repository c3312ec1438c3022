"""The commands that README.md and the pages in docs/ show run as they stand, in the order of their page, on one small
program. Every block is accounted for: it is run here or in test_doc_examples.py, or it says below why it is not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from repository_paths import ROOT

from samerun.cli import samerun_group

LAUNCHED = "tests/adapters/test_launchers.py starts each launcher"
SWITCHES = "minutes each: tests/check/test_neutral.py and test_neutral_programs.py run such switches"
NOT_RUN = {
    "pip install samerun": "tests/release/test_wheel.py installs what was built",
    "make demo": "the commands that it shows are run here",
    "samerun check -- torchrun --nproc-per-node 2 train.py": LAUNCHED,
    "samerun check -- accelerate launch --num_processes 2 train.py": LAUNCHED,
    "samerun run --receipt job.json -- torchrun --nproc-per-node 2 train.py": LAUNCHED,
    "srun samerun run --receipt job.json train.py": LAUNCHED,
    "samerun check train.py model.width=64": LAUNCHED,
    "samerun check ray_train.py": LAUNCHED,
    "samerun check --neutral recompute,attention,optimizer-implementation train.py": SWITCHES,
    "samerun check --neutral python=../new-torch/bin/python train.py": SWITCHES,
    "samerun bisect --over packages monday.json friday.json -- train.py": "needs two sets of packages",
    "samerun bisect --over packages old.json new.json -- train.py": "needs two sets of packages",
    "samerun bisect --over data monday friday -- train.py --data {}": "tests/commands/test_bisect.py has two folders",
}
"""Command -> why it is not run here. All of them are parsed."""
NO_COMMANDS = {
    "docs/check.md": ["the form of the JSON report: record.schema.json, which tests hold every report to"],
    "docs/howto/where-you-work.md": [
        "a notebook: tests/adapters/test_notebook.py", "a notebook: tests/adapters/test_notebook.py",
        "a workflow of GitHub, which runs there alone", "trackers: tests/adapters/test_trackers.py",
    ],
    "docs/when-a-difference-matters.md": ["a part of a report"],
    "docs/guard.md": ["an error"],
    "docs/batch-invariance.md": ["an answer"],
    "docs/neutral.md": ["an answer", "an answer"],
    "docs/reference/rules.md": ["settings"],
    "docs/reference/trace-format.md": ["a drawing", "a formula"],
}  # fmt: skip
"""Page -> for each block that has no command and is not in Python (test_doc_examples.py, tests/lint), what it is."""

TRAIN = """
import argparse, os
import torch

words = argparse.ArgumentParser()
for name, value in (("--epochs", 1), ("--max-steps", 4), ("--batch", 8), ("--accumulate", 1)):
    words.add_argument(name, type=int, default=value)
options = words.parse_args()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=float(os.environ.get("RATE", "0.1")))
path, done, last = os.environ.get("RESUME", "last.pt"), 0, options.epochs * 4
data = torch.randn(8, 64, 4)
if os.path.exists(path) and (state := torch.load(path))["done"] < last:
    model.load_state_dict(state["model"])
    done = state["done"]
for step in range(done, min(last, int(os.environ.get("STOP_AT", "99")))):
    optimizer.zero_grad()
    for part in data[step % 8].split(options.batch):
        (model(part).square().mean() * (options.batch / 64)).backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "done": step + 1}, "last.pt")
"""

SERVE = """
import samerun, torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
with samerun.portable(), torch.no_grad():
    print(model(torch.randn(4, 8)).sum().item())
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of each fenced block."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """(command, what the block shows it print) of each command of a block, without its comment."""
    shown = re.findall(r"^(?:\$ |(?=samerun |pip ))(.*)\n((?:(?!\$ |samerun |pip ).*\n)*)", text, re.M)
    return [(shlex.join(shlex.split(command, comments=True)), output.splitlines()) for command, output in shown]


PAGES = {
    str(page.relative_to(ROOT)): [one for language, text in blocks(page) if language == "" for one in commands_of(text)]
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}  # fmt: skip
"""Page -> its commands. The tutorial's have a language: test_doc_examples.py runs them, and compares."""
SHOWN = {shlex.join(shlex.split(command)) for command in NOT_RUN}


def test_no_block_is_forgotten() -> None:
    others: dict[str, list[str]] = {}
    for page in PAGES:
        for language, text in blocks(ROOT / page):
            tested_elsewhere = language.split(" ")[0] in ("python", "py", "console")
            if not tested_elsewhere and not commands_of(text):
                others.setdefault(page, []).append(text.partition("\n")[0])
    assert {page: len(starts) for page, starts in others.items()} == {p: len(why) for p, why in NO_COMMANDS.items()}, (
        others
    )
    there = {command for commands in PAGES.values() for command, _ in commands}
    assert there >= SHOWN, f"no page shows them any more: {SHOWN - there}"


def test_every_command_is_one_that_samerun_has() -> None:
    for page, commands in PAGES.items():
        for command, _ in commands:
            words = shlex.split(command)
            if "samerun" not in words or words[0] == "pip":
                continue
            words = words[words.index("samerun") + 1 :]
            with samerun_group.make_context("samerun", words[:1]) as context:
                subcommand = samerun_group.get_command(context, words[0])
                assert subcommand is not None, f"{page}: {command}"
                subcommand.make_context(words[0], words[1:], parent=context)


def make_project(folder: Path) -> None:
    """A project that the commands of any page can work on: its history has a change of the results."""
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "serve.py").write_text(SERVE, encoding="utf-8")
    (folder / "package").mkdir()
    (folder / "package/__init__.py").touch()
    (folder / "package/train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "generate.py").write_text(
        "import torch\nprint(torch.randn(3, generator=torch.Generator().manual_seed(0)))\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "main", "."], ["add", "-A"], ["commit", "-qm", "first"], ["tag", "v1.0"],
                  ["tag", "v1.2"]):  # fmt: skip
        subprocess.run([*git, *words], cwd=folder, check=True)
    (folder / "train.py").write_text(TRAIN.replace('"0.1"', '"0.2"'), encoding="utf-8")
    subprocess.run([*git, "commit", "-qam", "another rate"], cwd=folder, check=True)


FINDING = ("samerun bisect ", "samerun doctor train.py")
"""Beginnings of commands that are to find something, on these pages; all others end with 0."""
OF_THE_MACHINE = ("cpu_capability", "--vary all")
"""Other instructions may round differently in any program."""


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "samerun"
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )  # fmt: skip


ONCE: dict[str, list[tuple[str, list[str]]]] = {}
for _page, _commands in PAGES.items():
    _before = {command for commands in ONCE.values() for command, _ in commands} | SHOWN
    if _new := [(command, shown) for command, shown in _commands if command not in _before]:
        ONCE[_page] = _new


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", ONCE)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    make_project(tmp_path)
    for command, shown in ONCE[page]:
        in_repository = "examples/" in command  # README's demo
        if "--over settings" in command:
            for name, size in (("monday", 8), ("friday", 16)):
                (tmp_path / "last.pt").unlink(missing_ok=True)
                made = run(f"samerun run --receipt {name}.json train.py --batch {size}", tmp_path)
                assert made.returncode == 0, made.stderr
        (tmp_path / "last.pt").unlink(missing_ok=True)
        answered = command.replace("verify --command", "verify --yes --command")  # it asks at a terminal alone
        done = run(answered, ROOT if in_repository else tmp_path)
        code = [line for line in shown if line.startswith("(exit code ")]
        wanted = {int(code[0][11:-1])} if code else {int(command.startswith(FINDING))}
        if any(word in command for word in OF_THE_MACHINE):
            wanted = {0, 1}
        assert done.returncode in wanted, f"{command}\n{done.stdout}{done.stderr}"
        at = 0
        for line in shown if in_repository else ():
            if line.strip() not in ("...", *code):
                at = done.stdout.find(line.strip(), at)
                assert at >= 0, f"{line!r} does not stand in what `{command}` prints:\n{done.stdout}"
