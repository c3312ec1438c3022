"""What the file system looks like: working directory, home directory, order of listings, permissions."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from samerun.check.plan import RunPlan, Variation
from samerun.check.variations.folder_copies import why_folder_is_too_large_to_copy


# The order in which the file system lists a directory.
def vary_or_pin_listing_order(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the order of directory listings.

    What can go wrong: files are split into training and test, or classes numbered, in listing order. The
    order is a property of the file system: it changes with the machine, not with the run.
    """
    return plan.with_watch(listing_order="reversed" if vary else "sorted")


LISTING_ORDER = Variation(
    "listing_order", "environment", "directory listings sorted -> reversed", vary_or_pin_listing_order, "listing-order"
)


# The path of the working directory.
def vary_or_leave_working_directory(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary where the program runs: in its folder, then in a copy of it elsewhere.

    What can go wrong: a path becomes a key, a name to sort by, or a seed.
    """
    return replace(plan, copied=vary)


WORKING_DIRECTORY = Variation(
    "working_directory", "environment", "as it is -> a copy of it elsewhere", vary_or_leave_working_directory,
    "environment-variable", lambda plan: why_folder_is_too_large_to_copy(Path.cwd()), may_fail=True,
)  # fmt: skip


# The path of the home directory.
def vary_or_leave_home(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the path of the home directory. The other one links to everything the real one holds.

    What can go wrong: a path below the home directory becomes a name to sort by, or a seed.
    """
    return replace(plan, other_home=vary)


HOME = Variation(
    "home", "environment", "HOME as it is -> another path to the same", vary_or_leave_home, "environment-variable",
    lambda plan: "" if os.path.isdir(os.path.expanduser("~")) else "there is no home directory", may_fail=True,
)  # fmt: skip


# The permissions of new files.
def vary_or_pin_umask(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the permissions that new files get.

    What can go wrong: files are chosen by what may be read or written.
    """
    return replace(plan, umask=0o077 if vary else 0o022)


UMASK = Variation("umask", "environment", "umask 022 -> 077", vary_or_pin_umask, "environment-variable")
