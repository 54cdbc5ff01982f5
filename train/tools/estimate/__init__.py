"""What a run takes before it runs: memory of each process, FLOPs, time, cost, energy, and the layout that fits."""
