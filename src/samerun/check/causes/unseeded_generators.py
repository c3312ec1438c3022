"""Random generators that were never seeded: those of Python, NumPy, torch and other libraries."""

from __future__ import annotations

from samerun.base.seed_edits import SeedEditor
from samerun.base.source_edits import Edit, SourceAtLine, find_imported_name_of_module, make_manual_seed_edits
from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, relative_event_distance
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import Event


def make_unseeded_suspect(
    situation: Situation, kind: str, role: str, drawn: Event, evidence: tuple[str, ...], rank: float, pin: str
) -> Suspect:
    """The suspect where the process `role` first draws, or where another rank seeds the generator and `role` does not.

    evidence: what was seen, and as the last that no seed came before it.
    """
    seeding = situation.find_seeding_by_other_rank(drawn.name, role)
    if seeding is None:
        return Suspect(kind, drawn.file, drawn.line, evidence, rank, (pin,))
    other, seed = seeding
    seen = (*evidence[:-1], f"{other} seeds it at line {seed.line}, {role} does not: this line must run on every rank")
    return Suspect(kind, seed.file, seed.line, seen, rank, (pin,))


# Python's `random`, never seeded.
def find_unseeded_python_suspects(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.select_clues(f.DRAW, f.SEED):
        if clue.a.name != "python" or not clue.a.direct:
            continue
        if clue.kind == f.SEED and not clue.a.is_seeded_by_system:
            continue
        if clue.kind == f.DRAW and situation.has_explicit_seed_before("python", clue.role, clue.a.index):
            continue
        why = (
            f"random.{clue.a.text}() at line {clue.a.line} drew from a generator in another state"
            if clue.kind == f.DRAW
            else f"random.seed() at line {clue.a.line} was called without a seed"
        )
        found.append(
            make_unseeded_suspect(situation, "unseeded-python", clue.role, clue.a,
                                  (why, "no random.seed(...) came before it"),
                                  2 + relative_event_distance(situation, clue), pins.PYTHON)
        )  # fmt: skip
        break
    for clue in situation.select_clues(f.CREATE):
        if clue.a.name == "python.Random" and clue.a.is_seeded_by_system and clue.a.direct:
            found.append(
                Suspect("unseeded-python", clue.a.file, clue.a.line,
                        (f"random.Random() at line {clue.a.line} was made without a seed",),
                        3 + relative_event_distance(situation, clue), (pins.PYTHON_GENERATOR,))
            )  # fmt: skip
    return found


def make_python_seeding_edits(source: SourceAtLine) -> list[Edit]:
    """Pass 0 to a generator or a call of `seed` without one; else seed the module behind the imports."""
    empty = [call for call in source.calls_spanning_line("Random", "seed") if not call.args and not call.keywords]
    if empty:
        editor = SeedEditor(source.tree)
        return [edit for call in empty for edit in editor.make_edits_seeding_unseeded_call(call)]
    name = find_imported_name_of_module(source.tree, "random")
    return [source.make_insertion_after_imports(f"{name}.seed(0)")] if name else []


UNSEEDED_PYTHON = Cause(
    "unseeded-python",
    find_unseeded_python_suspects,
    "call random.seed(SEED) before the first draw (samerun.seed_everything(SEED) seeds every source)",
    "Python's random module starts from the operating system's entropy. A program that seeds torch and NumPy"
    " but not `random` shuffles, splits or augments differently in every run.",
    make_python_seeding_edits,
)


# NumPy's global generator, never seeded.
GET_GLOBAL_GENERATOR = "check_random_state"
"""The function through which libraries take the global generator itself."""


def find_unseeded_numpy_global_suspects(situation: Situation) -> list[Suspect]:
    for clue in situation.select_clues(f.DRAW, f.SEED):
        if clue.a.name != "numpy" or not clue.a.line:
            continue
        if clue.kind == f.SEED and not clue.a.is_seeded_by_system:
            continue
        if clue.kind == f.DRAW and situation.has_explicit_seed_before("numpy", clue.role, clue.a.index):
            continue
        why = (
            f"numpy.random.{clue.a.text}() at line {clue.a.line} drew from a generator in another state"
            if clue.kind == f.DRAW and clue.a.text != GET_GLOBAL_GENERATOR
            else f"a library called at line {clue.a.line} draws from NumPy's generator, which is in another state"
            if clue.kind == f.DRAW
            else f"numpy.random.seed() at line {clue.a.line} was called without a seed"
        )
        return [
            make_unseeded_suspect(
                situation, "unseeded-numpy-global", clue.role, clue.a,
                (why, "no numpy.random.seed(...) came before it"),
                2 + relative_event_distance(situation, clue) + (0 if clue.a.direct else 2), pins.NUMPY_GLOBAL)
        ]  # fmt: skip
    return []


def make_numpy_global_seeding_edits(source: SourceAtLine) -> list[Edit]:
    """Pass 0 to a call of `seed` without one; else seed NumPy behind the imports."""
    empty = [call for call in source.calls_spanning_line("seed") if not call.args and not call.keywords]
    if empty:
        editor = SeedEditor(source.tree)
        return [edit for call in empty for edit in editor.make_edits_seeding_unseeded_call(call)]
    name = find_imported_name_of_module(source.tree, "numpy")
    return [source.make_insertion_after_imports(f"{name}.random.seed(0)")] if name else []


UNSEEDED_NUMPY_GLOBAL = Cause(
    "unseeded-numpy-global",
    find_unseeded_numpy_global_suspects,
    "call numpy.random.seed(SEED) before the first draw (samerun.seed_everything(SEED) seeds every source)",
    "NumPy's global generator (`numpy.random.rand` and its like) starts from the operating system's entropy."
    " Seeding torch does not seed it.",
    make_numpy_global_seeding_edits,
)


# A NumPy `Generator` or `RandomState` of the program's own, made without a seed.
def find_unseeded_numpy_generator_suspects(situation: Situation) -> list[Suspect]:
    found = []
    clues = situation.select_clues(f.CREATE)
    owned = {(c.role, c.a.index - 1) for c in clues if c.a.text == "owner"}
    for clue in clues:
        if clue.a.text == "owner":
            continue
        later = 1 if (clue.role, clue.a.index) in owned else 0  # its owner's caller is the likelier place
        if clue.a.name == "numpy.Generator" and clue.a.is_seeded_by_system and clue.a.direct:
            found.append(
                Suspect("unseeded-numpy-generator", clue.a.file, clue.a.line,
                        (f"a NumPy generator was made without a seed at line {clue.a.line}",
                         "numpy.random.seed() does not reach generators of this kind"),
                        1.5 + relative_event_distance(situation, clue) + later, (pins.NUMPY_GENERATOR,))
            )  # fmt: skip
    return found


NUMPY_CONSTRUCTORS = ("default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def pass_zero_to_numpy_generator(source: SourceAtLine) -> list[Edit]:
    """Pass 0 where the generator is made."""
    empty = [call for call in source.calls_spanning_line(*NUMPY_CONSTRUCTORS) if not call.args and not call.keywords]
    editor = SeedEditor(source.tree)
    return [edit for call in empty for edit in editor.make_edits_seeding_unseeded_call(call)]


UNSEEDED_NUMPY_GENERATOR = Cause(
    "unseeded-numpy-generator",
    find_unseeded_numpy_generator_suspects,
    "pass a seed where the generator is made: numpy.random.default_rng(SEED)",
    "`numpy.random.default_rng()`, `RandomState()` and bit generators without a seed take one from the"
    " operating system, and `numpy.random.seed` has no effect on them. Classes that own a generator"
    " (augmentations, environments) need a seed argument.",
    pass_zero_to_numpy_generator,
)


# Torch's global generator, never seeded.
def find_unseeded_torch_suspects(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if situation.difference.what != "draw" or event is None or event.name == "torch.Generator":
        return []
    b = situation.difference.b
    if b is None or event.inputs == b.inputs:
        return []
    if any(e.kind == f.SEED and e.name == "torch" for e in situation.host_events_until_difference):
        return []
    line = f"{event.text.split('.')[1] if '.' in event.text else event.text} at line {event.line}"
    return [
        make_unseeded_suspect(
            situation, "unseeded-torch", situation.difference.role, event,
            (f"torch's generator started from another seed in each run ({line} drew first)",
             "no torch.manual_seed(...) came before it"), 1.0, pins.TORCH)
    ]  # fmt: skip


def make_torch_seeding_edits(source: SourceAtLine) -> list[Edit]:
    """Seed torch behind the imports."""
    name = find_imported_name_of_module(source.tree, "torch")
    return [source.make_insertion_after_imports(f"{name}.manual_seed(0)")] if name else []


UNSEEDED_TORCH = Cause(
    "unseeded-torch",
    find_unseeded_torch_suspects,
    "call torch.manual_seed(SEED) before this line (samerun.seed_everything(SEED) seeds every source)",
    "Torch's global generator takes its first seed from the operating system. Everything drawn before"
    " torch.manual_seed differs from run to run: weights, dropout, shuffling.",
    make_torch_seeding_edits,
)


# A `torch.Generator` of the program's own that took its seed from the system.
def find_user_torch_generator_os_seed_suspects(situation: Situation) -> list[Suspect]:
    return [
        Suspect("unseeded-torch-generator", clue.a.file, clue.a.line,
                (f"Generator.seed() at line {clue.a.line} took a seed from the operating system",),
                1.2 + relative_event_distance(situation, clue), (pins.TORCH_GENERATOR,))
        for clue in situation.select_clues(f.SEED) if clue.a.name == "torch.Generator" and clue.a.is_seeded_by_system
    ]  # fmt: skip


def replace_seed_with_manual_seed(source: SourceAtLine) -> list[Edit]:
    """`generator.seed()` becomes `generator.manual_seed(0)`."""
    editor = SeedEditor(source.tree)
    once = [call for call in source.calls_spanning_line("seed") if not editor.is_in_loop_or_per_sample_function(call)]
    return [edit for call in once for edit in make_manual_seed_edits(call)]


UNSEEDED_TORCH_GENERATOR = Cause(
    "unseeded-torch-generator",
    find_user_torch_generator_os_seed_suspects,
    "use generator.manual_seed(SEED) instead of generator.seed()",
    "`torch.Generator().seed()` draws a seed from the operating system. (A generator that is never seeded"
    " always starts from the same number, which torch.manual_seed does not change.)",
    replace_seed_with_manual_seed,
)


# A generator that belongs to an installed library, made without a seed.
def find_suspects_of_unseeded_generators_in_libraries(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.select_clues(f.CREATE):
        if clue.a.is_seeded_by_system and clue.a.text == "owner":
            here = (c.source_location for c in situation.clues if (c.role, c.a.index) == (clue.role, clue.a.index - 1))
            file, line = next(here, clue.source_location)
            found.append(
                Suspect("external-library-rng", clue.a.file, clue.a.line,
                        (f"the object used at line {clue.a.line} makes a generator of its own without a seed",
                         "it takes a seed, and was not given one"),
                        1.2 + relative_event_distance(situation, clue), (f"{pins.NUMPY_GENERATOR}@{file}:{line}",))
            )  # fmt: skip
        elif clue.a.is_seeded_by_system and not clue.a.direct and clue.a.line:
            pin = pins.PYTHON_GENERATOR if clue.a.name.startswith("python") else pins.NUMPY_GENERATOR
            found.append(
                Suspect("external-library-rng", clue.a.file, clue.a.line,
                        (f"a library called at line {clue.a.line} made a {clue.a.name} without a seed",),
                        6 + relative_event_distance(situation, clue), (pin,))
            )  # fmt: skip
    return found


EXTERNAL_LIBRARY_RNG = Cause(
    "external-library-rng",
    find_suspects_of_unseeded_generators_in_libraries,
    "give the library its own seed at this call; global seeds do not reach its generator",
    "Libraries that keep a generator of their own (augmentation libraries, environments, samplers) are not"
    " reached by random.seed, numpy.random.seed or torch.manual_seed.",
)
