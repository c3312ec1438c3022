"""Rules about checkpoints: what a resumed run needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import is_constant, keyword_value
from samerun.lint.order_exemptions import draws_from_unseeded_global
from samerun.lint.random_draws import drawn_generator, is_for_display
from samerun.lint.rule import Hit, Rule
from samerun.lint.seeding import has_main_guard_or_top_level_block
from samerun.lint.source_index import SourceIndex
from samerun.lint.value_origins import find_origins, names_in, returned_values

RNG_WORDS = re.compile("rng|random|seed|generator|states?_all", re.IGNORECASE)


def _resumable_optimizer_checkpoints(index: SourceIndex) -> Iterator[tuple[ast.Call, ast.Dict]]:
    """What is saved with an optimizer's state in it, where the text can also take it up again."""
    loads = index.calls_by_last_name.get("load_state_dict", ())
    if (
        not _goes_on(index)
        or _never_resumes(index)
        or not index.calls_by_name.get("torch.load")
        or not any("opt" in ast.unparse(one.func).lower() for one in loads)
    ):
        return
    for call in index.calls_of("torch.save"):
        value = call.args[0] if call.args else None
        if isinstance(value, ast.Name):
            values = [index.assigned_value(one) for one in index.bindings_of(value)]
            value = next((one for one in values if one is not None), None) if len(values) == 1 else None
        if isinstance(value, ast.Dict) and None not in value.keys and _is_optimizer_state(value):
            yield call, value


RESUMING = re.compile(r"(?:^|[^a-z])resum(?!e_run|e_id)", re.IGNORECASE)
BEGINNING = re.compile("start|begin|epoch|iter|step|init|resum", re.IGNORECASE)


def _goes_on(index: SourceIndex) -> bool:
    """Whether the text goes on from what it loads, and does not only look at it: it says so, or counts from there."""
    words = (*index.name_loads, *(one.attr for one in index.nodes[ast.Attribute]))  # type: ignore[attr-defined]
    texts = (one.value for one in index.nodes[ast.Constant] if isinstance(one, ast.Constant))
    names = (*words, *(one for one in texts if isinstance(one, str)), *(one.name for one in index.functions))
    firsts = [one.args[0] for one in index.calls_by_name.get("range", ()) if len(one.args) > 1]
    counts = [one for one in firsts if not _is_always_constant(index, one)]
    return any(BEGINNING.search(ast.unparse(one)) for one in counts) or any(RESUMING.search(one) for one in names)


def _never_resumes(index: SourceIndex) -> bool:
    """Whether all that loads is switched off, fails where its results are taken, or looks into a folder that is new."""
    restores = index.calls_by_last_name.get("load_state_dict", ())
    restores = [one for one in restores if "opt" in ast.unparse(one.func).lower()]
    if restores and all(any(_is_never_true(index, test) for test in index.enclosing_tests(one)) for one in restores):
        return True
    where = {index.enclosing_def(one) for one in restores}
    loads = [one for one in index.calls_by_name.get("torch.load", ()) if index.enclosing_def(one) in where]
    return bool(loads) and all(_fails_at_its_calls(index, one) or _looks_into_new_folder(index, one) for one in loads)


def _is_never_true(index: SourceIndex, test: ast.expr) -> bool:
    """Whether a condition is an attribute of self that is False wherever it is given something."""
    values = list(index.values_assigned_to(test)) if isinstance(test, ast.Attribute) else []
    return bool(values) and all(is_constant(one, False) for one in values)


def _fails_at_its_calls(index: SourceIndex, load: ast.Call) -> bool:
    """Whether every call of the function around takes another number of results than it returns."""
    function = index.enclosing_def(load)
    if function is None:
        return False
    returned = [one.elts if isinstance(one, ast.Tuple) else [] for one in returned_values(index, function)]
    parents = [index.parents.get(one) for one in index.calls_of_function(function)]
    taken = [one.targets[0] if isinstance(one, ast.Assign) else None for one in parents]
    counts = {len(one) for one in returned}
    return bool(taken and counts) and all(
        isinstance(one, ast.Tuple) and counts.isdisjoint({0, len(one.elts)})
        and not any(isinstance(part, ast.Starred) for part in (*one.elts, *returned[0]))
        for one in taken
    )  # fmt: skip


