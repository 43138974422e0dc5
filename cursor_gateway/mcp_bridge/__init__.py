"""Law: the only importer of `mcp`, which takes a second; so `connection` is imported late."""
