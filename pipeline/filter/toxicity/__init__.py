"""The toxicity model that ships: its tokens (letter swaps undone), its features, its file, how a text is scored by label, and
its training."""
