"""The stage of recipes whose sources are conversations: what is kept, as lines of JSON that a fine-tuning reads, train and validation
apart."""
