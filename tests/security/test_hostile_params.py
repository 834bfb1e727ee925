"""params.yaml as an attacker would write it: refused with a fault, before memory is taken or a file is written."""

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from latentry.errors import ParamsError
from latentry.params import load_params, parse_params
from latentry.sae_folders import sae_faults
from small_params import put, small_params


def bomb(first: str, line: str, n: int = 12) -> str:
    """A file whose every line names the one before it ten times."""
    names = [f"a{number}" for number in range(n)]
    lines = [line.format(name=name, ten=",".join([f"*{before}"] * 10)) for before, name in pairwise(names)]
    return "\n".join([f"a0: &a0 {first}", *lines])


HOSTILE = {
    "a billion laughs": bomb("[lol]", "{name}: &{name} [{ten}]"),
    "merges of merges": bomb("{x: 1}", "{name}: &{name} {{<<: [{ten}]}}"),
    "a list that holds itself": "a: &a [*a]",
    "a section that merges itself": "a: &a {<<: *a}",
    "a call": "seed: !!python/object/apply:os.mkdir [made]",
    "a class": "seed: !!python/name:os.system",
    "a tag of another library": "seed: !include /etc/passwd",
    "brackets without end": "seed: " + "[" * 500,
    "a number of any length": "seed: " + "9" * 5_000,
    "a date that is none": "seed: 2026-13-45",
    "a list as a name": "? [a]\n: 1",
    "two documents": "seed: 1\n---\nseed: 2",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_a_fault_of_the_file_and_does_nothing(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    with pytest.raises(ParamsError) as error:
        load_params()
    assert len(str(error.value)) < 1_000
    assert [path.name for path in Path().iterdir()] == ["params.yaml"]


def test_aliases_that_write_out_to_little_are_as_good_as_written_out(tmp_path):
    path = tmp_path / "params.yaml"
    tree = small_params()
    tree["models"]["other"] = tree["models"]["subject"]
    path.write_text(yaml.safe_dump(tree))
    assert "*id001" in path.read_text()
    assert load_params(path) == parse_params(tree)


NAMES = ["../x", "/etc/x", "a/b", "a\\b", ".", "..", "", "a\0b", "Ünï", "\u0430dmin", "a b", "x" * 61, "a\nb", "-x", "$(id)", "a;id", "A"]
"""Names that would lead out of a folder, are none in a file system, look like others, or mean something to a shell."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("section", ["saes", "models", "clients", "explainers", "scorers", "examples.contrasts", "subject.hookpoints"])
def test_a_name_that_could_lead_elsewhere_is_a_fault(section, name):
    tree = small_params()
    place = tree
    for part in section.split("."):
        place = place[part]
    place[name] = next(iter(place.values()))
    with pytest.raises(ParamsError) as error:
        parse_params(tree)
    assert any(fault.startswith(section) for fault in error.value.faults)


FILES = ["../x.gguf", "/etc/passwd", "a/b.gguf", "..", "", "a\0b", "x" * 300]


@pytest.mark.parametrize("name", FILES)
def test_a_models_file_is_named_inside_its_folder(name):
    packages = {"kind": "packages", "requirements": ["a==1"], "member": "*", "joined": name}
    for model in (
        {"format": "gguf", "weights": name, "sources": [{"kind": "folder", "path": "x"}]},
        {"format": "gguf", "sources": [packages]},
    ):
        with pytest.raises(ParamsError, match=r"models\.subject"):
            parse_params(small_params(models__subject=model))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("saes.topk-64.width", 10**12),
        ("saes.topk-64.width", 2**63),
        ("tokens.context", 10**9),
        ("tokens.n_tokens", 10**30),
        ("run.batch_tokens", 10**15),
        ("run.block_latents", 10**15),
        ("examples.n_latents", 10**20),
    ],
)
def test_a_size_beyond_any_is_a_fault_by_its_path(path, value):
    with pytest.raises(ParamsError) as error:
        parse_params(put_in(small_params(), path, value))
    assert any(fault.startswith(path) for fault in error.value.faults)


def put_in(tree, path, value):
    put(tree, path, value)
    return tree


def test_parts_without_end_are_a_fault_and_are_not_written_out():
    packages = {"kind": "packages", "requirements": ["part-{1..999999999999}==1.0"], "member": "*", "joined": "a"}
    with pytest.raises(ParamsError, match="at most 10000 parts"):
        parse_params(small_params(models__subject={"format": "gguf", "sources": [packages]}))


def test_a_sae_that_this_machine_cannot_hold_is_told_with_what_it_takes(tmp_path):
    (tmp_path / "subject").mkdir()
    (tmp_path / "subject" / "config.json").write_text('{"hidden_size": 4096}')
    params = parse_params(put_in(small_params(), "saes.topk-64.width", 2**28))
    (fault,) = sae_faults(params, tmp_path, [])
    assert fault.startswith("saes.topk-64.width: is 268,435,456; with activations of 4096 numbers it takes 35,184.4 GB")


def test_a_value_of_any_length_is_shown_by_its_beginning():
    with pytest.raises(ParamsError) as error:
        parse_params(small_params(seed="x" * 1_000_000, run__device=["y"] * 100_000))
    assert len(str(error.value)) < 3_000
