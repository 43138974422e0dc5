"""The pure core: bytes and values in, values out. No clocks, no I/O, no event loop."""
