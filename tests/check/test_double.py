"""`samerun check --double`: what one run shows when every operator is executed twice, and that it changes nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from check_command import LINE_TOLERANCE, check, samerun
from repository_paths import PROGRAMS, ZOO
from watched_program import run

CAUGHT_BY_ONE_RUN = {"21", "23", "25", "27", "85"}
"""Programs of the zoo whose hazard can be seen in one run."""
TWO_THREADS = {"OMP_NUM_THREADS": "2"}


def line_of(program: str, mark: str) -> int:
    lines = (PROGRAMS / f"{program}.py").read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return found


def doubled(program: str, cwd: Path, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
    shutil.copy(PROGRAMS / f"{program}.py", cwd / "program.py")
    return check([*options, "--double", "program.py"], cwd, **environment)


# --- what it finds ---------------------------------------------------------------------------------------
def test_every_hazard_is_named_with_its_line(tmp_path: Path) -> None:
    code, report = doubled("double_caught", tmp_path, **TWO_THREADS)
    assert (code, report["verdict"]) == (1, "different")
    assert [(v["name"], v["outcome"]) for v in report["variations"]] == [("double", "different")]
    assert [r["id"] for r in report["runs"]] == ["double"]
    wanted = [
        ("uninitialised-memory", "unwritten"), ("uninitialised-memory", "unwritten number"),
        ("uninitialised-memory", "unwritten index"), ("nondeterministic-operator", "kernel"),
        ("thread-race", "operator race"), ("thread-race", "numpy race"),
    ]  # fmt: skip
    found = [report["cause"], *report["others"]]
    assert [(each["kind"], each["line"]) for each in found] == [
        (kind, line_of("double_caught", mark)) for kind, mark in wanted
    ]
    assert all(each["file"] == "program.py" and each["certain"] for each in found[:5])
    first = report["first_difference"]
    assert (first["variation"], first["operator"], first["line"]) == (
        "double", "aten.mm.default", line_of("double_caught", "unwritten read"),
    )  # fmt: skip
    # Each of 8 rows misses 4, 3, 2 or 1 of 6 columns: both results of every row are others.
    assert (first["elements_different"], first["elements"]) == (16, 16)
    assert first["max_abs"] == 4 * 2.71875
    assert "+    padded = torch.zeros(4, 6)" in report["fix"]["patch"]
    numpy_race = "\n".join(found[5]["evidence"])
    assert f"shared by Tensor.numpy() at program.py:{line_of('double_caught', 'numpy race')}" in numpy_race
    notes = "\n".join(report["notes"])
    for mark, how in (("address", "Tensor.data_ptr()"), ("dlpack", "torch.from_dlpack()")):
        read = line_of("double_caught", f"{mark} read")
        assert f"program.py:{read} " in notes
        assert f"shared by {how} at program.py:{line_of('double_caught', mark)}" in notes
    assert "numpy race" not in notes


def test_a_clean_program_is_clean(tmp_path: Path) -> None:
    code, report = doubled("double_clean", tmp_path, **TWO_THREADS)
    assert (code, report["verdict"], report["cause"], report["others"]) == (0, "same", None, [])
    notes = "\n".join(report["notes"])
    assert notes.count("memory that was changed since torch last used it") == 2
    assert "torch.profiler" in notes


@pytest.mark.slow
def test_what_is_ignored_does_not_count(tmp_path: Path) -> None:
    kinds = ("uninitialised-memory", "nondeterministic-operator", "thread-race", "time")
    ignore = [word for kind in kinds for word in ("--ignore", kind)]
    code, report = doubled("double_caught", tmp_path, *ignore, **TWO_THREADS)
    assert (code, report["verdict"], report["cause"]) == (0, "same", None)
    assert len(report["causes"]) == 6 and all(each["ignored"] for each in report["causes"])
    assert "--ignore time: nothing of the kind was found." in report["notes"]


@pytest.mark.exhaustive
def test_nothing_changes(tmp_path: Path) -> None:
    nothing_changes(tmp_path)


@pytest.mark.exhaustive
def test_nothing_changes_with_compiled_regions(tmp_path: Path) -> None:
    nothing_changes(tmp_path, "--compile")


def nothing_changes(folder: Path, *arguments: str) -> None:
    environment = {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    program = PROGRAMS / "many_features.py"
    plain = run(program, folder / "plain", *arguments, watched=False, environment=environment, code=3)
    twice = run(
        program, folder / "double", *arguments, environment={**environment, "MALLOC_PERTURB_": "255"}, code=3,
        executions=3, depth="ops", fresh_memory="zeros",
    )  # fmt: skip
    assert twice.traces.failures == []
    assert twice.stdout == plain.stdout
    assert twice.stderr == plain.stderr


# --- the command line ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--vary", "rerun"], "--vary cannot go with --double"),
        (["--vary-env", "A=1,2"], "--vary-env cannot go with --double"),
        (["--interrupt", "A=1", "--resume", "B=1"], "--interrupt and --resume cannot go with --double"),
        (["--trace", "steps"], "--trace steps cannot go with --double"),
    ],
)
def test_what_does_not_go_together_is_said(options: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("")
    done = samerun(["check", "--double", *options, "program.py"], tmp_path)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_program_that_fails_is_trouble_and_says_what_was_found_before(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nx = torch.empty(3)\ny = x + 1\nraise SystemExit(4)\n", encoding="utf-8"
    )
    done = samerun(["check", "--double", "--json", "report.json", "program.py"], tmp_path)
    assert done.returncode == 2
    assert "exit code 4" in done.stderr and "uninitialised-memory at program.py:2" in done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "trouble"


# --- more programs ---------------------------------------------------------------------------------------
@pytest.mark.exhaustive
@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_zoo(path: Path, tmp_path: Path) -> None:
    header = json.loads(path.read_text().splitlines()[0].removeprefix("# "))
    if not (header["cause"] == "none" or path.name[:2] in CAUGHT_BY_ONE_RUN):
        pytest.skip("two runs are needed to see it")
    (tmp_path / "program.py").write_text("#\n" + path.read_text().split("\n", 1)[1])
    code, report = check(["--double", "program.py"], tmp_path, **TWO_THREADS)
    if header["cause"] == "none":
        assert (code, report["cause"]) == (0, None)
        return
    assert code == 1
    assert report["cause"]["kind"] == header["cause"]
    assert abs(report["cause"]["line"] - header["culprit_line"]) <= LINE_TOLERANCE


@pytest.mark.exhaustive
def test_compiled_regions_are_executed_twice(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        """import torch
torch.manual_seed(0)
index, values = torch.randint(0, 17, (20000,)), torch.randn(20000, 64)
@torch.compile
def add(table):
    return table.index_put((index,), values, accumulate=True) * 2
