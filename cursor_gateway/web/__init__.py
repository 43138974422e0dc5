"""Law: the only place, beside the relay, that knows aiohttp's server, and that knows dialects."""
