"""`corpusmill compress`: a trained model quantised or pruned, written in the Hugging Face layout, with a report of what that changed.
`calibrate` measures activations, `quantise` and `prune` rewrite weights, `report` compares the two models."""
