"""The types that are computed in, and what is done to need less memory or time; none of it changes the mathematics."""