def _looks_into_new_folder(index: SourceIndex, load: ast.Call) -> bool:
    """Whether the path has a number in it that is one more than the last one."""
    todo = [(name, 4) for argument in load.args[:1] for name in names_in(argument)]
    while todo:
        name, depth = todo.pop()
        for value in index.values_assigned_to(name):
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and is_constant(value.right, 1):
                return True
            todo += [(one, depth - 1) for one in names_in(value) if depth]
    return False


def _is_always_constant(index: SourceIndex, begin: ast.expr) -> bool:
    """Whether a name is given nothing but constants, so that a loop that counts from there begins anew."""
    if not isinstance(begin, ast.Name):
        return False
    values = [index.assigned_value(one) for one in index.bindings_of(begin)]
    return bool(values) and all(isinstance(one, ast.Constant) for one in values)


def _is_optimizer_state(saved: ast.Dict) -> bool:
    return any(
        isinstance(one, ast.Call) and last_identifier(one.func) == "state_dict"
        and isinstance(one.func, ast.Attribute) and "opt" in last_identifier(one.func.value).lower()
        for one in saved.values
    )  # fmt: skip


def _is_behind_training(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call stands behind the loop that trains, in the same function, and in no loop itself."""
    function = index.enclosing_def(call)
    callers = index.calls_of_function(function) if function is not None else []
    around = list(index.ancestors(call))
    if any(isinstance(one, (ast.For, ast.While)) for where in (call, *callers) for one in index.ancestors(where)):
        return False
    loops = (*index.nodes[ast.For], *index.nodes[ast.While])
    return any(
        isinstance(one, (ast.For, ast.While)) and one.lineno < call.lineno
        and index.parents[one] in around and index.enclosing_def(one) is function
        and any(isinstance(part, ast.Call) and last_identifier(part.func) == "backward" for part in ast.walk(one))
        for one in loops
    )  # fmt: skip


def _is_of_best(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call saves the best model so far."""
    function = index.enclosing_def(call)
    return (function is not None and "best" in function.name.lower()) or any(
        BEST.search(ast.unparse(test)) for test in index.enclosing_tests(call)
    )


def _is_saved_as_best(call: ast.Call) -> bool:
    return any("best" in ast.unparse(path).lower() for path in call.args[1:2])


def find_saves_without_generators(index: SourceIndex) -> Iterator[Hit]:
    if not index.project.is_seeded or _seeds_torch_but_draws_unseeded_in_loop(index):
        return  # no two runs draw the same, resumed or not
    if _derives_seed_from_epoch(index):
        return  # a resumed epoch draws the same
    elsewhere = any(index.calls_by_last_name.get(one) for one in ("get_rng_state", "get_rng_state_all", "getstate"))
    every = list(_resumable_optimizer_checkpoints(index))
    during = [one for one in every if not _is_behind_training(index, one[0])] or every
    gone_on_from = [one for one in during if not _is_of_best(index, one[0]) and not _is_saved_as_best(one[0])]
    for call, saved in gone_on_from or during:
        said = _text_of_checkpoint(index, call, saved)
        if not RNG_WORDS.search(said):
            if not elsewhere and _draws_while_training(index):
                yield Hit(
                    call, "an optimizer's state is saved, the random generators' are not: a resumed run draws others"
                )
        elif "get_rng_state" in said and (loader := _find_loader_with_own_generator(index)) is not None:
            yield Hit(
                call, f"the loader at line {loader.lineno} draws from its own generator, whose state is not saved"
            )


def _derives_seed_from_epoch(index: SourceIndex) -> bool:
    """Whether a seed that is set is made of an epoch's number; a sampler has other ways to be told of it."""
    calls = [one for last, calls in index.calls_by_last_name.items() if "seed" in last.lower() for one in calls]
    return any(
        re.search(r"(?:^|\W|_)epoch(?:\W|_?idx|_?id|$)", ast.unparse(argument))
        for call in calls for argument in (*call.args, *(keyword.value for keyword in call.keywords))
    )  # fmt: skip


def _seeds_torch_but_draws_unseeded_in_loop(index: SourceIndex) -> bool:
    """Whether a program seeds torch by hand, and its training loop draws from Python or NumPy, which it leaves out."""
    if not (index.is_notebook or has_main_guard_or_top_level_block(index)) or not index.calls_of("torch.manual_seed"):
        return False
    loops = {
        loop for step in index.calls_by_last_name.get("backward", ()) for loop in index.ancestors(step)
        if isinstance(loop, (ast.For, ast.While))
    }  # fmt: skip
    return any(
        draws_from_unseeded_global(index, call)
        and not is_for_display(index, call)
        and not loops.isdisjoint(index.ancestors(call))
        for call in index.calls
    )


def _find_loader_with_own_generator(index: SourceIndex) -> ast.Call | None:
    """A loader that shuffles by a generator which is not the global one, where nothing asks a generator's state."""
    if index.calls_by_last_name.get("get_state"):
        return None
    loaders = index.calls_by_name.get("torch.utils.data.DataLoader", ())
    shuffling = (one for one in loaders if is_constant(keyword_value(one, "shuffle"), True))
    own = {"torch.Generator", "torch.Generator.manual_seed"}
    for one in shuffling:
        generator = keyword_value(one, "generator")
        if generator is not None and any(
            index.call_names[origin] in own or last_identifier(origin.func) in ("Generator", "manual_seed")
            for origin in find_origins(index, generator)
        ):
            return one
    return None


def _text_of_checkpoint(index: SourceIndex, call: ast.Call, saved: ast.Dict) -> str:
    """The dictionary, and what is stored under more keys of the name that is saved."""
    name = last_identifier(call.args[0])
    stores = (
        index.statement_of(one) for one in index.nodes[ast.Subscript]
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) and last_identifier(one.value) == name
    )  # fmt: skip
    return " ".join([ast.unparse(saved), *(ast.unparse(one) for one in stores if name)])


