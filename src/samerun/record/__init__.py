"""What a run did: the events of one process, written to a trace."""
