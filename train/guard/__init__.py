"""The guard: spikes noticed, steps skipped, the run rolled back; its journal records what was done and why."""
