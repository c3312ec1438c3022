"""A receipt: what one run was, and what it computed, as one file of JSON."""
