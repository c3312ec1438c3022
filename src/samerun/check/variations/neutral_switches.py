"""Switches that are meant to change nothing: for each the two sides that `samerun check --neutral` compares."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from samerun.base.errors import SamerunError
from samerun.base.text import did_you_mean_prefix_or_empty
from samerun.check.plan import RunPlan, StartSettings
from samerun.check.variations.processes import find_torchrun_rank_count_option
from samerun.record import pins
from samerun.record.config import NumbersRequest

Side = Callable[[RunPlan], RunPlan]
SideLabel = Literal["a", "b"]
LABELS: tuple[SideLabel, ...] = ("a", "b")
AS_IT_IS = "as it is"


def keep_plan(plan: RunPlan) -> RunPlan:
    return plan


@dataclass(frozen=True)
class NeutralSwitch:
    """A switch with its two sides; `detail` says what they are.

    unavailable: the reason why it cannot be tried with this plan, or "". needs_use: what the program must have used for
    the switch to act on it (a key of the use counts in a run's numbers), else it is skipped; `lacking` says what it
    lacks then. coarser: one side computes in a coarser format on purpose. tries_portable: where the sides differ by
    rounding, they are run inside `portable()` too, which promises the same bits on both.
    """

    name: str
    detail: str
    a: Side
    b: Side
    unavailable: Callable[[RunPlan], str] = lambda plan: ""
    needs_use: str = ""
    lacking: str = ""
    coarser: bool = False
    tries_portable: bool = False

    def side(self, label: SideLabel) -> Side:
        return self.a if label == "a" else self.b


def make_side(name: str, setting: str) -> Side:
    """The side on which a switch inside the process has a setting."""

    def apply(plan: RunPlan) -> RunPlan:
        asked = plan.watch.numbers or NumbersRequest()
        return plan.with_watch(numbers=replace(asked, switches=(*asked.switches, (name, setting))))

    return apply


def inside_portable(plan: RunPlan) -> RunPlan:
    """The program inside `samerun.portable()`, as `numerics/dispatch/portable.py` reads it from the environment."""
    return plan.with_environment(SAMERUN_PORTABLE="1")


# --- what torch can do in another way ------------------------------------------------------------------------
def without_compilation(plan: RunPlan) -> RunPlan:
    return plan.with_added_pins(pins.EAGER).with_environment(TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_DISABLE="1")


COMPILE = NeutralSwitch(
    "compile", "compiled regions in eager mode -> compiled", without_compilation, make_side("compile", AS_IT_IS),
    needs_use="compile", lacking="the program compiles nothing",
)  # fmt: skip
RECOMPUTE = NeutralSwitch(
    "recompute", "activations kept -> recomputed by torch.utils.checkpoint", make_side("recompute", "plain"),
    keep_plan, needs_use="recompute", lacking="the program does not use torch.utils.checkpoint",
)  # fmt: skip


def make_attention_switch(backend: str) -> NeutralSwitch:
    return NeutralSwitch(
        f"attention={backend}", f"scaled_dot_product_attention by math -> by {backend}",
        make_side("attention", "math"), make_side("attention", backend),
        needs_use="attention",
        lacking="the program does not use scaled_dot_product_attention, or torch has no such backend for it here",
    )  # fmt: skip


def make_optimizer_switch(implementation: str) -> NeutralSwitch:
    return NeutralSwitch(
        f"optimizer-implementation={implementation}", f"the optimizer's for-loop -> {implementation}",
        make_side("optimizer-implementation", "for-loop"), make_side("optimizer-implementation", implementation),
        needs_use=f"optimizer {implementation}", lacking=f"no optimizer of the program has {implementation}=True",
    )  # fmt: skip


MEMORY_FORMAT = NeutralSwitch(
    "memory-format", "images and weights as they are -> in the other memory format", keep_plan,
    make_side("memory-format", "other"), needs_use="memory-format",
    lacking="no model of the program has weights of four dimensions",
)  # fmt: skip
INFERENCE_MODE = NeutralSwitch(
    "inference-mode", "evaluations under no_grad -> under inference_mode, or the reverse", keep_plan,
    make_side("inference-mode", "other"), needs_use="evaluation",
    lacking="the program calls no model without gradients",
)  # fmt: skip
AUTOCAST = NeutralSwitch(
    "autocast", "autocast off -> as the program has it", make_side("autocast", "off"), keep_plan,
    needs_use="autocast", lacking="the program does not use torch.autocast", coarser=True,
)  # fmt: skip
PRECISION = NeutralSwitch(
    "precision", "the program's precision -> float64", keep_plan,
    lambda plan: plan.with_watch(numbers=replace(plan.watch.numbers or NumbersRequest(), float64=True)), coarser=True,
)  # fmt: skip


# --- how many ranks --------------------------------------------------------------------------------------------
def with_one_rank(plan: RunPlan) -> RunPlan:
    found = find_torchrun_rank_count_option(plan.command)
    if found is None:
        return plan
    at = found.word_index
    word = plan.command[at]
    one = f"{word.split('=')[0]}=1" if "=" in word else "1"
    return replace(plan, command=(*plan.command[:at], one, *plan.command[at + 1 :]))


def why_world_size_unavailable(plan: RunPlan) -> str:
    found = find_torchrun_rank_count_option(plan.command)
    if found is None:
        return "the program is not started by torchrun with --nproc-per-node N"
    return "it is started with one rank" if found.rank_count < 2 else ""


WORLD_SIZE = NeutralSwitch("world-size", "one rank -> ranks as they are", with_one_rank, keep_plan,
                           why_world_size_unavailable)  # fmt: skip


# --- another interpreter -----------------------------------------------------------------------------------------
def make_python_switch(path: str) -> NeutralSwitch:
    """The same script under another Python. Raises SamerunError if it is no program."""
    found = shutil.which(path)
    if found is None:
        raise SamerunError(
            f"--neutral python={path}: {path} is not an executable.", hint="Name an interpreter: env/bin/python"
        )
    interpreter = os.path.abspath(found)  # not resolved: a link in an environment is what makes it that environment

    def unavailable(plan: RunPlan) -> str:
        own = os.path.basename(plan.command[0]).startswith("python")
        return "" if own else "the command does not start with Python itself"

    return NeutralSwitch(f"python={path}", f"this Python -> {path}", keep_plan,
                         lambda plan: replace(plan, command=(interpreter, *plan.command[1:])), unavailable,
                         tries_portable=True)  # fmt: skip


# --- the user's own ------------------------------------------------------------------------------------------------
COARSE_FORMAT = re.compile(
    r"(?<![a-z])(bf16|bfloat16|fp16|float16|half|fp8|amp|autocast|mixed[-_]precision)(?![a-z])", re.IGNORECASE
)
"""A word of the user's own settings that asks for a coarser format."""


def ask_for_other_formats(a: str, b: str) -> bool:
    """Whether one of two settings asks for a coarser format, and the other not in the same words."""
    coarse_words = [[word for word in side.split() if COARSE_FORMAT.search(word)] for side in (a, b)]
    return coarse_words[0] != coarse_words[1]


def make_own_switch(a: StartSettings, b: StartSettings) -> NeutralSwitch:
    """Two settings of the user's own: variables and arguments for either side."""

    def with_settings(settings: StartSettings) -> Side:
        return lambda plan: replace(
            plan.with_environment(**dict(settings.variables)), command=(*plan.command, *settings.arguments)
        )

    return NeutralSwitch(
        "own", f"{str(a) or AS_IT_IS} -> {str(b) or AS_IT_IS}", with_settings(a), with_settings(b),
        coarser=ask_for_other_formats(str(a), str(b)),
    )  # fmt: skip


def parse_neutral_env_option(text: str) -> list[NeutralSwitch]:
    """The switches that `--neutral-env NAME=A,B[,C]` names: A against each other value. Raises SamerunError."""
    name, equals, rest = text.partition("=")
    values = rest.split(",")
    if not equals or not name or len(values) < 2:
        raise SamerunError(
            f"--neutral-env {text}: a name and at least two values are needed.", hint="Write --neutral-env NAME=A,B"
        )

    def with_value(value: str) -> Side:
        return lambda plan: plan.with_environment(**{name: value})

    return [
        NeutralSwitch(
            f"env:{name}={value}", f"{name} {values[0]} -> {value}", with_value(values[0]), with_value(value),
            coarser=ask_for_other_formats(f"{name}={values[0]}", f"{name}={value}"),
        )
        for value in values[1:]
    ]  # fmt: skip


# --- by name ---------------------------------------------------------------------------------------------------
SWITCHES: dict[str, tuple[NeutralSwitch, ...]] = {
    "compile": (COMPILE,),
    "recompute": (RECOMPUTE,),
    "attention": tuple(make_attention_switch(backend) for backend in ("flash", "efficient", "cudnn")),
    "optimizer-implementation": (make_optimizer_switch("foreach"), make_optimizer_switch("fused")),
    "memory-format": (MEMORY_FORMAT,),
    "inference-mode": (INFERENCE_MODE,),
    "autocast": (AUTOCAST,),
    "precision": (PRECISION,),
    "world-size": (WORLD_SIZE,),
}


def parse_neutral_option(text: str) -> list[NeutralSwitch]:
    """The switches that `--neutral NAME[,NAME...]` names, each once. Raises SamerunError for a name that is none."""
    found: dict[str, NeutralSwitch] = {}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word.startswith("python="):
            chosen: tuple[NeutralSwitch, ...] = (make_python_switch(word.removeprefix("python=")),)
        elif word == "all":
            chosen = tuple(switch for family in SWITCHES.values() for switch in family)
        elif word in SWITCHES:
            chosen = SWITCHES[word]
        elif word == "accumulation":
            raise SamerunError(
                "--neutral accumulation: only the program knows how it accumulates gradients.",
                hint='Name both settings: --neutral "--batch 64" --against "--batch 16 --accumulate 4".',
            )
        else:
            known = [*SWITCHES, "python=PATH", "all"]
            raise SamerunError(
                f"--neutral {text}: there is no switch {word!r}.",
                hint=f"{did_you_mean_prefix_or_empty(word, known)}There are: {', '.join(known)}. "
                'For settings of your own: --neutral "ARGS A" --against "ARGS B".',
            )
        found.update({switch.name: switch for switch in chosen})
    if not found:
        raise SamerunError("--neutral: no switch is named.", hint=f"There are: {', '.join(SWITCHES)}, python=PATH.")
    return list(found.values())
