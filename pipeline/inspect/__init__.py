"""Commands on finished runs: what became of a document, from a token to its source and back, checks, takedowns, other thresholds."""
