"""Runs that continue others: the phases behind a model, how often each document was trained on over all of them, what was forgotten
since the last border, and averages of checkpoints."""
