"""Law: pure. Bytes and values in, values out: no I/O, no clock, no event loop, no settings."""
