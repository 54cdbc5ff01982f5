"""A Dask cluster of Slurm jobs (dask-jobqueue): the scheduler in this process, the workers in jobs.

    python examples/cluster/slurm_cluster.py --jobs 4 --workers-per-job 16 --memory 64GB
    corpusmill run recipe.yaml --scheduler scheduler.json

It runs until it is stopped (Ctrl-C, SIGTERM), which ends its jobs, and submits another job for each that ends before.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from threading import Event

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "DASK_CONFIG": str(Path(__file__).with_name("dask.yaml").resolve()),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=4, help="Slurm jobs (default: 4)")
    parser.add_argument(
        "--workers-per-job", type=int, default=1, help="processes, of one core each (default: 1)"
    )
    parser.add_argument("--memory", default="4GB", help="of a job, for all of its workers (default: 4GB)")
    parser.add_argument("--walltime", default="24:00:00", help="of a job (default: 24:00:00)")
    parser.add_argument("--partition", help="of Slurm (default: its own)")
    parser.add_argument("--account", help="of Slurm (default: its own)")
    parser.add_argument("--host", help="address of this machine that workers reach (default: its first)")
    parser.add_argument(
        "--file", default="scheduler.json", help="the scheduler's file (default: scheduler.json)"
    )
    parser.add_argument("--logs", default="slurm-logs", help="folder of the jobs' logs (default: slurm-logs)")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    # Before dask is imported; jobs inherit the environment of this process, with whatever keys the recipe needs.
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    from dask_jobqueue import SLURMCluster

    stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with SLURMCluster(
        job_name="corpusmill", cores=given.workers_per_job, processes=given.workers_per_job, memory=given.memory,
        walltime=given.walltime, queue=given.partition, account=given.account, log_directory=given.logs,
        worker_extra_args=["--no-dashboard"], scheduler_options={"host": given.host, "dashboard": False},
    ) as cluster:  # fmt: skip
        cluster.adapt(
            minimum_jobs=given.jobs, maximum_jobs=given.jobs
        )  # `scale` would not replace a lost job
        file = Path(given.file)
        file.with_suffix(".part").write_text(
            f'{{"address": "{cluster.scheduler_address}"}}\n', encoding="utf-8"
        )
        file.with_suffix(".part").replace(file)  # a driver never reads half of it
        print(f"{cluster.scheduler_address}, in {file}; {given.jobs} jobs submitted", flush=True)
        stopped.wait()
        file.unlink()


if __name__ == "__main__":
    main()
