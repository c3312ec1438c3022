"""A command that runs the user's program: its options come first, everything behind the program is the program's."""

from __future__ import annotations

import signal
from typing import Any, NoReturn

import click

from samerun.base.target import Target, resolve_target, split_command_line_at_program
from samerun.base.text import echo_escaped

FORM, WORDS = "samerun.form", "samerun.words"


class ProgramCommand(click.Command):
    """`ctx.meta` gets what stands behind the options: a script, `-m` and a module, or `--` and a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name for p in self.get_params(ctx) if isinstance(p, click.Option) and not p.is_flag for name in p.opts
        }
        own, form, words = split_command_line_at_program(args, takes_value)
        ctx.meta[FORM], ctx.meta[WORDS] = form, words
        if form == "script" and words[0].endswith(".py") and "--quiet" not in own:  # `verify` has a receipt there
            _note_own_options_after_script(self, words)
        return super().parse_args(ctx, own)


def _note_own_options_after_script(command: click.Command, words: list[str]) -> None:
    """Say that an option after the script is the script's, unless the script's text has such an option."""
    own_options = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    misplaced = [word.partition("=")[0] for word in words[1:] if word.partition("=")[0] in own_options - {"--help"}]
    if not misplaced:
        return
    from samerun.base.source_edits import read_python_source  # only where such an option is there

    try:
        text = read_python_source(words[0]).text
    except (OSError, SyntaxError, ValueError):
        return
    for name in dict.fromkeys(misplaced):
        if name not in text and name[2:].replace("-", "_") not in text:
            echo_escaped(
                f"samerun: {name} comes after the script, so it is passed to {words[0]}. For samerun it goes before:"
                f" samerun {command.name} {name} ... {words[0]}",
                err=True,
            )


def raise_interrupt_on_term_or_hup() -> None:
    """SIGTERM, and SIGHUP unless it is ignored, end a command as Ctrl-C does: with its program, leaving nothing."""

    def interrupt(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        signal.signal(hangup, interrupt)


def resolve_target_of_context(ctx: click.Context) -> Target:
    """The program that was named. Raises SamerunError where there is none, or it cannot be started."""
    return resolve_target(ctx.meta[FORM], ctx.meta[WORDS])
