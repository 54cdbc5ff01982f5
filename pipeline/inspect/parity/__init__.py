"""Two rule sets over the same documents: how far their decisions agree, and which rules part them, with examples."""
