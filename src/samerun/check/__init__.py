"""Run a command under variations, find the first difference, find the cause."""
