"""What a watched process leaves in its trace: places, phases, random numbers, host events, processes, ends."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import sys
from pathlib import Path

import pytest
from watched_program import Outcome, run

from samerun.record.trace import format as f
from samerun.record.trace.run import Event

# --- operators -----------------------------------------------------------------------------------------

TRAINING = """
import torch
import torch.nn.functional as F
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x))  # in block

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.fails = Fails()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        try:
            self.fails(x)
        except ValueError:
            pass
        return x.exp()  # after the exception

class Fails(nn.Module):
    def forward(self, x):
        x.sin()  # in fails
        raise ValueError

torch.manual_seed(3)  # seeding
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    y = net(torch.ones(2, 4))
    loss = F.mse_loss(y, torch.zeros(2, 4))  # loss
    loss.backward()  # backward
    optimizer.step()  # step
    optimizer.zero_grad()
torch.ones(3).cos()  # between
functional = torch.func.functional_call(net, dict(net.named_parameters()), (torch.ones(2, 4),))

torch.randn(2)  # draw 1
torch.randn(2)  # draw 2
torch.manual_seed(3)  # seeding again
torch.randn(2)  # draw 3
heads = torch.ones(1, 2, 4, 8)
F.scaled_dot_product_attention(heads, heads, heads)  # attention
F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5)  # attention with dropout
torch.seed()  # seeded by the system
own = torch.Generator()  # generator
own.manual_seed(5)  # generator seeded
torch.randn(2, generator=own)  # own draw
own.seed()  # generator seeded by the system
torch.set_rng_state(torch.get_rng_state())  # restored

torch.save({"w": torch.ones(2)}, "w.pt")  # save
torch.load("w.pt")  # load
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    outcome = run(TRAINING, tmp_path_factory.mktemp("training") / "run")
    assert not outcome.traces.failures
    assert outcome.traces.main is not None and outcome.traces.main.complete
    return outcome


def at(outcome: Outcome, mark: str, *kinds: int) -> list[Event]:
    """The events that stand at a marked line of the program."""
    line = outcome.line(mark)
    return [e for e in outcome.events(*kinds) if e.line == line and e.file == str(outcome.script)]


def only(outcome: Outcome, mark: str, *kinds: int) -> Event:
    (event,) = at(outcome, mark, *kinds)
    return event


def test_forward_operators_stand_at_the_users_line_and_module(training: Outcome) -> None:
    tanh = training.operators("tanh.default")
    assert [e.module for e in tanh] == ["blocks.0", "blocks.1"] * 3
    assert {(e.line, e.phase) for e in tanh} == {(training.line("in block"), "forward")}
    linear = training.operators("addmm")
    assert {e.module for e in linear} == {"blocks.0.linear", "blocks.1.linear"}
    assert {e.line for e in linear} == {training.line("in block")}


def test_an_exception_in_forward_leaves_the_modules_right(training: Outcome) -> None:
    assert {(e.module, e.line) for e in training.operators("sin")} == {("fails", training.line("in fails"))}
    assert {(e.module, e.line) for e in training.operators("exp")} == {("Net", training.line("after the exception"))}


def test_backward_operators_stand_at_the_line_of_their_forward(training: Outcome) -> None:
    tanh = training.operators("tanh_backward")
    assert len(tanh) == 4
    assert {(e.line, e.phase) for e in tanh} == {(training.line("in block"), "backward")}
    assert [e.module for e in tanh] == ["blocks.1", "blocks.0"] * 2
    (mse, *_) = training.operators("mse_loss_backward")
    assert (mse.line, mse.phase) == (training.line("loss"), "backward")


def test_optimizer_and_other_operators_have_their_phase(training: Outcome) -> None:
    assert {e.phase for e in at(training, "step", f.OPERATOR)} == {"optimizer"}
    assert len(at(training, "step", f.OPERATOR)) > 0
    assert [(e.name, e.phase) for e in at(training, "between", f.OPERATOR)] == [
        ("aten.ones.default", "between"),
        ("aten.cos.default", "between"),
    ]


