"""Experiments and sharing by version, as a user types them: git repositories, a hub between them, and a real remote, on the tiny pipeline."""

import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow.parquet as pq
import pytest

from pipeline.tiny import run
from pipeline.versioned import STORAGE, cloned, empty_repository, git, published

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TWO = ("-S", "scorers.detection.max_examples=2", "-S", "+explainers.lexical.max_latents=6")
EXPLANATIONS = "data/explanations/tiny"


@pytest.fixture(scope="module")
def repository(copied):
    return published(copied, "project")


@pytest.fixture(scope="module")
def hub(repository):
    return repository.parent / "hub.git"


@pytest.fixture(scope="module")
def clone(repository, hub):
    """A colleague's, after `make pull`."""
    folder = cloned(hub, repository.parent / "clone")
    run(folder, "make", "pull")
    return folder


@pytest.fixture(scope="module")
def experiment(repository):
    """Another result, tagged as the first is, with both in the hub."""
    said = run(repository, "dvc", "exp", "run", *TWO, "-n", "two", capture_output=True)
    git(repository, "checkout", ".")
    run(repository, "dvc", "checkout", "--quiet")
    run(repository, "dvc", "exp", "branch", "two", "two-branch")
    git(repository, "tag", "results-1", "main")
    git(repository, "tag", "results-2", "two-branch")
    git(repository, "push", "--quiet", "origin", "results-1", "results-2")
    run(repository, "dvc", "push", "--quiet", "--all-tags")
    return said.stdout + said.stderr


def latentry(folder, *arguments, **options):
    return run(folder, "latentry", *arguments, capture_output=True, **options)


def explained(file):
    return {(row["latent"], row["explainer"]) for row in pq.read_table(file).to_pylist() if row["status"] == "ok"}


def stages_run(said):
    return [line for line in said.splitlines() if line.startswith("Running stage")]


def test_an_experiment_is_compared_and_pays_nothing_twice(repository, experiment):
    assert "score@tiny-detection: 20 requests, 20 distinct, 0 to ask" in experiment
    assert "two" in run(repository, "dvc", "exp", "show", "--csv", capture_output=True).stdout
    difference = run(repository, "dvc", "metrics", "diff", "--json", "main", "two-branch", capture_output=True).stdout
    assert "tiny.scores.lexical.detection.score" in difference
    assert "score_by_width" in run(repository, "dvc", "plots", "diff", "--json", "main", "two-branch", capture_output=True).stdout


def test_a_clone_pulls_results_and_recomputes_nothing(clone):
    for kind in ("models", "tokens", "activations", "latents"):
        assert not (clone / "data" / kind).exists()
    assert (clone / "report" / "index.html").is_file()
    said = run(clone, "dvc", "repro", "--allow-missing", capture_output=True).stdout
    assert stages_run(said) == ["Running stage 'track':"]
    assert "published 3, there already 0, pending 0" in said
    assert git(clone, "status", "--porcelain") == ""
    assert "published 0, there already 3, pending 0" in latentry(clone, "track").stdout


def test_a_clone_shows_a_latent_and_verifies_what_came(repository, clone):
    latent = next(
        row["latent"] for row in pq.read_table(repository / "data/examples/tiny/latents.parquet").to_pylist() if row["status"] == "ok"
    )
    shown, whole = (latentry(folder, "show", "tiny", str(latent)).stdout.splitlines() for folder in (clone, repository))
    assert shown[-10:] == whole[-10:]
    assert "examples by decile" in shown
    assert any("data/latents, which is not shared" in line for line in shown)
    verified = latentry(clone, "verify").stdout
    assert "all is as written: 8 folders" in verified
    assert "not checked: data/latents/tiny: is not here" in verified


def test_a_byte_changed_through_a_link_into_the_cache_is_found_and_mended(clone):
    page = clone / "report" / "index.html"
    written = page.read_bytes()
    page.chmod(0o644)
    page.write_bytes(written.replace(b"latent", b"Latent", 1))
    changed = latentry(clone, "verify", check=False)
    assert changed.returncode == 1
    assert "report/index.html: is not what dvc.lock names" in changed.stderr
    shutil.rmtree(clone / "report")
    run(clone, "dvc", "pull", "--quiet", "report")
    assert page.read_bytes() == written
    assert "all is as written" in latentry(clone, "verify", "report").stdout


def test_interpretations_of_one_sae_are_got_and_verified_alone(hub, tmp_path):
    run(tmp_path, "dvc", "get", "--quiet", str(hub), EXPLANATIONS, "--out", "got")
    said = latentry(tmp_path, "verify", "got").stdout
    assert "all is as written: 1 folder (2 files" in said
    assert "not checked: data/examples/tiny: is not here; got was made from the one" in said


@pytest.mark.usefixtures("experiment")
def test_a_tag_names_a_published_result(hub, tmp_path):
    for tag in ("results-1", "results-2"):
        run(tmp_path, "dvc", "get", "--quiet", str(hub), f"{EXPLANATIONS}/explanations.parquet", "--rev", tag, "--out", f"{tag}.parquet")
    first, second = (explained(tmp_path / f"{tag}.parquet") for tag in ("results-1", "results-2"))
    assert (len(first), len(second)) == (12, 6)
    assert second < first


