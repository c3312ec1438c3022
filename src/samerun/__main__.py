"""`python -m samerun`."""

import os
import sys

try:
    here = os.getcwd()
except OSError:  # it was deleted
    here = ""
if sys.path and not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", here):
    # Python puts the working directory first: a folder that somebody sent may hold a module named like one of ours
    # or like one of those that we import.
    del sys.path[0]

from samerun.cli import main

main()