def test_steps_come_with_their_leaves(training: Outcome) -> None:
    assert [e.inputs for e in training.events(f.STEP)] == [1, 2]
    leaves = [e.name for e in training.events(f.LEAF)]
    assert leaves[:6] == ["params", "grads", "buffers", "optimizer", "loss", "batch"]
    params = training.events(f.LEAF, name="params")
    assert params[0].outputs != params[1].outputs
    (final,) = training.events(f.FINAL)
    assert final.name == "Net"


def test_only_models_that_the_program_still_holds_count_at_the_end(tmp_path: Path) -> None:
    """Another model may get the number of one that is gone; a cycle is left until the collector comes."""
    outcome = run(
        """
        import gc
        import torch

        gc.disable()
        for width in (1, 2, 3, 4):
            model = torch.nn.Linear(width, 1)
            model(torch.ones(width))
            del model
        for width in (5, 6):
            model = torch.nn.Linear(width, 1)
            model.itself = [model]
            model(torch.ones(width))
        """,
        tmp_path,
    )
    (final,) = outcome.events(f.FINAL)
    assert final.name == "Linear" and len(outcome.operators("addmm")) == 6


def test_draws_show_the_state_before_them(training: Outcome) -> None:
    one, two, three = (only(training, f"draw {n}", f.DRAW) for n in (1, 2, 3))
    assert {e.name for e in (one, two, three)} == {"torch"}
    assert len({one.outputs, two.outputs, three.outputs}) == 3
    assert one.inputs == two.inputs == three.inputs == 3
    assert one.text.startswith("aten.randn")
    own = only(training, "own draw", f.DRAW)
    assert (own.name, own.inputs) == ("torch.Generator", 5)


def test_an_operator_that_may_draw_and_does_not_draws_nothing(training: Outcome) -> None:
    assert [e.text for e in at(training, "attention", f.OPERATOR)]
    assert not at(training, "attention", f.DRAW)
    assert at(training, "attention with dropout", f.DRAW)


def test_torch_seeds(training: Outcome) -> None:
    seed = only(training, "seeding", f.SEED)
    assert (seed.name, seed.inputs, seed.is_seeded_by_system) == ("torch", 3, False)
    assert at(training, "seeded by the system", f.SEED)[0].is_seeded_by_system
    assert only(training, "generator", f.CREATE).name == "torch.Generator"
    assert only(training, "generator seeded", f.SEED).inputs == 5
    assert only(training, "generator seeded by the system", f.SEED).is_seeded_by_system
    assert only(training, "restored", f.SEED).inputs != 0


def test_saved_and_loaded_values_are_one(training: Outcome) -> None:
    saved, loaded = only(training, "save", f.SAVE), only(training, "load", f.LOAD)
    assert saved.text == loaded.text == "w.pt"
    assert saved.outputs == loaded.outputs != bytes(16)


DTENSOR = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
mesh = init_device_mesh("cpu", (1,))
local = torch.ones(8) * 2
whole = DTensor.from_local(local, mesh, [Shard(0)])
local.mul(3)
whole.add_(1)  # written
local.mul(3)
fresh = torch.empty_like(whole)  # fresh
fresh.sum()
written = torch.empty_like(whole).fill_(1)
written.sum()
"""
JAGGED = """
import torch

rows = torch.arange(12.0).reshape(6, 2) * 2
whole = torch.nested.nested_tensor_from_jagged(rows, torch.tensor([0, 2, 6]))
rows.mul(3)
whole.add_(1)  # written
rows.mul(3)
fresh = torch.empty_like(whole)  # fresh
fresh.sum()
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", [DTENSOR, JAGGED], ids=["DTensor", "jagged"])
def test_operators_on_a_wrapper_are_those_on_the_tensor_in_it(program: str, tmp_path: Path) -> None:
    outcome = run(program, tmp_path, fresh_memory="zeros")
    before, after = outcome.operators("mul.Tensor")[-2:]
    assert before.inputs != after.inputs, "a write through the wrapper changes what the tensor in it holds"
    assert [event.line for event in outcome.operators("add_")] == [outcome.line("written")]
    assert [event.line for event in outcome.events(f.FRESH)] == [outcome.line("fresh")]
    skipped = [] if program is DTENSOR else ["aten.zeros.default"]  # on the meta device: a DTensor's are not counted
    assert [event.name for event in outcome.events(f.SKIPPED)] == skipped


