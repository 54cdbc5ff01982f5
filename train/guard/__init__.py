"""The guard: spikes noticed, steps skipped, the run rolled back; its journal says what was done and why."""