for _ in range(20):
    add(torch.zeros(17, 64))
"""
    )
    code, report = check(["--double", "program.py"], tmp_path, **TWO_THREADS)
    assert (code, report["first_difference"]["operator"]) == (1, "compiled graph")
    assert report["cause"]["kind"] == "nondeterministic-operator"


@pytest.mark.exhaustive
def test_an_operator_that_reads_its_own_unwritten_memory(tmp_path: Path) -> None:
    """torch.linalg.lstsq hands LAPACK a pivot array that nothing wrote, as long as torch does so."""
    script = (
        "import torch\ntorch.manual_seed(0)\na, b = torch.randn(20, 8), torch.randn(20, 6)\n"
        "x = torch.linalg.lstsq(a, b).solution\nprint((x + 0).double().sum().item().hex())\n"
    )
    said = {
        run(script, tmp_path / byte, watched=False, environment={"MALLOC_PERTURB_": byte}).stdout
        for byte in ("255", "252")
    }
    (tmp_path / "program.py").write_text(script)
    code, report = check(["--double", "program.py"], tmp_path)
    assert code == (1 if len(said) > 1 else 0)
    if code:
        assert (report["cause"]["kind"], report["cause"]["line"]) == ("uninitialised-memory", 4)
        assert "report it to PyTorch" in report["fix"]["summary"]


@pytest.mark.exhaustive
def test_ranks_and_modules(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(5, 8) + dist.get_rank()).pow(2).sum().backward()
    optimizer.step()
if dist.get_rank() == int(os.environ.get("BAD", "-1")):
    (torch.empty(5) + 1).sum()
dist.destroy_process_group()
"""
    )
    command = ["--double", "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    code, report = check(command, tmp_path)
    assert (code, report["cause"]) == (0, None), report
    assert any("operators that communicate" in note for note in report["notes"])
    code, report = check(command, tmp_path, BAD="1")
    assert (code, report["cause"]["kind"], report["cause"]["line"]) == (1, "uninitialised-memory", 11)
    (tmp_path / "module.py").write_text("import torch\n(torch.empty(5) + 1).sum()\n")
    assert check(["--double", "-m", "module"], tmp_path)[0] == 1


# --- its parts -------------------------------------------------------------------------------------------
def test_copies_of_views_are_views_of_one_copy() -> None:
    import torch

    from samerun.record.watching.double_execution.execution import (
        ALIGNMENT,
        copy_tensors_by_id_preserving_aliasing,
        view_in_storage,
    )

    base = torch.arange(40.0)
    complexes = torch.randn(3, 2, dtype=torch.complex64)
    given = [base[3:20:2], base[5:15].view(5, 2).t(), complexes.conj(), torch.empty(0), complexes.conj().imag]
    copies = copy_tensors_by_id_preserving_aliasing(given)
    for tensor in given:
        copy = copies[id(tensor)]
        assert torch.equal(copy, tensor) and copy.dtype == tensor.dtype and copy.stride() == tensor.stride()
        assert tensor.numel() == 0 or copy.data_ptr() != tensor.data_ptr()
        assert copy.data_ptr() % ALIGNMENT == tensor.data_ptr() % ALIGNMENT
    one, other = copies[id(given[0])], copies[id(given[1])]
    one.fill_(-1)
    assert (other == -1).sum() == 5  # elements 5, 7, ... of both
    assert base.min() == 0
    bits = torch.arange(16, dtype=torch.uint8)[1:9]
    assert torch.equal(
        view_in_storage(bits, torch.arange(99, dtype=torch.uint8).untyped_storage(), 4), torch.arange(5, 13)
    )


def test_only_moving_operators_carry_on_what_was_never_written() -> None:
    import torch

    from samerun.record.watching.double_execution.memory import only_moves_elements

    ops = torch.ops.aten
    assert only_moves_elements(ops.cat.default, ([],), {}) and only_moves_elements(ops.copy_.default, (), {})
    assert only_moves_elements(ops.index_put_.default, (0, 0, 0), {})
    assert not only_moves_elements(ops.index_put_.default, (0, 0, 0, True), {})
    assert only_moves_elements(ops.scatter_.src, (), {}) and not only_moves_elements(ops.scatter_.reduce, (), {})
    assert not only_moves_elements(ops.add.Tensor, (), {})


def test_whoever_waits_for_a_result_does_not_wait_again() -> None:
    """The copy of what was on its way would never arrive."""
    import torch
    import torch.distributed._functional_collectives

    from samerun.record.watching.double_execution.execution import schema_exclusion_reason

    for name in ("wait_tensor", "all_reduce", "all_gather_into_tensor"):
        assert schema_exclusion_reason(getattr(torch.ops._c10d_functional, name).default)
    assert schema_exclusion_reason(torch.ops.aten.add.Tensor) == ""


def test_generators_of_the_program_do_not_move() -> None:
    import torch

    from samerun.record.watching.double_execution.execution import ZERO, GeneratorSnapshot, execute_again
    from samerun.record.watching.thread_state import ThreadState

    own = torch.Generator().manual_seed(3)
    for func, args, kwargs in (
        (torch.ops.aten.randn.default, ([4],), {}),
        (torch.ops.aten.uniform_.default, (torch.zeros(4),), {"generator": own}),
        (torch.ops.aten.poisson.default, (torch.ones(4), own), {}),
    ):
        draws = GeneratorSnapshot(func, args, kwargs, [])
        first = func(*args, **kwargs)
        states = torch.get_rng_state(), own.get_state()
        others = {id(arg): torch.zeros(4) for arg in args if func is torch.ops.aten.uniform_.default}
        again = execute_again(func, args, kwargs, others, draws, ThreadState(), ZERO)
        assert torch.equal(first, again) and draws.only_operator_drew()
        assert all(map(torch.equal, states, (torch.get_rng_state(), own.get_state())))
