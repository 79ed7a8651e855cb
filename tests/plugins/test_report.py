"""The report page: whole, escaped, self-contained; every number has a way to its row, every gap a sentence."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from explainbench.analysis.board import SCHEMA, Entry, board_json
from explainbench.analysis.boards import build_boards, scores_from_columns
from explainbench.analysis.normalise import Bound, Bounds
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import write_json
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_json
from explainbench.report.checklist import checklist
from explainbench.report.page import SECTIONS, TEMPLATES, build_report, render
from explainbench.report.pairs import all_pairs
from explainbench.report.source import anchor, read_source

METHODS = ("shap", "lime", "integrated_gradients")
VOID = {"meta", "input", "br", "img", "link", "hr"}
NUMERIC = re.compile(r"^[\u2212<]?\s*\d")


class Page(HTMLParser):
    """What the tests ask of a page: ids, links, rows with numbers, text, and that its tags are balanced."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.ids, self.targets, self.external, self.open, self.rows, self.tags = [], [], [], [], [], []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("href", "src", "action", "poster", "data"):
            if name in given:
                (self.targets if given[name].startswith("#") else self.external).append(given[name])
        if tag == "tr":
            self.rows.append({"numbers": [], "links": [], "id": given.get("id")})
        if tag == "a" and "tr" in self.open and given.get("href", "").startswith("#"):
            self.rows[-1]["links"].append(given["href"][1:])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        if "style" in self.open or "script" in self.open:
            return
        self.text += data
        if self.open and "td" in self.open and NUMERIC.match(data.strip()):
            self.rows[-1]["numbers"].append(data.strip())


@pytest.fixture
def params():
    return Params.model_validate(
        {
            "protocol": "test-1",
            "seed": 42,
            "runs": 2,
            "statistics": {"bootstrap": 200},
            "suites": {
                "energy": {
                    "dataset": "bqeb_standin",
                    "tasks": {
                        "T1": {"target": "load_mw", "context": 96, "horizon": 4, "segment": 8, "windows_per_regime": 4}
                    },
                    "models": ["lstm"],
                    "methods": [*METHODS],
                    "baselines": ["random"],
                    "metrics": ["faithfulness", "fidelity", "stability", "human_interpretability"],
                }
            },
        }
    )


def entry(stored):
    table = stored.scores()
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    windows, scores, skipped = scores_from_columns(columns)
    card = stored.record.spec.method_card
    return Entry(
        stored.cell, stored.record.cell_id, stored.digest, "test-1", windows, scores, skipped,
        card["category"] == "baseline", card["deterministic"], "trained",
    )  # fmt: skip


def write_boards(project, params, entries, **changes):
    bounds = Bounds(version="test-1", tasks={"T1": {"faithfulness": Bound(hi=80.0)}})
    boards = [board_json(board) for board in build_boards(entries, params.statistics, 42, bounds)] if entries else []
    for row in (row for board in boards for row in board["rows"]):
        row["verified"] = True
    lock = json.loads(project.workspace.lock.read_text())["cells"] if project.workspace.lock.is_file() else {}
    document = {
        "schema": SCHEMA, "suite": "energy", "protocol": "test-1", "inputs_sha256": sha256_json(lock), "verified": True,
        "flagged": {}, "failed": {}, "missing": [], "banner": "Synthetic data.", "boards": boards,
    }  # fmt: skip
    write_json(project.workspace.results / "leaderboard.json", document | changes)
    grid = [
        {
            "cell": f"energy/T1/lstm/{name}",
            "baseline": name == "random",
            "status": "scored",
            "reason": None,
            "cell_id": None,
        }
        for name in (*METHODS, "random")
    ]
    write_json(project.workspace.results / "grid.json", grid)


@pytest.fixture
def finished(project, params):
    """A project with four cells and their boards."""
    stored = [project.add(method, shift=4.0 * at) for at, method in enumerate((*METHODS, "random"))]
    project.lock(*stored)
    write_boards(project, params, [entry(one) for one in stored])
    return project


def page_of(project, params):
    html = render(read_source(project.workspace, params))
    return html, Page(html)


def test_the_page_is_whole_and_its_links_lead_somewhere(finished, params):
    html, page = page_of(finished, params)
    assert html.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    assert set(SECTIONS) <= set(page.ids)
    broken = {target[1:] for target in page.targets} - set(page.ids)
    assert not broken
    assert [tag for tag, _ in page.tags].count("h1") == 1
    assert ("html", {"lang": "en"}) in page.tags


