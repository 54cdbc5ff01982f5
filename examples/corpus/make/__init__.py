"""How the quick start's corpus is made: `sources` and `web` from packages, `planted` from a seed."""
