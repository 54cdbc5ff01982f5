"""What a model can do: losses on validation splits beside n-gram models (`splits`), and the scorer that everything else calls
(`scorer`), on rows in which choices share what comes before them (`rows`) or those of a split (`batches`); figures with their
uncertainty (`statistics`), two models compared (`compare`, `divergence`), calibration."""