def test_nothing_is_fetched(finished, params):
    html, page = page_of(finished, params)
    assert page.external == []
    for word in ("http://", "https://", "url(", "@import", "fetch(", "XMLHttpRequest", "import("):
        assert word not in html, word


def test_no_number_without_a_way_to_its_row(finished, params):
    _, page = page_of(finished, params)
    assert sum(len(row["numbers"]) for row in page.rows) > 60
    known = set(page.ids)
    without = [
        row["numbers"] for row in page.rows if row["numbers"] and not row["id"] and not set(row["links"]) & known
    ]
    assert without == []


def test_a_cell_says_how_it_is_audited(finished, params):
    html, page = page_of(finished, params)
    source = read_source(finished.workspace, params)
    for reference in source.references.values():
        assert reference.anchor in page.ids
        assert reference.cell_id in html
        assert reference.record_digest in html
    assert "explainbench audit T1/lstm/shap --replay" in page.text
    assert f"tags.explainbench.cell_id = '{next(iter(source.references.values())).cell_id}'" in page.text


def test_pictures_are_drawn_from_what_is_there(finished, params):
    html, page = page_of(finished, params)
    classes = [given.get("class", "") for tag, given in page.tags if tag == "svg"]
    assert classes.count("radar") == 4  # three methods and one model
    assert classes.count("curve") == 3  # one window per regime
    traces = [given["data-entry"] for tag, given in page.tags if tag == "g" and "data-entry" in given]
    assert sorted(traces) == sorted([*METHODS, *["lstm"] * 3])
    assert 'class="bars"' in html  # the intervals


def test_same_files_same_bytes(finished, params, tmp_path):
    first = build_report(finished.workspace, params, tmp_path / "a.html").read_bytes()
    assert build_report(finished.workspace, params, tmp_path / "b.html").read_bytes() == first
    assert str(finished.workspace.root).encode() not in first
    assert len(first) < 1_000_000


def test_markup_in_names_and_reasons_is_text(finished, params):
    path = finished.workspace.results / "leaderboard.json"
    evil = "<img src=x onerror=alert(1)>"
    document = json.loads(path.read_text())
    document["banner"] = evil
    document["failed"] = {evil: evil}
    for board in document["boards"]:
        board["notes"].append(evil)
        board["title"] = evil
        for row in board["rows"]:
            row["entry"] = evil
            row["reason"] = evil
    write_json(path, document)
    html, page = page_of(finished, params)
    assert evil not in html
    assert evil in page.text
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert not [given for _, given in page.tags if any(name.startswith("on") for name in given)]


def test_ids_hold_nothing_but_letters_and_stay_different():
    assert anchor("cell", "energy/T1/lstm/shap") == "cell-energy-T1-lstm-shap"
    assert re.fullmatch(r"[A-Za-z0-9.-]+", anchor("cell", '"><script>'))
    assert anchor("cell", "a<b") != anchor("cell", "a>b")


def test_without_boards_a_sentence_and_exit(project, params):
    with pytest.raises(BadInput, match="run `explainbench leaderboard` first"):
        read_source(project.workspace, params)
    write_json(project.workspace.results / "leaderboard.json", [1])
    with pytest.raises(Corrupt, match="is not a leaderboard"):
        read_source(project.workspace, params)
    write_boards(project, params, [], schema=1)
    with pytest.raises(Corrupt, match="another version of explainbench; run `explainbench leaderboard`"):
        read_source(project.workspace, params)


@pytest.mark.parametrize("name", ["checks", "contexts"])
@pytest.mark.parametrize("content", [{}, [], {"boards": 3}])
def test_a_stages_file_of_another_shape_is_named(project, params, name, content):
    write_boards(project, params, [])
    write_json(project.workspace.results / f"{name}.json", content)
    with pytest.raises(Corrupt, match=rf"{name}.json is not what `explainbench {name}` writes; run it again"):
        read_source(project.workspace, params)