# --- random numbers and the surroundings: no torch, so these programs start at once ------------------------

SURROUNDINGS = """
import datetime, glob, os, pathlib, random, secrets, time, uuid
import numpy as np

for name in ("b", "a", "c"):
    pathlib.Path("data", name).mkdir(parents=True)
pathlib.Path("data/a/x.txt").write_text("one")
np.save("data/x.npy", np.arange(3))
np.arange(3, dtype=np.uint8).tofile("data/x.bin")

random.seed(1)  # python seed
random.random()  # python draw 1
random.random()  # python draw 2
random.seed()  # python unseeded
random.Random()  # Random()
random.Random(4)  # Random(4)
random.SystemRandom()  # SystemRandom()
random.setstate(random.getstate())  # python restored
np.random.seed(1)  # numpy seed
np.random.rand()  # numpy draw 1
np.random.rand()  # numpy draw 2
np.random.seed()  # numpy unseeded
np.random.default_rng()  # default_rng()
np.random.default_rng(2)  # default_rng(2)
rng = np.random.default_rng(np.random.SeedSequence(3))  # default_rng(sequence)
rng.normal()  # rng draw 1
rng.normal()  # rng draw 2
np.random.RandomState()  # RandomState()
np.random.RandomState(3)  # RandomState(3)
np.random.SeedSequence()  # SeedSequence()
os.urandom(4)  # urandom
uuid.uuid4()  # uuid4
secrets.token_bytes(4)  # secrets
time.time()  # time
time.time_ns()  # time_ns
datetime.datetime.now()  # now
datetime.date.today()  # today
time.strftime("%Y")  # strftime
os.listdir("data")  # listdir
with os.scandir("data") as found: list(found)  # scandir
glob.glob("data/*")  # glob
list(pathlib.Path("data").iterdir())  # iterdir
list(os.walk("data"))  # walk
open("data/a/x.txt").read()  # open
pathlib.Path("data/a/x.txt").read_text()  # read_text
np.load("data/x.npy")  # np.load
np.memmap("data/x.bin", dtype=np.uint8, mode="r")  # memmap
np.fromfile("data/x.bin", dtype=np.uint8)  # fromfile
os.environ.get("SOME_VARIABLE")  # environ.get
os.getenv("SOME_VARIABLE")  # getenv
os.environ["SOME_VARIABLE"]  # environ
"SOME_VARIABLE" in os.environ  # environ in
os.environ.get("ABSENT")  # absent
"""


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("surroundings") / "run"
    outcome = run(SURROUNDINGS, folder, environment={"SOME_VARIABLE": "v"})
    assert not outcome.traces.failures
    return outcome


@pytest.mark.parametrize(
    ("mark", "kind", "name", "unseeded"),
    [
        ("python seed", f.SEED, "python", False), ("python unseeded", f.SEED, "python", True),
        ("Random()", f.CREATE, "python.Random", True), ("Random(4)", f.CREATE, "python.Random", False),
        ("python restored", f.SEED, "python", False),
        ("numpy seed", f.SEED, "numpy", False), ("numpy unseeded", f.SEED, "numpy", True),
        ("default_rng()", f.CREATE, "numpy.Generator", True), ("default_rng(2)", f.CREATE, "numpy.Generator", False),
        ("default_rng(sequence)", f.CREATE, "numpy.Generator", False),
        ("RandomState()", f.CREATE, "numpy.Generator", True), ("SeedSequence()", f.CREATE, "numpy.Generator", True),
    ],
)  # fmt: skip
def test_seeds_and_creations(surroundings: Outcome, mark: str, kind: int, name: str, unseeded: bool) -> None:
    event = only(surroundings, mark, f.SEED, f.CREATE)
    assert (event.kind, event.name, event.is_seeded_by_system) == (kind, name, unseeded)
    assert unseeded or event.inputs != 0


