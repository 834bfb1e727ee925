"""SAEs from the hub: what its cache on this machine holds at a commit is copied and recorded; without it, every format says what to do.

In processes of their own, because the hub's client reads its surroundings when it is imported.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from latentry.registry import variant
from native_saes import ALL, ONE_OF_EACH_FILE, SPECIMENS, WIDTH

COMMIT, OTHER = "1" * 40, "2" * 40
SCRIPT = """
import json, sys
from pathlib import Path
from latentry.errors import LatentryError
from latentry.registry import variant
told = []
for number, asked in enumerate(json.loads(sys.argv[1])):
    folder, room = Path(sys.argv[2], str(number)), variant("saes", asked["kind"])
    folder.mkdir(parents=True)
    config = room.Config(**asked)
    try:
        room.make(config, None, None, seed=0, folder=folder, metadata={}, checkpoint_tokens=1)
        assert room.is_copy(config, folder) and not any(path.is_symlink() for path in folder.iterdir())
        told.append(room.build(config, "x", folder).provenance)
    except LatentryError as error:
        told.append(str(error))
print(json.dumps(told))
"""


def asked(name: str, revision: str = COMMIT, **hub: str) -> dict[str, object]:
    """An entry of params for a specimen that lies in a repository under its own name."""
    specimen = ALL[name]
    path = f"{specimen.name}/{specimen.inside}".rstrip("/")
    settings = {"kind": specimen.kind, "hookpoint": "read", "width": WIDTH, **specimen.settings}
    return {**settings, "hub": {"id": "some/saes", "revision": revision, "path": path, **hub}}


def made(folder: Path, entries: list[dict[str, object]], home: Path, **surroundings: str) -> list:
    own = {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", **surroundings}
    command = [sys.executable, "-c", SCRIPT, json.dumps(entries), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | own, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """The hub's cache with one repository at one commit: every specimen, and a card that states a licence."""
    home = tmp_path_factory.mktemp("home")
    snapshot = home / "hub" / "models--some--saes" / "snapshots" / COMMIT
    shutil.copytree(SPECIMENS, snapshot, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (snapshot / "README.md").write_text("---\ntags: [sae]\nlicense: apache-2.0\n---\n# SAEs\nlicense: not this one\n")
    return home


@pytest.fixture(scope="module")
def held(home, tmp_path_factory) -> list:
    entries = [asked(name) for name in ONE_OF_EACH_FILE]
    entries += [asked("sparsify-topk", path="sparsify-topk"), asked("sparsify-topk", OTHER)]
    return made(tmp_path_factory.mktemp("held"), entries, home, HF_HUB_OFFLINE="1")


@pytest.mark.parametrize(("number", "name"), enumerate(ONE_OF_EACH_FILE))
def test_what_the_hub_has_at_a_commit_is_copied_with_its_source_revision_digest_and_licence(held, number, name):
    found, here = held[number], ALL[name].built().provenance
    place = f"some/saes/{ALL[name].name}/{ALL[name].inside}".rstrip("/")
    assert (found["source"], found["revision"], found["licence"]) == (place, COMMIT, "apache-2.0")
    assert found["digest"] == here["digest"] == variant("saes", ALL[name].kind).origin_digest(ALL[name].config())
    assert {key: found["metadata"].get(key) for key in here["metadata"]} == here["metadata"]


def test_a_folder_of_the_repository_without_the_files_is_told_what_is_there(held):
    told = held[len(ONE_OF_EACH_FILE)]
    assert "no cfg.json (found: ['config.json', 'expected.safetensors', 'inputs.safetensors', 'layers.1.mlp'])" in told


def test_another_commit_is_other_weights(held):
    assert held[-1].startswith(f"hub some/saes@{OTHER}: the hub cannot be reached")
    kind = variant("saes", "sparsify")
    assert kind.origin_digest(kind.Config(**asked("sparsify-topk"))) != kind.origin_digest(kind.Config(**asked("sparsify-topk", OTHER)))


def test_a_hub_that_cannot_be_reached_says_so_and_how_to_point_to_a_folder(tmp_path):
    entries = [asked(name) for name in ONE_OF_EACH_FILE]
    told = made(tmp_path / "offline", entries, tmp_path / "empty", HF_HUB_OFFLINE="1")
    assert len(told) == len(entries)
    for said in told:
        assert said.startswith(f"hub some/saes@{COMMIT}: the hub cannot be reached (")
        assert said.endswith("mend the network, or name a `folder` that holds the SAE's files, in place of `hub`")


@pytest.mark.slow
def test_a_network_that_is_down_is_told_like_one_that_is_off(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        (said,) = made(tmp_path / "into", [asked("sparsify-topk")], tmp_path / "empty", HF_ENDPOINT=endpoint, HF_HUB_OFFLINE="0")
    assert said.startswith(f"hub some/saes@{COMMIT}: the hub cannot be reached (")
    assert said.endswith("or name a `folder` that holds the SAE's files, in place of `hub`")


@pytest.mark.slow
def test_an_entry_of_sae_lens_registry_is_read_and_saved_by_sae_lens_at_the_commit(tmp_path):
    """An old SAE of the first release, by a specimen of its layout; what sae-lens reads wrongly is refused with the kind to use."""
    snapshot = tmp_path / "home" / "hub" / "models--jbloom--GPT2-Small-SAEs-Reformatted" / "snapshots" / COMMIT
    shutil.copytree(SPECIMENS / "sae_lens-pre-6", snapshot / "blocks.8.hook_resid_pre")
    common = {"kind": "sae_lens", "hookpoint": "read", "width": WIDTH, "loss": "topk"}

    def entry(release: str, sae_id: str, revision: str = COMMIT) -> dict[str, object]:
        return common | {"pretrained": {"release": release, "sae_id": sae_id, "revision": revision}}

    entries = [
        entry("gpt2-small-res-jb", "blocks.8.hook_resid_pre"),
        entry("gpt2-small-res-jb", "blocks.8.hook_resid_pre", OTHER),
        entry("gpt2-small-res-jb", "blocks.88.hook_resid_pre"),
        entry("gpt2-small-res-jbx", "blocks.8.hook_resid_pre"),
        entry("sae_bench_pythia70m_sweep_topk_ctx128_0730", "blocks.3.hook_resid_post__trainer_10"),
    ]
    found, other, no_id, no_release, own_kind = made(tmp_path / "into", entries, tmp_path / "home", HF_HUB_OFFLINE="1")
    assert (found["source"], found["revision"]) == ("jbloom/GPT2-Small-SAEs-Reformatted/blocks.8.hook_resid_pre", COMMIT)
    assert (found["architecture"], found["k"], found["metadata"]["release"]) == ("topk", 5, "gpt2-small-res-jb")
    assert found["metadata"]["hook_name"] == "blocks.1.hook_resid_post"
    assert "the hub cannot be reached" in other
    assert "has no sae_id 'blocks.88.hook_resid_pre'; did you mean 'blocks.8.hook_resid_pre'?" in no_id
    assert "release 'gpt2-small-res-jbx' is not there; did you mean 'gpt2-small-res-jb'?" in no_release
    assert "`kind: dictionary_learning` with `hub: {id: " in own_kind
