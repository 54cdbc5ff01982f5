"""A Slurm of one node from packages (slurmctld, slurmd, slurm-client, munge): all of it in a folder, on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo")
PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
# A container has no cgroups of its own.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MinJobAge=3600
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why no Slurm can be started here; "" if one can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    gone = [name for name in PROGRAMS if shutil.which(name, path=PATHS) is None]
    return f"Slurm is not installed (no {', '.join(gone)}): packages slurmctld, slurmd, munge" if gone else ""


class Slurm:
    """`environment` is what its commands need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATHS}
        self._daemons: list[subprocess.Popen[bytes]] = []
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir()
        folder.chmod(0o755)
        (folder / "munge").chmod(0o755)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, ports=_free_ports(2)))
        munge = folder / "munge"
        self._start(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        self._until(lambda: (munge / "socket").exists())
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        self._until(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"))

    def ask(self, *command: str) -> str:
        """The output of one of its commands; "" while there is no answer."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    def jobs(self, state: str) -> list[str]:
        """The numbers of the jobs in a state, such as RUNNING."""
        return self.ask("squeue", "--noheader", "--format=%i", f"--states={state}").split()

    def _start(self, *command: str) -> None:
        program = shutil.which(command[0], path=PATHS)
        assert program is not None
        with (self.folder / f"{command[0]}.log").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    [program, *command[1:]], env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )  # fmt: skip

    def _until(self, condition: object) -> None:
        assert callable(condition)
        for _ in range(600):
            if condition():
                return
            for daemon in self._daemons:
                assert daemon.poll() is None, self.logs()
            time.sleep(0.1)
        raise AssertionError(f"Slurm did not start within 60 s\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(f"{file.name}:\n{file.read_text()[-3000:]}" for file in self.folder.glob("*.log"))

    def close(self) -> None:
        for job in self.jobs("all"):
            self.ask("scancel", "--full", "--signal=KILL", job)
            self.ask("scancel", job)
        deadline = time.monotonic() + 60
        while self.jobs("RUNNING,COMPLETING") and time.monotonic() < deadline:
            time.sleep(0.2)
        for daemon in reversed(self._daemons):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    made = Slurm(folder)
    try:
        yield made
    finally:
        made.close()
