"""The same command once more, and the same command interrupted and resumed."""

from __future__ import annotations

from dataclasses import replace

from samerun.check.plan import RunPlan, Variation


# Nothing at all: the same command once more.
def keep_plan_for_rerun(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary nothing. What differs now, differs by itself: entropy, time, threads, operators."""
    return plan


RERUN = Variation("rerun", "rerun", "the same command again", keep_plan_for_rerun, "")


# An interruption: the program is ended in the middle and taken up again from its checkpoint.
def give_each_run_a_checkpoint_folder(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary whether the program runs in one go.

    What can go wrong: the checkpoint lacks a random generator, the scheduler, or the place in the epoch, and
    the training that goes on from it is another one.

    Every run is given an empty folder of its own in `SAMERUN_CHECKPOINTS`; the interrupted run and the one that
    takes it up share theirs. Without further options the program is ended at the middle step, once by SIGTERM
    and once by SIGKILL, and the same command is started again: it must look for a checkpoint there itself.
    `--kill STEP[:SIGNAL]` names the step and the signal. `--interrupt SETTINGS` and `--resume SETTINGS` are
    variables and arguments for the first and the second start (`--interrupt "STOP_AT=3 CKPT={folder}/c.pt"
    --resume "RESUME={folder}/c.pt"`); `{folder}` is the shared folder. With them and without `--kill` the
    program ends by itself.

    Compared are the steps behind the interruption with the same steps of the whole run, counted from the end,
    and what is left in the end. Where they differ, further runs find out what was lost: a generator, the optimizer,
    the scheduler or the scaler is put back after the load, or the resumed run is given the data of the whole one.
    """
    return replace(plan, own_checkpoints=True)


RESUME = Variation(
    "resume",
    "shape",
    "uninterrupted -> interrupted and resumed",
    give_each_run_a_checkpoint_folder,
    "resume-position",
)
