"""MLflow's own server as a process on loopback, started by the command of `latentry ui` and ended with its children."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from latentry.tracking.server import HOST, ui_command

PATIENCE_S = 180
"""It is ready in 20 s on a machine with nothing else to do."""
_NOT_THEIRS = ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_EXP_NAME")


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return taken.getsockname()[1]


@contextmanager
def serving(root: Path, port: int, command: Sequence[str] = ()) -> Iterator["subprocess.Popen[bytes]"]:
    """The runs of `root` on a port, until the end of the block; what the command says goes to `server.log`."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_THEIRS}
    environment |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    with (root / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [*command] or ui_command(root, port), cwd=root, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait_for(f"http://{HOST}:{port}/health", server, root / "server.log")
            yield server
        finally:
            kill(server)


def kill(server: "subprocess.Popen[bytes]") -> None:
    """End a server and its workers at once, as a crash of its machine would."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_for(address: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.2)
    raise RuntimeError(f"no MLflow server at {address}:\n{log.read_text()[-2000:]}")
