"""The documentation's site, opened from disk: its search finds pages, and nothing is asked of the net."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def test_search_finds_a_page_from_disk_without_a_network(browser, site):
    page, asked, faults = browser.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.click("input[name=query]")
    page.keyboard.type("undersampled")
    page.wait_for_selector(".md-search-result__item")
    titles = page.locator(".md-search-result__item h1").all_inner_texts()
    assert "Troubleshooting by symptom" in titles
    assert [url for url in asked if not url.startswith("file:")] == []
    assert faults == []
