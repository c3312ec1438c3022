"""Receipts: one JSON file that records how a run was made and what it computed."""
