"""A judge is killed half way: run again, it repeats at most the calls in flight, and ends as if nothing had happened."""

import shutil
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
import yaml

from loopback import completion, loopback
from pipeline.tiny import environment

CONCURRENCY = 3


@pytest.fixture(scope="module")
def project(copied):
    """Nothing explained or scored yet, and no reply kept."""
    folder = copied("kill")
    for made in ("data/explanations", "data/scores", ".cache"):
        shutil.rmtree(folder / made)
    return folder


def ask_endpoint(project, url):
    path = project / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["clients"]["judge"] = {"kind": "openai_compatible", "model": "any"}
    tree["run"]["clients"] = {"judge": {"base_url": url, "concurrency": CONCURRENCY}}
    tree["explainers"] = {"default": {"client": "judge", "max_latents": 12}}
    path.write_text(yaml.safe_dump(tree))


def start(project, *command):
    return subprocess.Popen([sys.executable, *command], cwd=project, env=environment(project), stderr=subprocess.DEVNULL)


def kill_half_way(process, calls_of, wanted):
    deadline = time.monotonic() + 120
    while calls_of() < wanted and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, "it ended before it was killed"
    process.send_signal(signal.SIGKILL)
    process.wait()


def judge(text, _before):
    """Explains as told to, and answers yes or no with log-probabilities."""
    answer = (
        completion("EXPLANATION: some letters")
        if "<<" in text and "yes" not in text.lower()
        else completion("yes", logprobs={"yes": -0.4, "no": -1.1})
    )
    return type(answer)(status=answer.status, body=answer.body, after_s=0.15)


@pytest.mark.parametrize(
    ("command", "out"),
    [(("stages/explain.py", "--sae", "tiny"), "data/explanations/tiny/explanations.parquet"),
     (("stages/score.py", "--sae", "tiny", "--scorer", "detection"), "data/scores/tiny/detection/judgments.parquet")],
    ids=["explain", "score"],
)  # fmt: skip
def test_a_kill_repeats_at_most_the_calls_in_flight(project, command, out):
    with loopback(judge) as server:
        ask_endpoint(project, server.url)
        process = start(project, *command)
        kill_half_way(process, lambda: sum(server.calls.values()), 6)
        time.sleep(0.5)
        assert not (project / out).exists()
        assert start(project, *command).wait(timeout=120) == 0
        distinct, total = len(server.calls), sum(server.calls.values())
        assert distinct > 6
        assert total <= distinct + CONCURRENCY
        rows = pq.read_table(project / out).to_pylist()
        assert rows and all(row["status"] == "ok" for row in rows)
        shutil.rmtree((project / out).parent)
        assert start(project, *command).wait(timeout=120) == 0
        assert sum(server.calls.values()) == total
