"""Stages run one after another in processes of their own, each forked from one that has the heavy libraries loaded already.

A stage is run as `dvc` runs it: its own process, the project's code, the project's folder. Only the seconds that torch takes to load are
saved, so a matrix of faults over all files and stages is minutes and not hours. Nothing of latentry is loaded before the fork.
"""

import json
import os
import resource
import runpy
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLOW_TO_LOAD = ("numpy", "pyarrow.parquet", "scipy.sparse", "scipy.stats", "torch", "transformers", "safetensors.torch", "pydantic", "yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a stage's process ended."""

    code: int
    said: str
    """Its standard output and error together."""

    @property
    def error(self) -> str:
        """What it says from the word on that says that something is wrong; empty where it does not."""
        return self.said[self.said.find("error: ") :] if "error: " in self.said else ""


class StageRuns:
    """The process that stages are forked from."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment | {"PYTHONPATH": ""}
        )

    def run(self, project: Path, *command: str, file_limit: int | None = None, **environment: str) -> Ended:
        """One stage or other script of the project, such as `stages/sae.py --sae tiny`, with no file larger than a limit in bytes."""
        asked = {"project": str(project), "command": list(command), "file_limit": file_limit, "environment": environment}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _child(asked: dict[str, Any], said: int) -> None:
    """Become the stage; never returns."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(asked["project"])
    os.environ.update(asked["environment"])
    if asked["file_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_limit"], asked["file_limit"]))
    script = asked["command"][0]
    sys.argv = asked["command"]
    sys.path[0] = str(Path(script).parent)
    sys.path.insert(1, str(Path(asked["project"], "src")))
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve() -> None:
    for name in SLOW_TO_LOAD:
        __import__(name)
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as said:
            pid = os.fork()
            if pid == 0:
                _child(asked, said.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said.seek(0)
            sys.stdout.write(json.dumps({"code": code, "said": said.read().decode(errors="replace")}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _serve()