def _draws_while_training(index: SourceIndex) -> bool:
    """Whether the text shows a draw that goes on after the start: dropout, shuffling, draws in a loop."""
    for call in index.calls:
        last = last_identifier(call.func)
        own = keyword_value(call, "generator") is not None
        if "dropout" in last.lower() or (is_constant(keyword_value(call, "shuffle"), True) and not own):
            return True
        looped = any(isinstance(one, (ast.For, ast.While)) for one in index.ancestors(call))
        if looped and (drawn_generator(index.call_names[call]) or last == "sample") and not own:
            return True
    return False


def find_checkpoints_without_scheduler(index: SourceIndex) -> Iterator[Hit]:
    made = [one for one, name in index.call_names.items() if name.startswith("torch.optim.lr_scheduler.")]
    if (
        not made
        or any(keyword_value(one, "last_epoch") is not None for one in made)
        or _saves_or_fast_forwards_scheduler(index)
    ):
        return
    for call, saved in _resumable_optimizer_checkpoints(index):
        if _is_of_best(index, call):
            continue  # its weights are taken up again
        if not re.search("sched|lr", _text_of_checkpoint(index, call, saved).lower()):
            yield Hit(call, "the learning rate's schedule is not saved: a resumed run begins it anew")


BEST = re.compile("best|min|max|improv", re.IGNORECASE)
SCHEDULE = re.compile("sched|lr|policy|anneal|warmup", re.IGNORECASE)


