"""The `filter` stage: one view of the text per batch, signals measured on it, rules judged on the signals,
language, toxicity and quality by fastText."""
