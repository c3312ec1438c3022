"""One file per thing that is varied; `table` orders them."""
