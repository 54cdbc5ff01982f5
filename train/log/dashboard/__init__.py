"""`corpusmill dashboard`: what a run says of itself, as one HTML page that needs no network."""
