"""Those we talk to die and come back: a judge, a tracker. What was paid is kept, what was published is not doubled, and it is said."""

import random
import shutil
import time

import pytest
import yaml

from faults.disturbed import CELLS, ended, start, take_away
from faults.mortal_judge import MortalJudge
from faults.test_killed_anywhere import finished_runs
from mlflow_server import free_port, kill, serving
from pipeline.tiny import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONCURRENCY = 4
DETECTION = CELLS["score@tiny-detection"]


@pytest.fixture
def judge(tmp_path):
    judge = MortalJudge(free_port(), tmp_path / "asked")
    yield judge
    judge.die()


def ask_endpoint(project, url):
    path = project / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["clients"]["judge"] = {"kind": "openai_compatible", "model": "any"}
    tree["run"]["clients"] = {"judge": {"base_url": url, "concurrency": CONCURRENCY, "retries": 1, "timeout_s": 5}}
    tree["scorers"]["detection"] |= {"max_latents": 8, "max_examples": 8}
    path.write_text(yaml.safe_dump(tree))
    take_away(project, CELLS["explain@tiny"], DETECTION)
    shutil.rmtree(project / ".cache" / "replies")


@pytest.mark.parametrize("answered", [0, 3, 17, 40])
def test_a_judge_that_dies_stops_the_cell_with_3_and_is_paid_once(project, judge, answered):
    ask_endpoint(project, judge.url)
    judge.live()
    code, said = ended(start(project, "python", *CELLS["explain@tiny"].command.split()))
    assert code == 0, said
    before = sum(judge.calls.values())
    process = start(project, "python", *DETECTION.command.split())
    while sum(judge.calls.values()) - before < answered and process.poll() is None:
        time.sleep(0.005)
    judge.die()
    code, said = ended(process)
    assert (code, "Traceback" in said) == (3, False), said
    assert judge.url.removesuffix("/v1") in said and "kept" in said
    assert not (project / DETECTION.out).exists()
    judge.live()
    code, said = ended(start(project, "python", *DETECTION.command.split()))
    assert code == 0, said
    distinct, total = len(judge.calls), sum(judge.calls.values())
    assert distinct - before > answered
    assert total <= distinct + 2 * CONCURRENCY, "a call in flight and its one further try"
    take_away(project, DETECTION)
    code, said = ended(start(project, "python", *DETECTION.command.split()))
    assert (code, sum(judge.calls.values())) == (0, total), said


def test_dvc_repro_stops_at_a_dead_judge_and_goes_on_when_it_lives(project, judge):
    ask_endpoint(project, judge.url)
    code, said = ended(start(project, "dvc", "repro"))
    assert code != 0 and judge.url.removesuffix("/v1") in said and "Traceback" not in said, said
    judge.live()
    code, said = ended(start(project, "dvc", "repro"))
    assert code == 0, said
    assert sum(judge.calls.values()) <= len(judge.calls) + 2 * CONCURRENCY


def test_a_tracker_that_was_never_there_costs_a_loud_line_unless_it_is_required(project, stages):
    nowhere = f"http://127.0.0.1:{free_port()}"
    seen = stages.run(project, "stages/track.py", MLFLOW_TRACKING_URI=nowhere)
    assert (seen.code, "Traceback" in seen.said) == (0, False), seen.said
    assert "TRACKING FAILED" in seen.said and nowhere in seen.said and "latentry track" in seen.said and "pending 3" in seen.said
    path = project / "params.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"tracking": {"experiment": "tiny", "required": True}}))
    seen = stages.run(project, "stages/track.py", MLFLOW_TRACKING_URI=nowhere)
    assert (seen.code, "Traceback" in seen.said) == (3, False), seen.said


@pytest.mark.timeout(900)
def test_a_tracker_killed_at_random_moments_doubles_no_run(project, whole):
    take_away(project, CELLS["track"])
    port, moments = free_port(), random.Random(5)
    address = f"http://127.0.0.1:{port}"
    for _ in range(2):
        with serving(project, port) as server:
            process = start(project, "python", "stages/track.py", MLFLOW_TRACKING_URI=address)
            time.sleep(moments.uniform(4, 7))
            kill(server)
            code, said = ended(process)
            assert (code, "Traceback" in said) == (0, False), said
            assert "TRACKING FAILED" in said or "pending 0" in said
    with serving(project, port):
        code, said = ended(start(project, "latentry", "track", MLFLOW_TRACKING_URI=address))
        assert code == 0 and said.rstrip().endswith("pending 0"), said
        again = ended(start(project, "latentry", "track", MLFLOW_TRACKING_URI=address))[1]
    assert "published 0, there already 3, pending 0" in again
    assert finished_runs(project) == finished_runs(whole)
    assert run(project, "dvc", "status", capture_output=True, check=False).returncode == 0
