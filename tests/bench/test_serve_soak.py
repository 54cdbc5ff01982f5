"""The soak of `serve`, for some seconds: it finds nothing, and says what it did."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def test_the_server_stands_some_seconds_of_it() -> None:
    command = [sys.executable, "-m", "bench", "serve_soak", "--minutes", "0.06", "--clients", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 clients for 0.1 minutes" in done.stdout and "| stream and leave | " in done.stdout
    assert "- The server's last line: stopped: " in done.stdout
