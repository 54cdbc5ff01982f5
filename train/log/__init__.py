"""What a run records: rows of metrics.jsonl, where else they go, and pages drawn of them."""