@pytest.mark.parametrize(
    "mark",
    [
        "SystemRandom()",
        # its bit generator is made unseeded and seeded right after
        "RandomState(3)",
    ],
)
def test_other_creations_never_count_as_unseeded(surroundings: Outcome, mark: str) -> None:
    assert not any(e.is_seeded_by_system for e in at(surroundings, mark, f.SEED, f.CREATE))


@pytest.mark.parametrize(("generator", "mark"), [("python", "python"), ("numpy", "numpy"), ("numpy.Generator", "rng")])
def test_draws_show_a_state_that_moves(surroundings: Outcome, generator: str, mark: str) -> None:
    one, two = (only(surroundings, f"{mark} draw {n}", f.DRAW) for n in (1, 2))
    assert one.name == two.name == generator
    assert one.outputs != two.outputs


@pytest.mark.parametrize(
    ("mark", "name"),
    [("urandom", "os.urandom"), ("uuid4", "uuid.uuid4"), ("secrets", "os.urandom")],
)
def test_entropy(surroundings: Outcome, mark: str, name: str) -> None:
    assert name in [e.name for e in at(surroundings, mark, f.ENTROPY)]
    assert all(e.direct and e.outputs != bytes(16) for e in at(surroundings, mark, f.ENTROPY))


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        ("time", "time.time"), ("time_ns", "time.time_ns"), ("now", "datetime.now"), ("today", "date.today"),
        ("strftime", "time.localtime"),
    ],
)  # fmt: skip
def test_clocks(surroundings: Outcome, mark: str, name: str) -> None:
    assert only(surroundings, mark, f.CLOCK).name == name


@pytest.mark.parametrize("mark", ["listdir", "scandir", "glob", "iterdir", "walk"])
def test_listings(surroundings: Outcome, mark: str) -> None:
    first = at(surroundings, mark, f.LISTING)[0]
    listed = only(surroundings, "listdir", f.LISTING)
    assert first.text == "data"
    assert first.inputs == listed.inputs  # the same names
    assert len(at(surroundings, mark, f.LISTING)) == (4 if mark == "walk" else 1)


@pytest.mark.parametrize(
    ("mark", "path", "size"),
    [
        ("open", "data/a/x.txt", 3), ("read_text", "data/a/x.txt", 3), ("np.load", "data/x.npy", 152),
        ("memmap", "data/x.bin", 3), ("fromfile", "data/x.bin", 3),
    ],
)  # fmt: skip
def test_files(surroundings: Outcome, mark: str, path: str, size: int) -> None:
    event = at(surroundings, mark, f.FILE)[0]
    assert (event.text, event.inputs) == (path, size)
    assert event.outputs != bytes(16)


@pytest.mark.parametrize("mark", ["environ.get", "getenv", "environ"])
def test_environment_reads(surroundings: Outcome, mark: str) -> None:
    event = only(surroundings, mark, f.ENVIRONMENT)
    absent = only(surroundings, "absent", f.ENVIRONMENT)
    assert (event.name, absent.name) == ("SOME_VARIABLE", "ABSENT")
    assert event.outputs != absent.outputs


def test_seeding_numpy_from_the_system_is_no_entropy_of_the_users(surroundings: Outcome) -> None:
    assert not at(surroundings, "numpy unseeded", f.ENTROPY)
    assert not at(surroundings, "default_rng()", f.ENTROPY)


# --- variations and pins from inside -----------------------------------------------------------------------


def test_reversed_listings(tmp_path: Path) -> None:
    program = """
        import glob, os, pathlib
        for name in "bac":
            pathlib.Path("data", name).mkdir(parents=True)
        print(os.listdir("data"), [e.name for e in os.scandir("data")], glob.glob("*", root_dir="data"))
        print([p.name for p in pathlib.Path("data").iterdir()], next(os.walk("data"))[1], sorted(os.listdir("data")))
    """
    first, last = ["a", "b", "c"], ["c", "b", "a"]
    for listing, order in (("sorted", first), ("reversed", last)):
        outcome = run(program, tmp_path / listing, listing_order=listing)
        assert outcome.stdout.decode() == f"{order} {order} {order}\n{order} {order} {first}\n"