def test_no_finished_cells_is_a_page_of_sentences(project, params):
    write_boards(project, params, [])
    _, page = page_of(project, params)
    for sentence in (
        "No board of T1 holds a number yet",
        "There are no boards of T1",
        "No example: no finished cell of lstm on T1",
        "The ablations have not run",
        "Task T3 has not run",
        "No model card of T1 holds the coverage",
        "No cell is finished yet",
    ):
        assert sentence in page.text, sentence
    assert {target[1:] for target in page.targets} <= set(page.ids)


def changed(one, change):
    scores = {
        name: replace(score, raw=change(score.raw), value=None if score.value is None else change(score.value))
        for name, score in one.scores.items()
    }
    return replace(one, windows=one.windows[: len(scores["stability"].raw)], scores=scores)


@pytest.mark.parametrize("case", ["one window", "constant", "nothing defined"])
def test_thin_results_are_shown_with_their_reason(finished, params, case):
    source = read_source(finished.workspace, params)
    entries = [entry(one) for one in source.cells.values()]
    change, words = {
        "one window": (lambda values: values[1:2], "no interval"),
        "constant": (lambda values: np.full(12, 0.5), "0.500\u20130.500"),
        "nothing defined": (lambda values: values * np.nan, "defined on only 0 of 12 windows"),
    }[case]
    entries = [changed(one, change) for one in entries]
    write_boards(finished, params, entries)
    _, page = page_of(finished, params)
    assert words in page.text
    assert not re.search(r"\bnan\b", page.text)


def verdicts(project, params):
    return {tick.item: tick.finding for tick in checklist(read_source(project.workspace, params))}


def test_ticks_come_from_files(finished, params):
    found = verdicts(finished, params)
    for item in (
        "Checksums of every data file",
        "One protocol version and seed for all cells",
        "All registered pairs scored",
        "Every artifact has its checksum",
        "Every record is in the trust root",
        "Runs and seeds of stochastic methods recorded",
        "Code of every cell identified, and still here",
        "Board rows agree with the trust root",
        "Every mean over windows has a bootstrap interval",
    ):
        assert found[item].verdict == "yes", (item, found[item])
    assert found["Panel's answers archived with the score"].verdict == "open"
    assert found["Native quantiles or wrapper, per model"].verdict == "open"
    assert found["Dependencies pinned and hashed"].verdict == "no"  # this project has no requirements.lock


def spoil_artifact(project):
    path = next(project.workspace.cells.glob("*shap*")) / "seeds.json"
    path.write_text(path.read_text() + " ")


def spoil_data(project):
    (project.workspace.data / "bqeb_standin" / "series.csv").write_text("other")


def spoil_lock(project):
    document = json.loads(project.workspace.lock.read_text())
    first = next(iter(document["cells"]))
    document["cells"][first] = "0" * 64
    project.workspace.lock.write_text(json.dumps(document))


def spoil_weights(project):
    (project.workspace.models / "T1" / "lstm" / "model.safetensors").write_bytes(b"other")


@pytest.mark.parametrize(
    ("spoil", "item"),
    [
        (spoil_artifact, "Every artifact has its checksum"),
        (spoil_data, "Checksums of every data file"),
        (spoil_lock, "Every record is in the trust root"),
        (spoil_lock, "Board rows agree with the trust root"),
        (spoil_weights, "Model weights have their checksum"),
    ],
)
def test_a_tick_falls_with_its_file(finished, params, spoil, item):
    spoil(finished)
    found = verdicts(finished, params)[item]
    assert found.verdict == "no"
    assert str(finished.workspace.root) not in found.evidence


def test_a_tick_falls_with_the_protocol(finished, params):
    other = params.model_copy(update={"seed": 43, "runs": 5})
    found = verdicts(finished, other)
    assert found["One protocol version and seed for all cells"].verdict == "no"
    assert found["Runs and seeds of stochastic methods recorded"].verdict == "no"


UNCERTAINTY = {
    "quantiles": "split_conformal", "origins": 90, "levels": [0.1, 0.5, 0.9], "coverage": [0.2, 0.5, 0.8],
    "coverage_low": [0.1, 0.4, 0.7], "coverage_high": [0.3, 0.6, 0.9], "awareness": 0.9333,
    "awareness_low": 0.9, "awareness_high": 0.95,
}  # fmt: skip


