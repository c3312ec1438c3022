"""`python -m samerun`."""

from samerun.cli import main

main()
