"""One latent's page in a terminal: what stands on it, what a hostile text cannot do, and what is said when parts are missing."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hostile_text import poison
from latentry.errors import ContractError, ParamsError
from latentry.explorer.labels import latent_of
from latentry.explorer.show import MARK, RESET, harmless, latent_page, without_colours
from latentry.params import parse_params
from made_up_study import HOSTILE, make_study
from small_params import small_params

SAE = "topk-1k"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"), n_latents=15, widths={"1k": 1024}) / "data"


def ok_latent(data: Path) -> int:
    rows = pq.read_table(data / "examples" / SAE / "latents.parquet").to_pylist()
    return next(row["latent"] for row in rows if row["status"] == "ok")


def plain(data: Path, latent: int) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in latent_page(data, SAE, latent)]


def test_the_page_holds_statistics_examples_contrasts_explanations_and_scores(data: Path) -> None:
    lines = plain(data, ok_latent(data))
    page = "\n".join(lines)
    assert f"latent {ok_latent(data)} of {SAE}  ok" in page
    for shown in ("' whale' 40%", "' ship'", "examples by decile", "explain", "held out", "contrasts: random", "lexical:", "AUROC"):
        assert shown in page
    deciles = [int(line.split()[0]) for line in lines if re.match(r" +\d+ (explain|held out)", line)]
    assert deciles == sorted(deciles, reverse=True)
    assert len(deciles) == 10


def test_marked_stretches_are_coloured_and_nothing_else_of_the_text_changes(data: Path) -> None:
    latent = ok_latent(data)
    rows = pq.read_table(data / "examples" / SAE / "examples.parquet").to_pylist()
    row = next(row for row in rows if row["latent"] == latent and row["split"] == "explain" and row["rank"] == 1)
    line = next(line for line in latent_page(data, SAE, latent) if row["text"] in re.sub(r"\x1b\[[0-9;]*m", "", line))
    marks = zip(row["marks"][::2], row["marks"][1::2], strict=True)
    assert re.findall(f"{re.escape(MARK)}(.*?){re.escape(RESET)}", line) == [row["text"][start:end] for start, end in marks]


def test_a_text_cannot_steer_the_terminal_and_keeps_its_length(data: Path) -> None:
    hostile = "a\x1b[2J\x07\r\n\x9b31m\u202eb\u2066\tc"
    shown = harmless(hostile)
    assert len(shown) == len(hostile)
    assert shown.isprintable()
    assert "\u202e" in HOSTILE
    assert "\u202e" not in "".join(latent_page(data, SAE, ok_latent(data)))
    assert harmless("日本 👩\u200d👧 שלום e\u0301  x") == "日本 👩\u200d👧 שלום e\u0301  x"


def test_a_latent_without_examples_says_why_and_one_not_looked_at_that(data: Path) -> None:
    rows = pq.read_table(data / "examples" / SAE / "latents.parquet").to_pylist()
    dead = next(row["latent"] for row in rows if row["status"] == "dead")
    assert "dead did not fire often enough" in plain(data, dead)[0]


def test_what_is_not_there_yet_is_left_out_with_what_to_run(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "latents" / SAE, tmp_path / "latents" / SAE)
    page = "\n".join(latent_page(tmp_path, SAE, ok_latent(data)))
    assert "not among the latents looked at" in page
    assert f"dvc repro examples@{SAE}" in page


def test_a_clone_without_latents_shows_what_the_examples_tell_of_them(data: Path, tmp_path: Path) -> None:
    clone = tmp_path / "data"
    shutil.copytree(data, clone, ignore=shutil.ignore_patterns("latents", "activations", "models", "tokens"))
    latent = ok_latent(data)
    whole, shown = plain(data, latent), plain(clone, latent)
    assert [line for line in shown if line not in whole and not line.startswith("  fires at")] == [
        f"  quantiles and the tokens it fires at are in data/latents, which is not shared: `dvc repro latents@{SAE}`"
    ]
    assert shown[1].split(";")[0] == whole[1].split(";")[0]
    looked_at = set(pq.read_table(data / "examples" / SAE / "latents.parquet")["latent"].to_pylist())
    with pytest.raises(
        ParamsError, match=f"latents/{SAE} is not here.* take one of those \\({latent}|take one of those \\(\\d+, .*\\.\\.\\.\\)"
    ):
        plain(clone, next(latent for latent in range(1024) if latent not in looked_at))
    with pytest.raises(ParamsError, match=f"1024: {SAE} has no such latent; it has 0 to 1023"):
        plain(clone, 1024)


def test_results_of_another_version_are_refused_and_not_taken_for_missing(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    manifest = tmp_path / "data" / "explanations" / SAE / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": ', '"version": 9'))
    with pytest.raises(ContractError, match=r"'explanations' v9\d"):
        plain(tmp_path / "data", ok_latent(data))


def test_an_unknown_sae_or_latent_is_refused_by_name(data: Path) -> None:
    with pytest.raises(ParamsError, match=r"topk-2k: there is none of that name; did you mean 'topk-1k'"):
        list(latent_page(data, "topk-2k", 0))
    with pytest.raises(ParamsError, match=r"999999: topk-1k has no such latent"):
        list(latent_page(data, SAE, 999_999))


def test_showing_loads_no_torch_and_prints_without_colour_into_a_pipe(data: Path) -> None:
    code = (
        "import sys; sys.argv = ['latentry', 'show', sys.argv[1], sys.argv[2]]\n"
        "from latentry.cli import commands\n"
        "commands(standalone_mode=False)\n"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, SAE, str(ok_latent(data))]
    found = subprocess.run(command, cwd=data.parent, capture_output=True, text=True, check=True)
    assert "examples by decile" in found.stdout
    assert "\x1b" not in found.stdout


def test_a_latent_that_is_not_there_is_answered_with_those_there_are(data: Path) -> None:
    n = pq.read_metadata(data / "latents" / SAE / "statistics.parquet").num_rows
    with pytest.raises(ParamsError, match=f"it has 0 to {n - 1}"):
        list(latent_page(data, SAE, n))


@pytest.mark.parametrize(
    ("named", "said"), [("-1", "names no latent"), ("x", "names no latent"), ("3-", "of a signed SAE"), ("٣", "names no latent")]
)
def test_what_names_no_latent_is_refused_with_how_one_is_named(data: Path, named: str, said: str) -> None:
    with pytest.raises(ParamsError, match=said):
        list(latent_page(data, SAE, named))


def test_latents_of_a_signed_sae_are_found_by_their_signed_names(tmp_path: Path) -> None:
    (tmp_path / "saes" / "signed").mkdir(parents=True)
    (tmp_path / "saes" / "signed" / "evaluation.json").write_text('{"width": 8, "signed": true}')
    assert [latent_of(tmp_path, "signed", label) for label in ("0+", "3+", "0-", "3-", "5")] == [0, 3, 4, 7, 5]
    with pytest.raises(ParamsError, match=r"0\+ and 0- to 3\+ and 3-"):
        latent_of(tmp_path, "signed", "4-")


def test_details_of_failures_cannot_steer_the_terminal(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    poison(tmp_path / "data")
    for latent in pq.read_table(data / "examples" / SAE / "latents.parquet")["latent"].to_pylist():
        for line in plain(tmp_path / "data", latent):  # without our own colours
            assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", line.removeprefix("\n"))


def test_what_params_do_not_name_any_more_is_marked_and_nothing_else(data: Path) -> None:
    params = parse_params(small_params(explainers={"lexical": {}}, scorers={"embedding": {"model": "encoder", "max_latents": 4}}))
    page = "\n".join(re.sub(r"\x1b\[[0-9;]*m", "", line) for line in latent_page(data, SAE, ok_latent(data), params))
    left_over = " (not in params.yaml any more)"
    assert f"  default{left_over}: " in page and "  lexical: " in page
    assert f"    detection{left_over} " in page and "    embedding AUROC" in page
    assert left_over not in "\n".join(plain(data, ok_latent(data)))


def test_scores_of_earlier_explanations_are_marked(data: Path, tmp_path: Path) -> None:
    changed, told = tmp_path / "data", "of earlier explanations"
    shutil.copytree(data, changed)
    assert told not in "\n".join(plain(changed, ok_latent(data)))
    manifest = changed / "explanations" / SAE / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    lines = [line for line in plain(changed, ok_latent(data)) if "AUROC" in line]
    assert lines and all(told in line for line in lines)


def test_where_there_are_no_colours_marks_are_signs(data: Path) -> None:
    page = list(latent_page(data, SAE, ok_latent(data)))
    signs = [without_colours(line) for line in page]
    assert "\x1b" not in "".join(signs)
    assert "".join(page).count(MARK) == "".join(signs).count("<<") > 0