def test_coverage_by_level_becomes_a_diagram(finished, params):
    path = finished.workspace.models / "T1" / "lstm" / "card.json"
    write_json(path, json.loads(path.read_text()) | {"uncertainty": UNCERTAINTY})
    _, page = page_of(finished, params)
    (diagram,) = [given for tag, given in page.tags if tag == "svg" and given.get("class") == "diagram"]
    assert diagram["aria-label"] == "10% level, 20% covered; 50% level, 50% covered; 90% level, 80% covered"
    assert "conformal wrapper" in page.text
    assert "0.933 0.900\u20130.950, 90 origins" in " ".join(page.text.split())


def estimate(value, low=None, high=None):
    return {"value": value, "low": low, "high": high, "n": 12}


CHECKS = {
    "weights": [
        {"task": "T1", "composite": "EQI", "components": ["faithfulness", "fidelity"], "default": [0.5, 0.5],
         "entries": 3, "cells": [],
         "points": [{"weights": [0, 1], "tau": -0.3}], "lowest_tau": -0.333, "reason": "",
         "shares": [{"component": "faithfulness", "share": 0.7, "without": 0.1, "tau": 1.0}]},
        {"task": "T1", "composite": "EDTS", "lowest_tau": None, "reason": "actionability is pending", "shares": []},
    ],
    "masks": [
        {"task": "T1", "model": "lstm", "operators": ["climatology", "mean"], "methods": [*METHODS], "left_out": [],
         "w": 0.31, "low": 0.2, "high": 0.4, "supported": False, "n": 12, "taus": {}, "control_tau": 0.1, "reason": ""}
    ],
    "panel": [
        {"task": "T1", "model": "lstm", "methods": [
            {"method": "shap", "off_diagonal": estimate(0.97, 0.7, 1.2), "diagonal": estimate(1.06),
             "self_preference": estimate(0.09, 0.02, 0.16), "table": []}]}
    ],
    "depths": [{"task": "T1", "model": "lstm", "default": 3, "n": 12, "points": [{"share": 0.1, "k": 2, "tau": 0.5}]}],
    "segments": [{"task": "T1", "model": "lstm", "default": 8, "n": 12, "points": [{"segment": 4, "tau": None}]}],
    "baselines": [
        {"task": "T1", "model": "lstm", "metric": "faithfulness_skill", "baseline": "random", **estimate(0.1, 0.0, 0.2),
         "place": 4, "methods": 3, "above": ["shap"], "below": [], "reason": ""}
    ],
    "diagnosticity": [
        {"task": "T1", "metric": "faithfulness", **estimate(0.86, 0.8, 0.9), "cells": 3, "reason": ""},
        {"task": "T1", "metric": "fidelity", **estimate(None), "cells": 0, "reason": "no random ranking"},
    ],
    "randomisation": [
        {"task": "T1", "model": "lstm", "method": "shap", **estimate(0.8, 0.7, 0.9), "verdict": "ignores the weights",
         "reason": ""},
        {"task": "T1", "model": "lstm", "method": "lime", **estimate(None), "verdict": "", "reason": "no explanation"},
    ],
    "planted_methods": [
        {"planted": "linear_ar", "method": "shap", "baseline": False, "correlation": estimate(1.0),
         "recall": estimate(1.0), "null_share": estimate(0.0), "error": 5e-15, "exact": True, "reason": ""},
        {"planted": "seasonal", "reason": "the context is shorter than a day"},
    ],
    "planted_metrics": [{"metric": "stability", **estimate(0.5, 0.5, 0.5), "reason": ""}],
    "disagreement": [
        {"task": "T1", "cells": 3, "metrics": ["fidelity", "stability"], "effective": 1.6, "effective_of": [],
         "pairs": [{"metrics": ["fidelity", "stability"], "rho": -0.4, "low": -0.9, "high": 0.3, "n": 3}]}
    ],
    "regimes": [
        {"task": "T1", "model": "lstm", "metric": "stability", "methods": {"shap": {"peak": 0.7, "ramp": 0.8}},
         "n": {"peak": 4}, "statistic": 1.2, "p": 0.01, "p_holm": 0.02,
         "level": {"branch": "anova", "why": "", "p": 0.25, "p_holm": 0.5, "pairs": [
             {"one": "off_peak", "other": "ramp", "delta": 0.4, "low": 0.1, "high": 0.7, "p": 0.01, "p_holm": 0.03}
         ]}, "reason": ""}
    ],
    "aliases": [{"task": "T1", "model": "lstm", "compared": [*METHODS], "classes": ["lime=shap"]}],
    "determinism": [
        {"task": "T1", "model": "lstm", "n": 3, "twice": True, "alone": True, "reordered": False, "reloaded": True,
         "scale_equivariance": 0.1, "methods": [{"method": "shap", "declared": "stochastic", "ok": False}]}
    ],
}  # fmt: skip


