"""`corpusmill passages`: what `decontaminate` found in documents, beside the items of the evaluation sets."""
