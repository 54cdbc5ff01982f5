"""How good the model is: loss, perplexity and bits per byte per source, beside a unigram model's."""
