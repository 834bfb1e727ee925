"""The link that `latentry ui` prints, on the installed MLflow in a real browser: its saved view is undocumented, so that this must say when it breaks."""

import os
import re
import sys

import pytest
import yaml

from made_up_study import make_study, rewrite
from mlflow_server import free_port, serving
from small_params import small_params

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SAES = ("topk-1k", "topk-2k", "jumprelu-1k", "jumprelu-2k")
HEADLINES = ("embedding/auroc_random", "detection/auroc_random", "fuzzing/auroc_wrong_position")
PATIENCE_MS = 90_000


def not_scored_by_fuzzing(row):
    """One SAE has no scores of one scorer: the page must stand all the same."""
    if (row["sae"], row["scorer"]) != ("jumprelu-2k", "fuzzing"):
        return row
    nothing = {name: None for name, value in row.items() if isinstance(value, float)}
    return row | nothing | {"n": 0, "n_asked": 0, "n_lift": 0, "statuses": "{}"}


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    """The link that `latentry ui` prints, while its server runs."""
    root = tmp_path_factory.mktemp("a study, größer")
    make_study(root, n_latents=12, widths={"1k": 1024, "2k": 2048})
    rewrite(root, "cells.parquet", not_scored_by_fuzzing)
    (some,) = small_params()["saes"].values()
    params = small_params(saes=dict.fromkeys(SAES, some), tracking__experiment="größen 実験", tracking__required=True)
    (root / "params.yaml").write_text(yaml.safe_dump(params, allow_unicode=True), encoding="utf-8")
    (root / ".dvc").mkdir()
    port = free_port()
    command = [sys.executable, "-c", "from latentry.cli import commands; commands()", "ui", "--port", str(port)]
    with serving(root, port, command):
        said = (root / "server.log").read_text(encoding="utf-8")
        yield re.search(r"http://\S+", said[said.index("ready in") :])[0]


@pytest.fixture
def page(browser, request):
    """A page high enough that all charts are drawn; with LATENTRY_SCREENSHOTS=folder it is kept as it was at the end."""
    page = browser.new_page(viewport={"width": 1500, "height": 3600})
    page.set_default_timeout(PATIENCE_MS)
    yield page
    folder = os.environ.get("LATENTRY_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{request.node.name}.png")
    page.close()


def test_the_view_opens_on_parallel_coordinates_and_charts_of_the_headline_scores_alone(page, link):
    page.goto(link)
    page.get_by_text("Parallel Coordinates").wait_for()
    axes = page.locator(".parcoords, .js-plotly-plot").first
    axes.wait_for()
    for axis in ("log2_d_sae", "loss", "l0"):
        page.get_by_text(axis, exact=True).first.wait_for()
    for metric in HEADLINES:
        page.get_by_text(f"d_sae vs. {metric}").first.wait_for()
        page.get_by_text(f"l0 vs. {metric}").first.wait_for()
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot').length >= 9")
    assert page.locator(".js-plotly-plot .scatterlayer .point").count() >= 3 * 2 * 6
    said = page.inner_text("body")
    assert "8 matching runs" in said and "größen 実験" in said
    headers = page.locator("[aria-expanded]").filter(has_text=re.compile(r"\(\d+\)")).all()
    is_open = {re.split(r"\s*\(", header.inner_text().strip())[0]: header.get_attribute("aria-expanded") == "true" for header in headers}
    ours = ("Size, loss and L0 against the scores", "Score against size", "Score against L0", "Score of every run", "Lift of every run")
    assert is_open == dict.fromkeys(ours, True) | dict.fromkeys(("embedding", "detection", "fuzzing", "sae", "training", "cost"), False)


def test_the_table_shows_size_loss_explainer_and_the_scores(page, link):
    page.goto(link.replace("compareRunsMode=CHART", "compareRunsMode=TABLE"))
    places = []
    for name in ("d_sae", "loss", "explainer", HEADLINES[0]):
        heading = page.get_by_role("columnheader", name=name, exact=True).first
        heading.wait_for()
        places.append(heading.bounding_box()["x"])
    assert places == sorted(places)
    said = page.inner_text("body")
    assert re.search(r"\n2048\n", said) and "jumprelu-2k/lexical" in said


def test_explanations_of_one_sae_stand_side_by_side_by_latent(page, link):
    page.set_viewport_size({"width": 2200, "height": 2200})
    page.goto(link.replace("viewStateShareKey=size-x-loss", "viewStateShareKey=explanations").replace("=CHART", "=ARTIFACT"))
    page.get_by_text("Mentions of ships at sea").first.wait_for()
    page.get_by_text("the words whale, nation and sea (").first.wait_for()
    said = page.inner_text("body").replace("\n", " ")
    assert "2 matching runs" in said
    assert "Table: interpretations.json" in said and "Group by: latent" in said
    assert "<b>no" in said, "explanations are text, not markup"


def test_a_run_shows_its_note_and_its_interpretations_as_a_table(page, link):
    page.goto(link.replace("compareRunsMode=CHART", "compareRunsMode=TABLE"))
    page.get_by_role("link", name="jumprelu-2k/default").click()
    page.get_by_text("not run, or failed").first.wait_for(state="attached")
    page.get_by_role("tab", name="Artifacts").or_(page.get_by_text("Artifacts", exact=True)).first.click()
    page.get_by_text("interpretations.json").first.click()
    page.get_by_text("View as table").wait_for()
    page.get_by_text("Mentions of ships at").first.wait_for()
    said = page.inner_text("body")
    order = [said.index(f"\n{name}\n") for name in ("latent", "explanation", "embedding", "embedding null")]
    assert order == sorted(order)