@pytest.mark.slow
def test_fresh_memory(tmp_path: Path) -> None:
    program = """
        import numpy as np, torch
        x = torch.empty(3)
        print(x.tolist(), torch.empty(2, dtype=torch.int64).tolist(), np.empty(2).tolist(), x.new_empty(1).tolist())
        print(torch.empty_like(x).tolist(), np.empty_like(np.ones(1)).tolist(), torch.empty(0).tolist())
    """
    zeros = run(program, tmp_path / "zeros", fresh_memory="zeros").stdout.decode()
    pattern = run(program, tmp_path / "pattern", fresh_memory="pattern").stdout.decode()
    assert zeros == "[0.0, 0.0, 0.0] [0, 0] [0.0, 0.0] [0.0]\n[0.0, 0.0, 0.0] [0.0] []\n"
    assert pattern == zeros.replace("0.0", "2.71875").replace("[0, 0]", "[3, 3]")


def test_a_shifted_clock(tmp_path: Path) -> None:
    program = """
        import datetime, time
        print(time.time(), datetime.datetime.now().timestamp(), time.mktime(time.localtime()), time.time_ns() / 1e9)
        print(datetime.datetime.now(datetime.timezone.utc).timestamp())
    """
    day = 86400.0 * 400
    plain, shifted = (
        [float(word) for word in run(program, tmp_path / str(shift), clock_shift=shift).stdout.split()]
        for shift in (0.0, day)
    )
    assert len(plain) == 5
    assert all(day <= b - a < day + 3600 for a, b in zip(plain, shifted, strict=True))


@pytest.mark.exhaustive
def test_pins_give_the_same_values_in_every_process(tmp_path: Path) -> None:
    program = """
        import datetime, os, random, secrets, time, uuid
        import numpy as np, torch
        print(random.random(), random.Random().random(), np.random.rand(), np.random.default_rng().random())
        print(torch.rand(1).item(), torch.Generator().seed(), torch.seed(), os.urandom(4), secrets.token_hex(4))
        print(uuid.uuid4(), time.time(), datetime.datetime.now(), time.perf_counter())
        random.seed(), np.random.seed()
        print(random.random(), np.random.rand(), np.random.RandomState().rand())
    """
    names = ("python", "python-generator", "numpy-global", "numpy-generator", "torch", "torch-generator", "entropy",
             "clock")  # fmt: skip
    one, other = (run(program, tmp_path / n, pins=names).stdout.splitlines() for n in ("one", "other"))
    free = run(program, tmp_path / "free").stdout.splitlines()
    assert one == other
    assert not any(set(a.split()) & set(b.split()) for a, b in zip(one, free, strict=True) if b"-" not in b)


# --- processes and threads -----------------------------------------------------------------------------

