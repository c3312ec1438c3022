"""Processes that have imported torch already and are then forked: each fork becomes a run of the program."""
