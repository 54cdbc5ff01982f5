"""What people who operate runs rely on, each with real parts: stores behind a proxy that breaks answers, schedulers and workers
as processes of their own, full and read-only disks, two runs at once, kills."""
