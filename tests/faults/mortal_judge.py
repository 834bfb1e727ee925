"""A judge in a process of its own, that can be killed and started again at the same address: `python mortal_judge.py PORT LOG`.

The log has a line for every call that was answered or begun, its question's digest.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from loopback import Answer, Loopback, completion


class MortalJudge:
    """Its process, and what it was asked over all its lives."""

    def __init__(self, port: int, log: Path) -> None:
        self.port, self._log = port, log
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """What a client takes as base_url."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def calls(self) -> Counter[str]:
        """How often each question came."""
        return Counter(self._log.read_text().split()) if self._log.exists() else Counter()

    def live(self) -> None:
        """Start, and wait until it listens."""
        command = [sys.executable, __file__, str(self.port), str(self._log)]
        found = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": found})
        assert self._process.stdout
        self._process.stdout.readline()

    def die(self) -> None:
        """At once, with calls in flight."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _judge(log: Path):
    def rule(text: str, _before: int) -> Answer:
        with log.open("a") as file:
            file.write(hashlib.sha256(text.encode()).hexdigest() + "\n")
        time.sleep(0.05)
        return completion("EXPLANATION: letters") if text.startswith("Texts:") else completion("Yes", logprobs={"Yes": -0.2, "No": -1.9})

    return rule


if __name__ == "__main__":
    server = Loopback(_judge(Path(sys.argv[2])), int(sys.argv[1]))
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    server.serve_forever()