def _saves_or_fast_forwards_scheduler(index: SourceIndex) -> bool:
    """Whether the text saves a schedule by itself, or sets it to the epoch or step at which the program is."""
    for call in index.calls:
        last = last_identifier(call.func)
        receiver = last_identifier(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        placed = last == "step" and call.args and re.search("epoch|iter|step", ast.unparse(call.args[0]).lower())
        stepped = last == "step" and _catches_up(index, call)
        if SCHEDULE.search(receiver) and (placed or stepped or last == "state_dict"):
            return True
    return any(
        isinstance(one, ast.Attribute)
        and (one.attr == "last_epoch" or (isinstance(one.ctx, ast.Store) and _names_schedule(one.value)))
        for one in index.nodes[ast.Attribute]
    )


def _names_schedule(receiver: ast.expr) -> bool:
    return bool(SCHEDULE.search(last_identifier(receiver)))


def _catches_up(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call is made for every epoch that was done before: `for _ in range(start_epoch)`."""
    return any(
        isinstance(one, ast.For) and isinstance(one.iter, ast.Call) and last_identifier(one.iter.func) == "range"
        and len(one.iter.args) == 1 and re.search("start|begin|resum", ast.unparse(one.iter.args[0]).lower())
        for one in index.ancestors(call)
    )  # fmt: skip


CHECKPOINT_WITHOUT_GENERATORS = Rule(
    "SR151", "checkpoint-without-generators", "resume-rng",
    "Finds checkpoints with an optimizer's state and without those of the random generators, in a file that resumes.",
    "The resumed run draws other numbers than the one that was not interrupted: dropout, shuffling, augmentation.",
    "import torch\n\nblock = torch.nn.Dropout(0.1)\n\n\ndef save(model, optimizer):\n"
    "    torch.save({\"model\": model.state_dict(), \"optimizer\": optimizer.state_dict()}, \"a.pt\")\n\n\n"
    "def resume(model, optimizer):\n    saved = torch.load(\"a.pt\")\n"
    "    optimizer.load_state_dict(saved[\"optimizer\"])\n",
    "import torch\n\nblock = torch.nn.Dropout(0.1)\n\n\ndef save(model, optimizer):\n    rng = torch.get_rng_state()\n"
    "    torch.save({\"model\": model.state_dict(), \"optimizer\": optimizer.state_dict(), \"rng\": rng}, \"a.pt\")\n"
    "\n\n"
    "def resume(model, optimizer):\n    saved = torch.load(\"a.pt\")\n"
    "    optimizer.load_state_dict(saved[\"optimizer\"])\n"
    "    torch.set_rng_state(saved[\"rng\"])\n",
    "save and restore the generators' states too (samerun.checkpoint.save does)",
    "A training that draws nothing after its start, or a generator that is seeded from the epoch.",
    find_saves_without_generators, default=False, needs_seed=True,
)  # fmt: skip
CHECKPOINT_WITHOUT_SCHEDULER = Rule(
    "SR152", "checkpoint-without-scheduler", "resume-position",
    "Finds checkpoints with an optimizer's state and without that of the learning rate's schedule.",
    "The resumed run begins the schedule anew.",
    "import torch\n\n\ndef resume(model, optimizer):\n    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n"
    "    rng = torch.get_rng_state()\n"
    "    torch.save({\"model\": model.state_dict(), \"optimizer\": optimizer.state_dict(), \"rng\": rng}, \"a.pt\")\n"
    "    optimizer.load_state_dict(torch.load(\"a.pt\")[\"optimizer\"])\n    schedule.step()\n",
    "import torch\n\n\ndef resume(model, optimizer):\n    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n"
    "    state = {\"optimizer\": optimizer.state_dict(), \"schedule\": schedule.state_dict()}\n"
    "    torch.save({**state, \"rng\": torch.get_rng_state()}, \"a.pt\")\n"
    "    optimizer.load_state_dict(torch.load(\"a.pt\")[\"optimizer\"])\n    schedule.step()\n",
    "save and restore the schedule's state_dict() too",
    "A schedule that is set from the epoch's number when the program resumes.",
    find_checkpoints_without_scheduler, default=False,
)  # fmt: skip
