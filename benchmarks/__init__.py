"""Programs that measure: `make bench`, `make bench-parsing`."""
