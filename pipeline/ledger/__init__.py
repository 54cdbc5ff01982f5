"""The ledger: decisions of every stage merged into one row per record, and `why`, which reads it."""
