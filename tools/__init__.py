"""Programs for the maintainers of a checkout, in no wheel: making the shipped classifiers again."""
