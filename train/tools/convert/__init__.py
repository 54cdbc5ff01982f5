"""Models of ours in the Hugging Face layout, and theirs as a start of ours."""
