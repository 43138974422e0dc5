"""Law: what became of each request is written down here, and nothing else is done with it."""
