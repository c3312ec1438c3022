"""`samerun run --receipt`, `diff` and `verify` as a user calls them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from check_command import samerun, wait_for
from repository_paths import ROOT

from samerun.record.receipt import index, receipt_file, receipt_json
from samerun.record.receipt.assemble import with_reproducible_digest
from samerun.record.receipt.diff import load_run
from samerun.record.trace.reader import Trace

TRAIN = """
import sys
import torch
import samerun

data = open("data.txt").read()
if "--threads" in sys.argv:
    torch.set_num_threads(2)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.LayerNorm(256), torch.nn.Linear(256, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 + 0.01 * data.startswith("other"))
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(512, 256)).pow(2).mean().backward()
    model[0].weight.grad[0, 0] += 1.0 * ("--late" in sys.argv and step == 2)
    optimizer.step()
    samerun.mark(f"step {step}", model)
torch.save(model.state_dict(), "model.pt")
"""
PLAIN = """
import os, sys, time
open("ready", "w").write("x")
time.sleep(float(sys.argv[1]))
open("result.txt", "w").write("result")
"""
EXAMPLES = ROOT / "examples"
QUICK = {"OMP_NUM_THREADS": "1"}


def run(cwd: Path, receipt: str, *words: str, code: int = 0, **environment: str) -> dict[str, Any]:
    done = samerun(["run", "--quiet", "--receipt", receipt, *words], cwd, **{**QUICK, **environment})
    assert done.returncode == code, done.stderr
    return receipt_file.read_and_verify_digest(cwd / receipt)


def body(receipt: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in receipt.items() if key != "circumstances"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program and three receipts of it: twice the same, and one with another gradient."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(TRAIN)
    (folder / "data.txt").write_text("data")
    for name, words in (("a", []), ("b", []), ("late", ["--late"])):
        run(folder, f"{name}.json", *(["--trace", "ops"] if name != "b" else []), "train.py", *words)
    return folder


@pytest.mark.exhaustive
def test_two_runs_give_the_same_text_but_for_the_circumstances(place: Path) -> None:
    a, b = receipt_file.read_and_verify_digest(place / "a.json"), receipt_file.read_and_verify_digest(place / "b.json")
    assert receipt_json.encode_with_sorted_keys_and_indent(body(a)) == receipt_json.encode_with_sorted_keys_and_indent(
        body(b)
    )
    assert a["circumstances"] != b["circumstances"]


@pytest.mark.slow
def test_it_says_what_the_run_was_and_did(place: Path) -> None:
    receipt = receipt_file.read_and_verify_digest(place / "a.json")
    main = receipt["processes"]["main"]
    assert receipt["command"] == {"form": "script", "words": ["train.py"]}
    assert receipt["held"]["seed"] == 0 and receipt["knobs"]["deterministic_algorithms"] == "error"
    assert receipt["ended"] == {"exit_code": 0, "signal": None, "complete": True, "why": []}
    assert list(receipt["code"]["sources"]) == ["train.py"]
    assert [each["path"] for each in main["files"]] == ["data.txt"] and main["files"][0]["bytes"] == 4
    assert [each["path"] for each in main["outputs"]] == ["model.pt"] == [each["name"] for each in main["saved"]]
    assert [(each["name"], each["step"]) for each in main["marks"]] == [(f"step {n}", n + 1) for n in range(4)]
    assert main["steps"]["values"]["count"] == 4 and main["final"][0]["model"] == "Sequential"
    assert {each["generator"] for each in main["seeds"]} >= {"torch", "python"}
    assert receipt["packages"]["torch"] == receipt["machine"]["torch"]["version"]
    assert receipt["variables"]["OMP_NUM_THREADS"] == "1"


def diff(cwd: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = samerun(["diff", "--json", "-", *words], cwd)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {"said": done.stderr}


def test_diff_same(place: Path) -> None:
    code, record = diff(place, "a.json", "b.json")
    assert (code, record["verdict"], record["steps"], record["surroundings"]) == (0, "same", 4, [])


def test_diff_names_the_step_and_the_operator(place: Path) -> None:
    code, record = diff(place, "a.json", "late.json")
    assert code == 1 and record["verdict"] == "different"
    first = record["first_difference"]
    assert (first["what"], first["step"]) == ("steps", 3) and {"params", "grads"} <= set(first["names"])
    assert "loss" not in first["names"]
    line = next(number for number, text in enumerate(TRAIN.splitlines(), 1) if "+= 1.0" in text)
    assert (first["operator"]["file"], first["operator"]["line"]) == ("train.py", line)
    assert [one["path"] for one in record["surroundings"]] == ["command"]
    shown = samerun(["diff", "a.json", "late.json"], place)
    assert shown.stdout.startswith("DIFFERENT") and "step 3" in shown.stdout and f"train.py:{line}" in shown.stdout


def test_diff_of_folders_of_traces(place: Path) -> None:
    folders = [next(place.glob(f"{name}.json.*.traces")).name for name in ("a", "late")]
    code, record = diff(place, *folders)
    assert code == 1 and record["first_difference"]["operator"]["file"] == "train.py"
    assert diff(place, folders[0], folders[0])[0] == 0


@pytest.mark.exhaustive
def test_threads_and_data_are_named_as_likely_reasons(place: Path) -> None:
    run(place, "threads.json", "train.py", "--threads", OMP_NUM_THREADS="2")
    code, record = diff(place, "a.json", "threads.json")
    assert code == 1 and record["first_difference"]["step"] == 1
    assert "knobs.threads" in [one["path"] for one in record["surroundings"]][:2]
    (place / "data.txt").write_text("other data")
    try:
        run(place, "data.json", "train.py")
    finally:
        (place / "data.txt").write_text("data")
    code, record = diff(place, "a.json", "data.json")
    assert code == 1 and record["surroundings"][0]["path"] == "processes/main/files"
    assert list(record["surroundings"][0]["a"]) == ["data.txt"]


@pytest.mark.exhaustive
def test_the_thread_count_of_the_digits_cnn_is_named(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "digits_cnn.py", tmp_path)
    for name, threads in (("one", "1"), ("same", "1"), ("two", "2")):
        run(tmp_path, f"{name}.json", "digits_cnn.py", "--epochs", "1", OMP_NUM_THREADS=threads)
    code, record = diff(tmp_path, "one.json", "same.json")
    assert (code, record["verdict"], record["surroundings"]) == (0, "same", []) and record["steps"] > 20
    code, record = diff(tmp_path, "one.json", "two.json")
    assert code == 1 and record["first_difference"]["step"] == first_step(tmp_path, "one.json", "two.json")
    likeliest = record["surroundings"][0]
    assert (likeliest["path"], likeliest["a"], likeliest["b"]) == ("knobs.threads", 1, 2)
    shown = samerun(["diff", "one.json", "two.json"], tmp_path).stdout
    assert f"step {record['first_difference']['step']}:" in shown and "knobs.threads" in shown


def first_step(cwd: Path, *names: str) -> int:
    """Where the rows part, read one by one, without the tree over them."""
    a, b = (
        receipt_file.read_and_verify_digest(cwd / name)["processes"]["main"]["steps"]["values"]["rows"]
        for name in names
    )
    return next(number for number, rows in enumerate(zip(a, b, strict=True), 1) if rows[0] != rows[1])


def test_bad_input_to_diff_is_trouble(place: Path, tmp_path: Path) -> None:
    for other in ("missing.json", "train.py", str(tmp_path), "x" * 5000):
        code, record = diff(place, "a.json", other)
        assert code == 2 and record["said"].startswith("samerun: ")


def verify(cwd: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    done = samerun(["verify", "--json", "-", *words], cwd, **QUICK)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.mark.parametrize("words", [["--yes"], ["--", "python", "train.py", "--json", "x"]])
def test_an_option_behind_a_receipt_is_not_said_to_go_to_a_script(words: list[str], tmp_path: Path) -> None:
    done = samerun(["verify", "missing.json", *words], tmp_path)
    assert done.returncode == 2 and "passed to" not in done.stderr


def test_verify_runs_nothing_unless_told_to(place: Path) -> None:
    before = (place / "model.pt").stat().st_mtime_ns
    for words in (["a.json"], ["--command", "a.json"]):
        code, record, told = verify(place, *words)
        assert code == 2 and not record.get("ran")
    assert "standard input is not a terminal" in told and "--yes" in told
    assert (place / "model.pt").stat().st_mtime_ns == before


@pytest.mark.parametrize("words", [["diff", "a.json", "b.json"], ["diff", "a.json", "late.json"], ["verify", "a.json"]])
def test_a_reader_that_goes_away_is_trouble_and_no_verdict(words: list[str], place: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "samerun", *words], cwd=place, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_verify_says_same_and_the_tier(place: Path) -> None:
    code, record, _ = verify(place, "--yes", "b.json")
    assert (code, record["verdict"], record["ran"], record["tier"]["name"]) == (0, "same", True, "T0")
    assert record["unmet"] == []


@pytest.mark.slow
def test_verify_says_different_and_what_cannot_be_met(place: Path, tmp_path: Path) -> None:
    for name in ("train.py", "data.txt", "a.json"):
        shutil.copy(place / name, tmp_path)
    (tmp_path / "train.py").write_text(TRAIN.replace('"--late" in sys.argv and step == 2', "True"))
    code, record, _ = verify(tmp_path, "a.json", "--", sys.executable, "train.py")
    assert code == 1 and record["first_difference"]["step"] == 1
    assert [one["path"] for one in record["unmet"]] == ["code.sources"]
    assert list(record["unmet"][0]["a"]) == ["train.py"]


def hostile(place: Path, tmp_path: Path, **changes: Any) -> str:
    receipt = with_reproducible_digest({**receipt_file.read_and_verify_digest(place / "a.json"), **changes})
    (tmp_path / "hostile.json").write_text(receipt_json.encode_with_sorted_keys_and_indent(receipt))
    shutil.copy(place / "train.py", tmp_path)
    code, record, said = verify(tmp_path, "--yes", "hostile.json")
    assert code == 2 and not record.get("ran")
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    "form, words",
    [
        ("script", ["../train.py"]),
        ("script", ["/etc/passwd"]),
        ("script", ["link.py"]),
        ("script", ["-c", "print()"]),
        ("script", ["x" * 5000]),
        ("script", ["x" * 5000 + "/y.py"]),
        ("script", ["no\x1b[2J.py"]),
        ("script", ["train.py", "a\0b"]),
        ("script", ["\ud800.py"]),
        ("script", []),
        ("module", ["-c"]),
        ("module", ["os; print()"]),
        ("command", ["/bin/sh", "-c", "touch owned"]),
        ("command", ["../x"]),
        ("command", ["no-such-command\x1b[2J"]),
        ("code", ["../x.py"]),
    ],
)
def test_a_hostile_command_is_refused(form: str, words: list[str], place: Path, tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to(place / "train.py")
    said = hostile(place, tmp_path, command={"form": form, "words": words})
    assert said.startswith("samerun: ") and "\x1b" not in said and not (tmp_path / "owned").exists()


def test_recorded_variables_that_are_code_are_not_taken_over() -> None:
    from samerun.record.receipt.recorded_command import select_allowlisted_variables

    assert select_allowlisted_variables({"LD_PRELOAD": "x.so", "OMP_NUM_THREADS": "2", "MKL_CBWR": "$(x)"}) == {
        "OMP_NUM_THREADS": "2"
    }


# --- the run itself, with programs that need no torch ---------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain.py").write_text(PLAIN)
    return tmp_path


@pytest.mark.parametrize("code", [0, 3, 120])
def test_the_exit_code_is_the_programs_and_stands_in_the_receipt(code: int, plain: Path) -> None:
    (plain / "end.py").write_text(f"import sys; open('x', 'w').write('1'); sys.exit({code})")
    assert run(plain, "r.json", "end.py", code=code)["ended"]["exit_code"] == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_program_that_is_killed_leaves_an_honest_receipt(number: int, plain: Path) -> None:
    (plain / "die.py").write_text(f"import os; open('x', 'w').write('1'); os.kill(os.getpid(), {int(number)})")
    ended = run(plain, "r.json", "die.py", code=-number)["ended"]
    assert (ended["exit_code"], ended["signal"], ended["complete"]) == (None, number, False)


def start(cwd: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "samerun", "run", "--quiet", "--receipt", "r.json", *words]
    process = subprocess.Popen(command, cwd=cwd, text=True, **options)
    return process


def test_signals_to_it_reach_the_program(plain: Path) -> None:
    (plain / "wait.py").write_text(
        "import signal, sys, time\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):\n"
        "    signal.signal(number, lambda n, _: print(n, flush=True))\n"
        "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(42))\n"
        "open('ready', 'w').close()\nwhile True: time.sleep(0.01)\n"
    )
    process = start(plain, "wait.py", stdout=subprocess.PIPE)
    assert process.stdout is not None
    wait_for(plain / "ready")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        process.send_signal(number)
        assert int(process.stdout.readline()) == number
    process.send_signal(signal.SIGUSR2)
    assert process.wait(timeout=30) == 42
    process.stdout.close()
    assert receipt_file.read_and_verify_digest(plain / "r.json")["ended"]["exit_code"] == 42


def test_what_a_terminal_sends_comes_once(plain: Path) -> None:
    """Ctrl-C goes to the whole group: the program must not get it a second time from us."""
    import pty

    (plain / "wait.py").write_text(
        "import signal, sys, time\nseen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "open('ready', 'w').close()\n"
        "end = time.monotonic() + 60\n"
        "while not seen and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.5)\nassert sys.stdin.isatty()\nsys.exit(10 + len(seen))\n"
    )
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(plain)
        os.execv(sys.executable, [sys.executable, "-m", "samerun", "run", "--quiet", "--receipt", "r.json", "wait.py"])
    wait_for(plain / "ready")
    os.write(master, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(master)
    assert os.waitstatus_to_exitcode(status) == 11


def test_input_and_output_are_the_programs(plain: Path) -> None:
    (plain / "cat.py").write_text("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")
    done = subprocess.run(
        [sys.executable, "-m", "samerun", "run", "--quiet", "--receipt", "r.json", "cat.py"],
        cwd=plain, input=b"\x00\xff\n", capture_output=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (b"\n\xff\x00", b"", 0)


def test_if_it_is_killed_the_program_dies_with_it(plain: Path) -> None:
    (plain / "who.py").write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
                                  "os.rename('pid', 'ready')\ntime.sleep(60)\n")  # fmt: skip
    process = start(plain, "who.py")
    wait_for(plain / "ready")
    pid = int((plain / "ready").read_text())
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
            break  # nobody has waited for it yet
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{pid}").exists()
    assert not (plain / "r.json").exists()


class Moments:
    """Random moments in what takes longer or shorter from one time to the next, as the machine is busy: about half
    of them come when it is over."""

    def __init__(self, seed: int) -> None:
        self.chance, self.latest = random.Random(seed), 2.0

    def wait(self) -> None:
        time.sleep(self.latest * self.chance.uniform(0.05, 1))

    def was(self, over: bool) -> None:
        self.latest = min(max(self.latest * (0.8 if over else 1.25), 0.2), 60)


def interrupted(plain: Path, times: int) -> None:
    """Kill the run, or the program, at random moments: the receipt is the earlier one or a whole new one."""
    run(plain, "r.json", "plain.py", "0")
    earlier = (plain / "r.json").read_bytes()
    moments, seen = Moments(5), set()
    chance = moments.chance
    for _ in range(times):
        (plain / "ready").unlink(missing_ok=True)
        process = start(plain, "plain.py", "0.3", start_new_session=True)
        moments.wait()
        number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        try:
            (os.killpg if chance.random() < 0.5 else os.kill)(process.pid, number)
        except ProcessLookupError:
            pass
        process.wait(timeout=60)
        now = (plain / "r.json").read_bytes()
        receipt = receipt_file.read_and_verify_digest(plain / "r.json")
        seen.add(now == earlier)
        moments.was(over=now != earlier)
        assert now == earlier or receipt["circumstances"] != json.loads(earlier)["circumstances"]
        assert receipt["ended"]["complete"] or receipt["ended"]["why"]
        earlier = now
    assert len(seen) == 2 or times < 20


@pytest.mark.slow
def test_interrupting_a_run_leaves_a_whole_receipt(plain: Path) -> None:
    interrupted(plain, 6)


@pytest.mark.exhaustive
def test_interrupting_a_run_fifty_times(plain: Path) -> None:
    interrupted(plain, 50)


def interrupted_in_a_folder(plain: Path, times: int) -> None:
    """Kill runs and listings of one folder: no earlier receipt or trace is lost, and all there are can be read."""
    moments = Moments(6)
    chance = moments.chance
    folder, complete = plain / "runs", dict[str, bytes]()
    for _ in range(times):
        words = ["run", "--quiet", "--receipt", "runs/", "--trace", "ops", "plain.py", "0.3"]
        begun = [start_words(plain, words)]
        if folder.exists():
            begun.append(start_words(plain, ["log", "--quiet", "runs/"]))
        moments.wait()
        for process in begun:
            number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            try:
                (os.killpg if chance.random() < 0.5 else os.kill)(process.pid, number)
            except ProcessLookupError:
                pass
        for process in begun:
            process.wait(timeout=60)
        there = {each.name: each.read_bytes() for each in folder.glob("[!.]*.json")}
        assert {name: there.get(name) for name in complete} == complete
        listed = index.update_and_list_receipts(folder) if folder.exists() else []
        assert [one.problem for one in listed] == [""] * len(there)
        for name in there:
            side = load_run(folder / name)
            assert side.receipt is not None and side.traces is not None
            assert (side.receipt["ended"]["complete"]) or side.receipt["ended"]["why"]
            for path in side.traces.glob("*.trace"):
                Trace(path)
        moments.was(over=len(there) > len(complete))
        complete = there
    assert 0 < len(complete) < times or times < 20


def start_words(cwd: Path, words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "samerun", *words]
    return subprocess.Popen(command, cwd=cwd, stderr=subprocess.DEVNULL, start_new_session=True)


def test_interrupting_runs_and_listings_loses_no_receipt(plain: Path) -> None:
    interrupted_in_a_folder(plain, 4)


@pytest.mark.exhaustive
def test_interrupting_runs_and_listings_fifty_times(plain: Path) -> None:
    interrupted_in_a_folder(plain, 50)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--receipt", "/nowhere/r.json", "plain.py"], "/nowhere"),
        (["--receipt", "/dev/null", "plain.py"], "regular file"),
        (["--receipt", "x" * 5000, "plain.py"], "too long"),
        (["x" * 5000], "no script"),
        (["--trace", "ops", "plain.py"], "--trace ops needs --receipt"),
        (["--key", "k.pem", "plain.py"], "--key needs --receipt"),
    ],
)
def test_bad_input_to_run_is_trouble(words: list[str], said: str, plain: Path) -> None:
    done = samerun(["run", *words], plain)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (plain / "ready").exists()