PROCESSES = """
import os, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
import torch
from torch.utils.data import DataLoader, Dataset

class Noisy(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.randn(2) + index  # in worker

def work(number):
    torch.full((2,), float(number)).cos()  # in thread

def main():
    torch.manual_seed(1)
    for context in ("fork", "spawn"):
        loader = DataLoader(Noisy(), batch_size=2, num_workers=2, multiprocessing_context=context)
        print(len(list(loader)))
    thread = threading.Thread(target=work, args=(1,), name="named")
    thread.start()
    thread.join()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(4)))
    child = os.fork()
    if child == 0:
        torch.ones(2).sin()  # in fork
        os._exit(0)
    os.waitpid(child, 0)
    subprocess.run([sys.executable, "-c", "import random; random.seed(1)"], check=True)
    subprocess.run([sys.executable, "child.py"], check=True)
    torch.ones(2).exp()  # after the children

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("processes") / "run"
    folder.mkdir()
    (folder / "child.py").write_text("import os\nprint(os.urandom(1) != b'')\n")
    outcome = run(PROCESSES, folder)
    assert not outcome.traces.failures
    return outcome


@pytest.mark.exhaustive
def test_every_process_has_a_trace_named_by_its_role(processes: Outcome) -> None:
    # the second loader's workers are spawned: they are told which loader they belong to
    workers = {f"main/loader{loader}.worker{worker}" for loader in (1, 2) for worker in (0, 1)}
    roles = set(processes.traces.traces)
    assert workers <= roles
    assert {"main", "main/sub"} <= roles
    assert sum(role.startswith("main/fork") for role in roles) == 1
    assert all(trace.complete for trace in processes.traces.traces.values())


@pytest.mark.slow
@pytest.mark.parametrize("loader", [1, 2])
def test_workers_record_their_own_operators(processes: Outcome, loader: int) -> None:
    line = processes.line("in worker")
    for worker in (0, 1):
        role = f"main/loader{loader}.worker{worker}"
        draws = [e for e in processes.events(f.DRAW, role=role) if e.line == line]
        assert len(draws) == 2
        assert draws[0].outputs != draws[1].outputs


def test_batches_come_to_the_main_process(processes: Outcome) -> None:
    assert [e.inputs for e in processes.events(f.LOADER) if e.text != "made"] == [2, 2]
    assert len(processes.events(f.BATCH)) == 4


def test_a_fork_writes_its_own_trace_and_the_parent_goes_on(processes: Outcome) -> None:
    (role,) = [role for role in processes.traces.traces if role.startswith("main/fork")]
    (child,) = processes.operators("sin", role=role)
    assert child.line == processes.line("in fork")
    assert not processes.operators("sin")
    assert [e.line for e in processes.operators("exp")] == [processes.line("after the children")]


def test_threads_have_roles_and_their_own_operators(processes: Outcome) -> None:
    roles = {e.inputs: e.name for e in processes.events(f.THREAD)}
    of_threads = [roles[e.thread] for e in processes.operators("cos") if e.line == processes.line("in thread")]
    assert of_threads[0] == "main/named#1"
    assert len(of_threads) == 5
    assert all("/pool" in role for role in of_threads[1:])


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_graphs_count_as_one_operator(tmp_path: Path) -> None:
    outcome = run(
        """
        import torch

        @torch.compile(backend="inductor")  # compiled
        def f(x):
            return (x.sin() + 1).cos()

        with torch.no_grad(), torch.random.fork_rng():
            for value in (1.0, 1.0, 2.0):
                f(torch.full((8,), value))
        """,
        tmp_path,
    )
    assert not outcome.traces.failures
    assert not outcome.events(f.SEED), "states that torch gives back are no seeds"
    one, two, three = outcome.events(f.OPERATOR, name="compiled graph")
    assert (one.inputs, one.outputs) == (two.inputs, two.outputs)
    assert one.inputs != three.inputs and one.outputs != three.outputs
    assert {e.line for e in (one, two, three)} == {outcome.line("compiled")}
    assert not outcome.operators("sin")


def test_the_search_for_the_temporary_folder_is_not_recorded(tmp_path: Path) -> None:
    program = "import random, tempfile\nrandom.seed(0)\ntempfile.gettempdir()\ntempfile.mkdtemp()\n"
    outcome = run(program, tmp_path, environment={"TMPDIR": str(tmp_path)})
    found = [(event.kind, event.name, event.line) for event in outcome.events(f.ENTROPY, f.CREATE, f.DRAW)]
    assert found == [(f.ENTROPY, "tempfile", 4)], "the generator behind the names is not the program's"


def test_the_time_of_a_file_that_the_run_wrote_is_a_reading_of_the_clock(tmp_path: Path) -> None:
    program = """
        import os, pathlib, sys
        path = pathlib.Path("new")
        path.write_text("1")
        path.stat().st_mtime  # read
        os.path.getmtime(path)  # got
        os.path.getmtime(os.__file__)

        def size(path):
            return path.stat().st_size

        size(path)
    """
    outcome = run(program, tmp_path)
    read = [(event.name, event.line) for event in outcome.events(f.CLOCK)]
    assert read == [("os.stat", outcome.line("read")), ("os.path.getmtime", outcome.line("got"))]


# --- ends ------------------------------------------------------------------------------------------------


def test_os_exit_ends_the_trace(tmp_path: Path) -> None:
    outcome = run("import os, random\nrandom.random()\nos._exit(7)\n", tmp_path, code=7)
    assert outcome.traces.main is not None and outcome.traces.main.complete
    assert len(outcome.events(f.DRAW)) == 1


def test_a_killed_process_leaves_all_but_its_last_block(tmp_path: Path) -> None:
    outcome = run(
        """
        import os, random, signal
        random.seed(0)
        for number in range(1000):
            random.Random(number)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
        code=-signal.SIGKILL,
    )
    main = outcome.traces.main
    assert main is not None and not main.complete
    assert 1001 - 256 < main.count < 1001
    assert len({e.inputs for e in outcome.events(f.CREATE)}) == main.count - 1


