"""Law: the only importer of click and rich. One file for each family of commands."""
