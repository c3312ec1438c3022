"""What finishes or writes first decides: results taken in the order of completion, races of threads."""

from __future__ import annotations

import ast

from samerun.base.source_edits import Edit, SourceAtLine, last_identifier, node_span
from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, relative_event_distance
from samerun.check.evidence.trace_signs import is_inplace_operator_name
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events
from samerun.record.watching.collectives import IN_FLIGHT_READ, UNAWAITED_MESSAGE
from samerun.record.watching.interceptors.asyncio_tasks import ASYNCIO_SLEEP, ASYNCIO_TASK
from samerun.record.watching.interceptors.completion import ADDED_CALLBACK, POOL_CALLBACK
from samerun.record.watching.interceptors.future_callbacks import FUTURE_CALLBACK
from samerun.record.watching.interceptors.rank_messages import ANY_SOURCE, STORE

# What finishes first is used first.
PINNED_BY_IN_ORDER = (
    "as_completed", "imap_unordered", "concurrent.futures.wait", "asyncio.as_completed", "asyncio.wait",
    "selector.select", "select.select", "connection.wait", "Popen.poll", "Process.is_alive", "AsyncResult.ready",
    "Future.done",
)  # fmt: skip
"""What the pin `in-order` acts on."""
CALLBACKS = (ADDED_CALLBACK, POOL_CALLBACK, FUTURE_CALLBACK)
TURNS_OF_TASKS = (ASYNCIO_SLEEP, ASYNCIO_TASK)
"""Tell whether tasks came in another order. No pin acts on it, and what they waited for says why."""


def find_async_order_suspects(situation: Situation) -> list[Suspect]:
    if situation.variation != "rerun":
        return []
    found = []
    for clue in situation.select_clues(f.COMPLETION):
        if clue.b is not None and clue.a.line and clue.a.direct and clue.a.name not in TURNS_OF_TASKS:
            # Taking the same results in order leaves all else as it was, races of the tasks too: it is tried before
            # those, which go as well where threads run one after the other.
            if clue.a.name == ANY_SOURCE:  # it names no rank, and so nothing else can be why another came first
                why = f"recv at line {clue.a.line} took a message from another rank first"
                found.append(Suspect("async-order", clue.a.file, clue.a.line, (why,), 0.5))
                continue
            if clue.a.name.startswith(STORE):
                method = clue.a.name.removeprefix(STORE)
                why = (
                    f"{method} of a store at line {clue.a.line} gave something else: it depends on which rank is first"
                )
                found.append(Suspect("async-order", clue.a.file, clue.a.line, (why,), 0.5))
                continue
            in_turn = clue.a.name in PINNED_BY_IN_ORDER
            rank = 1.0 + relative_event_distance(situation, clue) * (0.3 if in_turn else 1.0)
            if clue.a.name in CALLBACKS:  # a pool takes from queues too, at the line that makes it
                rank = 0.9
            held: tuple[str, ...] = (pins.IN_ORDER if in_turn else pins.SERIAL,)
            if clue.a.name == FUTURE_CALLBACK:  # completed by a collective, or by a thread of the program
                held = (pins.WAITED, pins.SERIAL)
            found.append(
                Suspect("async-order", clue.a.file, clue.a.line,
                        (f"{clue.a.name} at line {clue.a.line} gave another item first",),
                        rank, held)
            )  # fmt: skip
    early = [
        e for e in situation.host_events_until_difference
        if e.kind == f.FACT and e.name in (IN_FLIGHT_READ, UNAWAITED_MESSAGE) and e.line
    ]  # fmt: skip
    for read in early[-1:]:
        why = f"{read.text} at line {read.line} reads memory to which a collective, not waited for, may still write"
        if read.name == UNAWAITED_MESSAGE:
            why = f"{read.text} reads what is received at line {read.line} before that was waited for"
        found.append(Suspect("async-order", read.file, read.line, (why,), 0.4, (pins.WAITED,)))
    batches = situation.select_clues(f.BATCH)
    if batches and batches[0].b is not None:
        role = batches[0].role
        both = [
            sorted(e.outputs for e in select_events(runs.traces[role], (f.BATCH,)))
            for runs in (situation.a.traces, situation.b.traces)
        ]
        made = [e for e in situation.host_events_until_difference if e.kind == f.LOADER and e.line and e.text == "made"]
        loaders = [e for e in made if not e.inputs] or made
        if both[0] == both[1] and loaders:
            found.append(
                Suspect("async-order", loaders[-1].file, loaders[-1].line,
                        ("the DataLoader handed over the same batches in another order",), 0.9, (pins.IN_ORDER,))
            )  # fmt: skip
    return sorted(found, key=lambda suspect: suspect.rank)[:2]


def take_results_in_order(source: SourceAtLine) -> list[Edit]:
    """`in_order=True`, `imap` for `imap_unordered`, and futures as they were submitted, not `as_completed`."""
    edits = []
    for call in source.calls_spanning_line("DataLoader", "StatefulDataLoader"):
        given = [k.value for k in call.keywords if k.arg == "in_order"]
        edits += [Edit(*node_span(value), "True") for value in given]
    for call in source.calls_spanning_line("imap_unordered"):
        (line, column), name = node_span(call.func)[1], "imap_unordered"
        edits.append(Edit((line, column - len(name)), (line, column), "imap"))
    for call in source.calls_spanning_line("as_completed"):
        by_asyncio = isinstance(call.func, ast.Attribute) and last_identifier(call.func.value) == "asyncio"
        if by_asyncio or len(call.args) != 1 or call.keywords:
            continue
        if isinstance(call.args[0], ast.GeneratorExp):  # gone through first, as each of its items starts something
            edits.append(Edit(*node_span(call.func), "list"))
        elif _is_always_list_or_dict_display(source, call.args[0]):
            edits.append(Edit(*node_span(call), ast.get_source_segment(source.text, call.args[0]) or ""))
    return edits


