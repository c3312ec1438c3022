"""One file per source of events; `table` orders them."""
