"""What a model can do: losses on validation splits beside n-gram models (`splits`), and the scorer that everything else calls
(`scorer`), on rows in which choices share what comes before them (`rows`); bias figures (`fairness`), ratings by people (`judge`) and
tokens that training hardly touched (`glitch`)."""
