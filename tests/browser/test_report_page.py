"""The report in a real browser, opened from disk: its charts answer to the pointer, it asks for nothing, and only its own scripts run."""

import pytest

from latentry import contracts, store
from latentry.explorer.report import write_report
from made_up_study import make_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("study"), n_latents=15, widths={"1k": 1024, "2k": 2048})
    tables = {name: store.read_table(study / "data" / "comparison", contracts.COMPARISON, name) for name in contracts.COMPARISON.tables}
    write_report(data=study / "data", tables=tables, settings={}, out=study / "report" / "index.html")
    return study / "report" / "index.html"


@pytest.fixture
def page(browser, report):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.asked, page.faults = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: page.faults.append(dialog.message) or dialog.dismiss())
    page.goto(report.as_uri())
    yield page
    page.close()


def live(page, name):
    place = page.locator(f"[data-chart={name}]")
    place.scroll_into_view_if_needed()
    place.locator(".vega-embed svg").wait_for()
    return place


def test_every_chart_is_drawn_anew_without_asking_for_anything(page, report):
    names = page.eval_on_selector_all("[data-chart]", "places => places.map(place => place.dataset.chart)")
    for name in names:
        live(page, name)
    assert len(names) == 9
    assert page.asked == [report.as_uri()] and page.faults == []


@pytest.mark.parametrize("name", ["score_by_width", "score_by_fvu"])
def test_a_point_under_the_pointer_tells_its_sae_score_interval_and_n(page, name):
    live(page, name).locator(".mark-symbol[aria-roledescription='symbol mark container'] path[aria-roledescription=point]").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    told = page.inner_text("#vg-tooltip-element")
    assert "topk-1k" in told
    assert all(word in told for word in ("SAE", "score", "95 % interval", " to ", "n latents"))


def test_what_stands_in_the_page_unasked_does_not_run(browser, report, tmp_path):
    hole = (
        '<img src="x" onerror="document.title = 1"><script>document.title = 2</script><a id="a" href="javascript:document.title = 3">a</a>'
    )
    broken = tmp_path / "index.html"
    broken.write_text(report.read_text(encoding="utf-8").replace("<main>", f"<main>{hole}"), encoding="utf-8")
    page = browser.new_page()
    page.goto(broken.as_uri())
    page.click("#a")
    page.wait_for_timeout(200)
    assert page.title() == "latentry: SAEs compared"
    page.close()