def _is_always_list_or_dict_display(source: SourceAtLine, node: ast.expr) -> bool:
    """Whether it is a list or a dict, or a name that the file gives nothing else: a set of futures has no order."""
    values = source.find_assigned_values(node) if isinstance(node, (ast.Name, ast.Attribute)) else [node]
    return bool(values) and all(isinstance(one, (ast.List, ast.ListComp, ast.Dict, ast.DictComp)) for one in values)


ASYNC_ORDER = Cause(
    "async-order",
    find_async_order_suspects,
    "take results in the order in which they were asked for (pool.map, in_order=True, recv(src=...), a sequence"
    " number), and wait() for a collective before its tensors are used",
    "Queues, as_completed, wait, imap_unordered and DataLoader(in_order=False) hand over what finishes first; select,"
    " and poll() or done() in a loop, find what is ready first; asyncio"
    " goes on with the task whose thread or socket is ready first; recv without a source takes the message of the rank"
    " that is first, and a store (TCPStore.add) counts ranks as they come. A tensor that is read before the collective"
    " with async_op=True was waited for holds what had"
    " arrived by then. All that depends on the machine's load.",
    take_results_in_order,
)


# Threads of the program write to the same tensor as they come.
GENERATOR_OWNERS = {"torch": "torch's", "numpy": "NumPy's", "python": "Python's"}


def find_thread_race_suspects(situation: Situation) -> list[Suspect]:
    if situation.difference.a is None or situation.variation != "rerun":
        return []
    return [*find_shared_tensor_suspects(situation), *find_shared_generator_suspects(situation)]


def find_shared_generator_suspects(situation: Situation) -> list[Suspect]:
    """Threads draw from one generator, which is in the same state in both runs only by luck."""
    difference = situation.difference
    trace = situation.a.traces.traces.get(difference.role)
    if trace is None or difference.a is None:
        return []
    drawn_before = [clue.a.name for clue in situation.select_clues(f.DRAW) if clue.role == difference.role]
    names = [difference.a.name, *drawn_before] if difference.a.kind == f.DRAW else drawn_before
    draws = [e for e in select_events(trace, (f.DRAW,)) if e.name in GENERATOR_OWNERS and e.line]
    if difference.what == "outputs":  # another thread may have drawn between the look at the state and the operator
        by_itself = [e for e in draws if e.thread == difference.a.thread and e.index < difference.a.index][-1:]
        names += [e.name for e in by_itself if (e.file, e.line) == (difference.a.file, difference.a.line)]
    found = []
    for name in dict.fromkeys(names):
        mine = [e for e in draws if e.name == name]
        beside = [e for e in mine if e.thread != 0]
        other = next((e for e in mine if beside and e.thread != beside[0].thread), None)
        if other is None:
            continue
        why = (
            f"line {beside[0].line} draws from {GENERATOR_OWNERS[name]} generator in a thread,"
            f" and line {other.line} in another",
            "the order in which threads come is not fixed",
        )
        # With streams of their own nothing changes but these draws, so that this comes before all that runs threads one
        # after the other: that hides races of any kind, and a thread that waits for another cannot run before it. A
        # model that one thread made and another trains looks like a tensor that both write to.
        for rank, pin in ((0.7, pins.THREAD_STREAMS), (1.45, pins.SERIAL)):
            found.append(Suspect("thread-race", beside[0].file, beside[0].line, why, rank, (pin,)))
    return found


def find_shared_tensor_suspects(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    event = difference.a
    assert event is not None
    trace = situation.a.traces.traces.get(difference.role)
    if trace is None or difference.what not in ("inputs", "outputs", "operator", "leaf", "final", "mark"):
        return []
    # The operators, in any thread, whose input another thread had written.
    raced = [
        e for e in select_events(trace, (f.OPERATOR,), event.index + 1)
        if e.flags & f.FOREIGN_WRITE and is_inplace_operator_name(e.name)
    ][-1:]  # fmt: skip
    if not raced:
        later = [
            e
            for e in select_events(trace, (f.OPERATOR,))
            if e.flags & f.FOREIGN_WRITE and is_inplace_operator_name(e.name)
        ]
        raced = later[:1]
    if not raced or not (
        event.flags & f.FOREIGN_WRITE or event.thread != 0 or difference.what in ("leaf", "final", "mark")
    ):
        return []
    write = raced[0]
    short = write.name.removeprefix("aten.").split(".")[0]
    return [
        Suspect("thread-race", write.file, write.line,
                (f"{short} at line {write.line} writes a tensor that another thread has written",
                 "the order in which threads come is not fixed"), 0.8, (pins.SERIAL,))
    ]  # fmt: skip


THREAD_RACE = Cause(
    "thread-race",
    find_thread_race_suspects,
    "let one thread write, or add up the threads' results in a fixed order; give each thread a generator of its own",
    "Threads that update a shared tensor without an agreed order (Hogwild) give another result whenever the"
    " operating system schedules them differently. So do threads that draw from one generator, such as one that"
    " prepares noisy batches beside a training with dropout: which of them gets which number is chance.",
)
