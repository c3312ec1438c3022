"""One file per cause; `table` orders them."""
