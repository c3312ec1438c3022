"""Every operator executed twice in one run: what differs then, and memory that changes when nobody should write."""