@pytest.mark.usefixtures("experiment")
def test_an_import_stays_at_its_tag_until_it_is_updated(hub, tmp_path):
    other = empty_repository(tmp_path / "other")
    run(other, "dvc", "import", "--quiet", str(hub), EXPLANATIONS, "--rev", "results-1", "--out", "theirs")
    first = explained(other / "theirs" / "explanations.parquet")
    git(other, "add", "--all")
    git(other, "commit", "--quiet", "--message", "imported")
    assert "all is as written" in latentry(other, "verify", "theirs").stdout
    run(other, "dvc", "update", "--quiet", "theirs.dvc")
    assert explained(other / "theirs" / "explanations.parquet") == first
    run(other, "dvc", "update", "--quiet", "--rev", "results-2", "theirs.dvc")
    assert explained(other / "theirs" / "explanations.parquet") < first
    assert git(other, "diff", "--name-only") == "theirs.dvc"


@pytest.mark.usefixtures("experiment")
def test_an_experiment_is_pushed_and_pulled_by_a_colleague(repository, hub):
    run(repository, "dvc", "exp", "push", "--quiet", "origin", "two")
    colleague = cloned(hub, repository.parent / "colleague")
    assert "two" in run(colleague, "dvc", "exp", "list", "origin", capture_output=True).stdout
    run(colleague, "dvc", "exp", "pull", "--quiet", "origin", "two")
    run(colleague, "dvc", "exp", "branch", "two", "two")
    git(colleague, "switch", "--quiet", "two")
    run(colleague, "make", "pull")
    assert "max_examples: 2" in (colleague / "params.yaml").read_text()
    said = run(colleague, "dvc", "repro", "--allow-missing", capture_output=True).stdout
    assert stages_run(said) == ["Running stage 'track':"]
    assert len(explained(colleague / EXPLANATIONS / "explanations.parquet")) < len(
        explained(repository / EXPLANATIONS / "explanations.parquet")
    )


@pytest.mark.usefixtures("experiment")
def test_an_experiment_applied_where_models_are_not_shared_is_put_right_by_pull(repository, hub):
    run(repository, "dvc", "exp", "push", "--quiet", "origin", "two")
    colleague = cloned(hub, repository.parent / "applied")
    run(colleague, "dvc", "exp", "pull", "--quiet", "origin", "two")
    assert run(colleague, "dvc", "exp", "apply", "two", check=False).returncode
    run(colleague, "make", "pull")
    assert stages_run(run(colleague, "dvc", "repro", "--allow-missing", capture_output=True).stdout) == ["Running stage 'track':"]


class Refuses(BaseHTTPRequestHandler):
    """A store that lets nobody in."""

    def do_GET(self):
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/results"
    server.shutdown()
    server.server_close()


@pytest.fixture
def far_away(hub, tmp_path):
    """A clone that has no folder `dvc-storage` beside it."""
    return cloned(hub, tmp_path / "far" / "clone")


def pull_fails(folder):
    """What is said at the end of a pull that brings nothing."""
    done = run(folder, "make", "pull", check=False, capture_output=True)
    assert done.returncode
    return next(line for line in done.stderr.splitlines() if line.startswith("error: "))


def test_a_remote_that_is_missing_refuses_or_was_never_pushed_to_is_told_with_what_to_do(far_away, refusing, repository, tmp_path):
    local = ("dvc", "remote", "modify", "--local", "storage", "url")
    assert f"{far_away.parent / STORAGE} is not there; mount it, or name where" in pull_fails(far_away)
    (tmp_path / "empty").mkdir()
    run(far_away, *local, str(tmp_path / "empty"))
    assert "does not hold these results; who made them has to run `dvc push`" in pull_fails(far_away)
    run(far_away, *local, refusing)
    assert f"remote 'storage' at {refusing} is down, refuses you, or" in pull_fails(far_away)
    run(far_away, "dvc", "config", "--unset", "core.remote")
    assert "no default remote is set" in pull_fails(far_away)
    run(far_away, "dvc", "config", "--local", "core.remote", "gone")
    assert "remote 'gone' is not set" in pull_fails(far_away)
    run(far_away, "dvc", "config", "--local", "--unset", "core.remote")
    git(far_away, "checkout", ".")
    run(far_away, *local, str(repository.parent / STORAGE))
    run(far_away, "make", "pull")
    assert (far_away / "report" / "index.html").is_file()


def test_results_of_another_version_are_told_with_what_to_do(clone, tmp_path):
    later = tmp_path / "later"
    shutil.copytree(clone, later, symlinks=True)
    contracts = later / "src" / "latentry" / "contracts" / "interpretations.py"
    contracts.write_text(contracts.read_text().replace('name="explanations",\n    version=', 'name="explanations",\n    version=9'))
    assert (
        "'explanations' v1, this code reads v91; read it with the version of latentry that wrote it"
        in latentry(later, "pull", check=False).stderr
    )
    latent = str(pq.read_table(later / "data/examples/tiny/latents.parquet")["latent"][0])
    for command in (("verify",), ("show", "tiny", latent)):
        done = latentry(later, *command, check=False)
        assert done.returncode == 1
        assert "holds contract 'explanations' v1, this code reads" in done.stderr
