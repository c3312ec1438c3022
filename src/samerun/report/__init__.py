"""Present plain records to people and machines."""
