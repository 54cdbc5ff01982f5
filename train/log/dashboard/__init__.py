"""`corpusmill dashboard`: a run as one HTML page that needs no network."""
