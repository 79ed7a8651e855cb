"""The pages in a real Chromium: nothing overflows or is refused by the policy, words are legible, keys are enough."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.serving import make_server

from explainbench.core.files import write_json
from explainbench.core.params import load_params
from explainbench.core.workspace import Workspace
from mlflow_plugins.app.routes import register
from mlflow_plugins.app.source import Served, Source
from mlflow_plugins.leaderboard import build_leaderboard
from mlflow_plugins.publish import publish_workspace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on this machine"),
]
ROOT = Path(__file__).parents[2]
MARKUP = "<img src=x onerror=alert(1)>"
SYNTHETIC = {
    "boards": "/explainbench/",
    "board": "/explainbench/board?name=T1.stability.methods.lstm",
    "live": "/explainbench/live?task=T1&metric=stability/value",
    "cells": "/explainbench/cell",
    "cell": "/explainbench/cell?id=T1/lstm/shap",
    "lineage": "/explainbench/lineage?id=T1/lstm/shap",
    "compare": "/explainbench/compare?a=T1/lstm/shap&b=T1/lstm/lime",
    "runs": "/explainbench/runs",
    "diff": "/explainbench/diff",
    "api": "/explainbench/api",
    "error": "/explainbench/cell?id=nothing",
}
REAL = {**SYNTHETIC, "board": "/explainbench/board?name=T1.EQI.F.cells"}
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
# Every text that is seen, against the nearest opaque ground behind it: WCAG's ratio, and what it must be.
CONTRAST = """() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number);
    return {rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1}; };
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const lum = rgb => { const [r, g, b] = rgb.map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b; };
  const weak = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, el = node.parentElement, style = getComputedStyle(el);
    if (!node.textContent.trim() || !el.checkVisibility()) continue;
    if (el.closest('.hidden, .skip, title, datalist, option')) continue;
    let ground = null;
    for (let up = el; up && !ground; up = up.parentElement) {
      if (up instanceof SVGElement) continue;
      const c = parse(getComputedStyle(up).backgroundColor); if (c.a === 1) ground = c.rgb;
    }
    const node_box = el.closest('a')?.querySelector('.node');
    if (node_box) ground = parse(getComputedStyle(node_box).fill).rgb;
    const ink = parse(el instanceof SVGElement ? style.fill : style.color).rgb;
    const [hi, lo] = [lum(ink), lum(ground)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (hi + .05) / (lo + .05);
    if (ratio < (large ? 3 : 4.5)) weak.push([node.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
  }
  return weak;
}"""


def source_for(kind: str, make_project, empty_store, folder: Path) -> Source:
    """A small synthetic project with an attack in a name, or this checkout's own results on a copied store."""
    if kind == "real":
        if not (ROOT / "mlflow.db").is_file() or not (ROOT / "cells").is_dir():
            pytest.skip("no executed run in this checkout")
        store = shutil.copy(ROOT / "mlflow.db", folder / "mlflow.db")
        served = Served(ROOT, ROOT, f"sqlite:///{store}")
        return Source(served, served.uri, lambda experiment_id: True, load_params(served.params))
    project = make_project(folder / "project")
    energy = {"dataset": "bqeb_standin", "tasks": {}, "models": [], "methods": [], "metrics": []}
    values = {
        "protocol": "test-1",
        "seed": 42,
        "runs": 2,
        "suites": {"energy": energy},
        "statistics": {"bootstrap": 200},
    }
    write_json(project.workspace.params, values)
    params = load_params(project.workspace.params)
    made = [project.add("shap"), project.add("lime", shift=3.0), project.add("random"), project.add(MARKUP)]
    project.lock(*made)
    shutil.copy(empty_store, project.workspace.output / "mlflow.db")
    publish_workspace(project.workspace, params.statistics)
    build_leaderboard(project.workspace, params)
    (project.workspace.cells / made[1].folder.name / "seeds.json").write_text("{}")  # a link that does not hold
    workspace: Workspace = project.workspace
    return Source(workspace, workspace.tracking_uri, lambda experiment_id: True, params)


@pytest.fixture(scope="module", params=["synthetic", "real"])
def site(request, make_project, empty_store, tmp_path_factory) -> Iterator[tuple[str, dict[str, str]]]:
    source = source_for(request.param, make_project, empty_store, tmp_path_factory.mktemp("browser"))
    app = Flask("beside-mlflow")
    app.add_url_rule("/", "serve", lambda: "<!doctype html><html><body><div id='root'>MLflow</div></body></html>")
    register(source)(app, "")
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}", SYNTHETIC if request.param == "synthetic" else REAL
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(120_000)
    yield page
    context.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_page_is_legible_and_fits(browser, site, width, scheme):
    address, pages = site
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(120_000)
    said, dialogs = [], []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for name, path in pages.items():
        said.clear()
        page.goto(address + path)
        assert page.locator("h1").is_visible(), name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(CONTRAST) == [], (name, scheme)
        assert [one for one in said if "404" not in one] == [], name  # nothing that the policy refused
    assert dialogs == []
    context.close()


def test_two_cells_are_compared_from_a_board_by_keys_alone(page, site):
    address, pages = site
    page.goto(address + pages["board"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    ticked = 0
    for _ in range(80):
        page.keyboard.press("Tab")
        kind, words = page.evaluate("[document.activeElement.type || '', document.activeElement.textContent]")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if kind == "checkbox" and ticked < 2:
            page.keyboard.press("Space")
            ticked += 1
        if ticked == 2 and "Compare the two" in words:
            break
        if ticked == 2 and kind == "checkbox":
            page.get_by_role("button", name="Compare the two ticked cells").focus()
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/explainbench/compare?*")
    assert page.get_by_role("heading", name="Paired test").is_visible()
    assert page.locator("svg.heat").count() == 2


def test_filter_sort_and_download(page, site):
    address, pages = site
    page.goto(address + pages["board"])
    page.get_by_label("Filter").fill("shap" if "stability" in pages["board"] else "lstm")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=*")
    rows = page.locator("table.board tbody tr").count()
    assert rows >= 1
    page.get_by_role("link", name="Mean", exact=True).click()
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Mean")
    assert page.locator("table.board tbody tr").count() == rows
    with page.expect_download() as waiting:
        page.get_by_role("link", name="CSV").click()
    assert len(waiting.value.path().read_text().splitlines()) >= rows + 1


def test_the_broken_link_is_red_and_leads_to_its_reason(page, site):
    address, pages = site
    if pages is REAL:
        pytest.skip("nothing is broken on purpose in this checkout")
    page.goto(f"{address}/explainbench/lineage?id=T1/lstm/lime")
    node = page.locator(".node.broken").first
    assert page.evaluate("e => getComputedStyle(e).stroke", node.element_handle()) == "rgb(179, 38, 30)"
    page.locator("a:has(.node.broken)").first.click()
    assert "#part-" in page.url
    assert page.get_by_text("seeds.json").first.is_visible()


def test_there_and_back_again(page, site):
    address, _ = site
    page.goto(f"{address}/")
    page.get_by_role("link", name="ExplainBench boards").click()
    page.wait_for_url("**/explainbench/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="MLflow").click()
    page.wait_for_url(f"{address}/")
    assert page.get_by_text("MLflow").is_visible()