LOTS = """
import random
for number in range(20000):
    random.Random(number)
print("done", random.Random(7).random())
"""


def test_a_full_disk_does_not_stop_the_program(tmp_path: Path) -> None:
    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    outcome = run(LOTS, tmp_path / "full", before_start=small_files)
    plain = run(LOTS, tmp_path / "plain", watched=False)
    assert outcome.stdout == plain.stdout
    assert outcome.stderr == ""
    assert outcome.traces.main is not None
    why = f"{os.strerror(27)}: files may have 100000 bytes here (RLIMIT_FSIZE, ulimit -f)"
    assert outcome.traces.main.failure == f"the trace could not be written: {why}"
    assert 0 < outcome.traces.main.count < 20000


def test_a_program_that_limits_the_size_of_its_files_is_recorded_whole(tmp_path: Path) -> None:
    """The limit is the program's: its own files keep to it, in a forked child as well."""
    limited = """
import os, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
def write():
    try:
        with open(f"file{os.getpid()}", "wb") as file:
            file.write(b"x" * 10_000)
    except OSError as error:
        print(error.strerror, flush=True)
write()
child = os.fork()
if not child:
    write()
    os._exit(0)
os.waitpid(child, 0)
"""
    outcome = run(limited + LOTS, tmp_path / "whole")
    plain = run(limited + LOTS, tmp_path / "plain", watched=False)
    assert outcome.stdout == plain.stdout and outcome.stdout.count(os.strerror(27).encode()) == 2
    assert outcome.stderr == ""
    assert outcome.traces.failures == []
    assert outcome.traces.main is not None and outcome.traces.main.complete
    assert outcome.traces.main.count > 20000
    size = outcome.traces.main.path.stat().st_size
    assert 4096 < size < 40 * outcome.traces.main.count + 100_000  # what was reserved is given back
    killed = run(limited + LOTS + "os.kill(os.getpid(), 9)", tmp_path / "killed", code=-9)
    assert killed.traces.failures == [] and killed.traces.main is not None
    assert killed.traces.main.count > 19_000 and not killed.traces.main.complete


def test_no_room_for_a_header(tmp_path: Path) -> None:
    def no_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    outcome = run(LOTS, tmp_path, before_start=no_files)
    assert outcome.stdout.startswith(b"done")
    assert outcome.traces.failures == ["main.trace has no header: the disk may be full"]


@pytest.mark.parametrize("when", ["first", "in between"])
def test_a_folder_deleted_under_the_recorder(tmp_path: Path, when: str) -> None:
    remove = "import shutil; shutil.rmtree('traces')"
    program = f"{remove}\n{LOTS}" if when == "first" else f"import random; random.seed(1)\n{remove}\n{LOTS}"
    outcome = run(program, tmp_path)
    assert outcome.stdout.startswith(b"done")
    assert outcome.stderr == ""
    assert not outcome.folder.exists()