def test_every_check_is_told_with_its_numbers_and_its_gaps(finished, params):
    write_json(finished.workspace.results / "checks.json", CHECKS)
    _, page = page_of(finished, params)
    text = " ".join(page.text.split())
    for words in (
        "\u22120.33", "faithfulness 70%", "T1 EDTS: actionability is pending", "no single ranking, control 0.10",
        "Kendall's W over 2 masks is 0.31 [0.20, 0.40]: no single faithfulness ranking is supported",
        "off-diagonal 0.97 (0.70\u20131.20)", "place 4 among 3 methods; significantly above it: shap",
        "T1 fidelity: no random ranking", "0.80 ignores", "finds 100%, error 5e-15",
        "the context is shorter than a day", "1.6 independent metrics of 2", "\u22120.90 to 0.30",
        "1 of 1 below 0.05", "off peak over ramp 0.40* (0.10\u20130.70)", "p 0.5", "1 of 1 models have such a class",
        "lime=shap", "0 of 1, not shap", "ignores the weights",
    ):  # fmt: skip
        assert words in text, words
    known = set(page.ids)
    assert all(row["id"] or set(row["links"]) & known for row in page.rows if row["numbers"])


def test_contexts_collapse_over_methods_only_where_they_agree(finished, params):
    rows = [
        {"model": "lstm", "method": method, "context": context, "gaps": {"act_valid": "no valid one"},
         "values": {"act": 0.4, "act_valid": None, "dss": 0.2 * at, "edts": 0.6, "eei": 0.5 + 0.1 * at}}
        for at, method in enumerate(METHODS, 1)
        for context in ("home", "building")
    ]  # fmt: skip
    share = {"context": 0.0, "model": 0.0, "method": 0.9, "interaction": 0.1}
    named = {"latency_seconds": {"value": 1.0, "source": "illustrative"}, "memory_mb": {"value": 64, "source": "a"}}
    contexts = [
        {"name": name, "title": name, **named, "energy_joules": {"value": 1, "source": "a"}, "needs": []}
        for name in ("home", "building")
    ]
    shares = {"act": {"reason": "act is the same everywhere"}, "dss": share}
    document = {
        "contexts": contexts,
        "note": "illustrative",
        "tasks": {"T1": {"rows": rows, "variance_shares": shares}},
    }
    write_json(finished.workspace.results / "contexts.json", document)
    _, page = page_of(finished, params)
    section = page.text[page.text.index("Task T3 holds the model") : page.text.index("The ablations have not run")]
    assert section.count("all methods") == 3  # Act, Act among valid, EDTS
    assert section.count("0.600") == 3 * 2  # in both contexts: EDTS, DSS of the third method, EEI of the first
    assert "act is the same everywhere" in section
    assert "90%" in section


def test_templates_are_packaged(root):
    declared = (root / "pyproject.toml").read_text()
    assert '"**/*.j2"' in declared
    assert all(path.suffix == ".j2" for path in TEMPLATES.rglob("*") if path.is_file())


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_have_contrast(theme):
    style = (TEMPLATES / "style.css.j2").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\n\s*\}", style, flags=re.S)[:2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[0]))
    if theme == "dark":
        found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[1]))
    text = [
        ("ink", "bg"), ("ink", "surface"), ("ink", "sunk"), ("ink", "heat"), ("muted", "bg"), ("muted", "surface"),
        ("accent", "bg"), ("accent", "surface"), ("accent", "accent-soft"), ("warn-ink", "warn"), ("bad", "bad-soft"),
        ("bad", "surface"), ("mast-ink", "mast"), ("mast-soft", "mast"), ("surface", "accent"),
    ]  # fmt: skip
    for one, other in text:
        assert contrast(found[one], found[other]) >= 4.5, (one, other)
    for name in [f"k{i}" for i in range(8)] + ["plus", "minus", "plain", "lead", "grey"]:
        assert contrast(found[name], found["surface"]) >= 3.0, name


