"""Other people's loops. An adapter owns no logic: it says when a receipt begins and ends, and names points."""