def test_without_a_configuration_nothing_is_watched(tmp_path: Path) -> None:
    settings = tmp_path / "gone.json"
    from samerun.base.launch import bootstrap_folder

    environment = {"SAMERUN_WATCH": str(settings), "PYTHONPATH": str(bootstrap_folder())}
    outcome = run("import random; print(random.random.__module__)", tmp_path / "run", watched=False,
                  environment=environment)  # fmt: skip
    assert outcome.exit_code == 0
    assert not list(outcome.folder.iterdir())


def test_the_value_of_a_clock_is_in_the_event(tmp_path: Path) -> None:
    outcome = run("import time\nprint(repr(time.time()))\n", tmp_path)
    (event,) = outcome.events(f.CLOCK)
    assert struct.unpack("<d", event.outputs[:8])[0] == float(outcome.stdout)


COLLECTIVES = """
    import os
    import tempfile
    import torch
    import torch.distributed as dist

    store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    x = torch.ones(8)
    first = dist.all_reduce(x[:4], async_op=True)
    second = dist.all_reduce(x[4:], async_op=True)
    x[:4].exp()  # early
    first.wait()
    x[:4].sin()
    second.wait()
    x.cos()
    other = torch.empty(4)
    gathered = torch.empty(4)
    work = dist.all_gather_into_tensor(gathered, other.fill_(3.0), async_op=True)
    other.exp()
    work.wait()
    gathered.tan()
    names = [str(os.getpid())]
    dist.broadcast_object_list(names)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_reads_before_a_collective_was_waited_for_are_known(tmp_path: Path) -> None:
    outcome = run(COLLECTIVES, tmp_path)
    early = [event.line for event in outcome.events(f.FACT, name="read before wait")]
    assert early == [outcome.line("early")]
    undefined = {event.name: bool(event.flags & f.INEXACT) for event in outcome.operators()}
    assert undefined["aten.exp.default"] is False  # the last one: `other` is only read by its collective
    assert not undefined["aten.cos.default"] and not undefined["aten.tan.default"]
    assert [event.name for event in outcome.events(f.OPERATOR) if "broadcast" in event.name] == []


STARTED_RANKS = """
import os, subprocess, sys
rank = sys.argv[1] if len(sys.argv) > 1 else ""
if not rank:  # rank 1 computes first
    started = [subprocess.Popen([sys.executable, __file__, one]) for one in "01"]
    assert [process.wait() for process in started] == [0, 0]
else:
    import torch
    import torch.distributed as dist
    if rank == "1":
        torch.ones(1).exp()
        open("first", "w").close()
    while not os.path.exists("first"):
        pass
    if rank == "0":
        torch.ones(1).sin()
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=int(rank), world_size=2)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_that_are_started_at_once_are_known_by_their_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ranks = run(STARTED_RANKS, tmp_path / "traces")
    assert set(ranks.traces.traces) == {"main", "rank0", "rank1"}
    assert ranks.operators("sin", role="rank0") and ranks.operators("exp", role="rank1")


CHECKPOINTED = """
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict

model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
before = get_state_dict(model, optimizer)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
"""


@pytest.mark.exhaustive
def test_steps_that_only_make_an_optimizer_state_are_none(tmp_path: Path) -> None:
    """torch.distributed.checkpoint steps with zeros before it loads: a resumed training would have one step more."""
    assert [event.inputs for event in run(CHECKPOINTED, tmp_path).events(f.STEP)] == [1, 2]


RELEASES_LATE = """
import hashlib, os, threading, time
from pathlib import Path
import torch

def release():
    # As one of gloo's threads, which do not need the interpreter either while they are at work.
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_gloo_runloop")
    started.set()
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        hashlib.sha256(block).digest()
    os.write(1, b"released")

block = bytes(10_000_000)
started = threading.Event()
threading.Thread(target=release, daemon=True).start()
started.wait()
torch.ones(2).exp()
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="the states of threads are read from /proc")
def test_the_interpreter_ends_after_gloos_threads_have_released_their_tensors(tmp_path: Path) -> None:
    assert run(RELEASES_LATE, tmp_path / "alone", watched=False).stdout == b"", "the test would show nothing"
    assert run(RELEASES_LATE, tmp_path / "watched").stdout == b"released"
