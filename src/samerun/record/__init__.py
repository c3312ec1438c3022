"""What a run did: the events of one process, written to a trace."""

from pathlib import Path


def bootstrap_folder() -> Path:
    """The folder whose `sitecustomize` starts the recorder; it goes first on PYTHONPATH."""
    return Path(__file__).resolve().parent / "bootstrap"