def test_the_report_is_logged_once_per_state(finished, params, tracking):
    from mlflow_plugins._mlflow import open_store
    from mlflow_plugins.documents import publish_documents

    workspace = finished.workspace
    assert publish_documents(workspace) == 0  # there is none yet
    path = build_report(workspace, params)
    assert publish_documents(workspace) == 1
    assert publish_documents(workspace) == 0
    path.write_bytes(path.read_bytes() + b"<!-- changed -->")
    assert publish_documents(workspace) == 1
    store = open_store(workspace.tracking_uri, "explainbench-energy")
    runs = list(store.runs("tags.explainbench.kind = 'report'"))
    assert sorted(run.data.tags["explainbench.superseded"] for run in runs) == ["false", "true"]
    (current,) = [run for run in runs if run.data.tags["explainbench.superseded"] == "false"]
    assert store.artifact(current, "report.html").read_bytes() == path.read_bytes()


def test_all_pairs_are_drawn_and_told(finished, params):
    _, page = page_of(finished, params)
    boards = json.loads((finished.workspace.results / "leaderboard.json").read_text())["boards"]
    tested = [board for board in boards if board["pairs"]]
    drawn = [given for tag, given in page.tags if tag == "div" and "data-pairs" in given]
    assert len(drawn) == len(tested) > 2
    for given in drawn:
        m = len(given["data-names"].split(";"))
        assert len(given["data-pairs"].split()) == m * (m - 1) // 2
    names = {";".join(board["ranked"]).replace("_", " ") for board in tested}
    assert {given["data-names"] for given in drawn} == names
    family = next(board["family"] for board in tested if board["view"] == "methods")
    assert f"{family['name']}; {family['size']} on 1 board" in page.text


@pytest.mark.parametrize(
    ("p", "effect", "shade"),
    [(0.04, 0.4, "q1"), (0.04, 0.5, "q2"), (0.04, 0.9, "q4"), (0.06, 0.9, "q0"), (0.01, -0.3, "qx")],
)
def test_a_pair_is_shaded_by_its_effect_where_it_differs(p, effect, shade):
    board = {"ranked": ["a", "b"], "alpha": 0.05, "pairs": {"p_holm": [p], "effect": [effect]}}
    found = all_pairs(board)
    assert found is not None
    assert f'class="{shade}" d="M1 0h1v1h-1z"' in found.picture
    assert (found.apart, found.count, found.numbers) == (p < 0.05, 1, f"{1000 * p:.0f},{100 * effect:.0f}")
    assert all_pairs(board | {"pairs": None}) is None


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_in_a_browser(finished, params, tmp_path, width, scheme):
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on PATH")
    path = build_report(finished.workspace, params, tmp_path / "report.html")
    said = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width  # nothing sticks out
        page.locator(".pairs summary:visible").first.click()
        page.locator(".pairs svg:visible").first.locator("path").first.hover(force=True)
        assert re.fullmatch(
            r".+ against .+: p [=<] [\d.]+ \(Holm\), effect -?[\d.]+", page.locator("output:visible").first.inner_text()
        )
        link = page.locator("#boards table a").first
        link.click()
        drawer = page.locator("#drawer")
        assert drawer.is_visible()
        assert "explainbench audit T1/lstm/" in drawer.inner_text()
        page.keyboard.press("Escape")
        assert not drawer.is_visible()
        tabs = page.locator("#boards [role=tablist][aria-label=Score] [role=tab]")
        tabs.nth(0).focus()
        page.keyboard.press("ArrowRight")
        assert tabs.nth(1).get_attribute("aria-selected") == "true"
        assert page.locator("#boards [role=tabpanel] [role=tabpanel]:visible").count() == 1
        head = page.locator(".heatmap thead tr:last-child th").nth(3)  # ESS
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        column = page.locator(".heatmap tbody tr td:nth-child(4)").all_inner_texts()
        assert column == sorted(column, reverse=True)
        page.locator("[data-trace=lstm]:visible").first.click()
        assert page.locator(".choosing g.t.on:visible").count() == 3
        page.locator("#filter").fill("T1 lime")
        assert page.locator("#ledger tbody tr:visible").count() == 1
        page.goto(f"{path.as_uri()}#tick-1")
        browser.close()
    assert said == []
