"""The ground-truth datasets: generated, validated, described; and the paper's selection among the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explainbench.core.arrays import Floats, Ints
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json, write_bytes, write_json
from explainbench.core.params import Params
from explainbench.core.provenance import sha256_file, sha256_json
from explainbench.core.tabular import TABULAR_MODELS, TabularModel
from explainbench.core.workspace import Workspace
from explainbench.data import _expectations, _ground_truth
from explainbench.data._ground_truth import COLUMNS, PUBLISHED, RULES, VERSION, GroundTruth
from explainbench.stages._ground_truth_params import GroundTruthParams, ground_truth_params

FOLDER = "ground_truth"  # in build/ and in results/


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A dataset cut into training and test rows. train, test: row numbers; explained: those of `test` that methods
    explain, as many of each rule as there are."""

    data: GroundTruth
    train: Ints
    test: Ints
    explained: Ints

    @property
    def background(self) -> Floats:
        """The training rows."""
        return self.data.x[self.train]

    def fit(self, model: str, options: dict[str, Any] | None, seed: int) -> TabularModel:
        """The model, fitted on the training rows: the same bits for the same arguments."""
        own = int(stream(seed, VERSION, self.data.name, model).integers(2**32))
        entry = TABULAR_MODELS.build(model, options)
        return entry.fit(self.background, self.data.y[self.train].astype(np.float64), "classification", own)

    def auc(self, model: TabularModel) -> float:
        """ROC AUC over the test rows."""
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(self.data.y[self.test], model.predict(self.data.x[self.test])))


def split(data: GroundTruth, test_share: float, explained: int, seed: int) -> Split:
    """Shuffle and cut. Raises BadInput where the test part is too small."""
    order = stream(seed, VERSION, data.name, "split").permutation(len(data.y))
    cut = round(len(order) * (1 - test_share))
    train, test = np.sort(order[:cut]), np.sort(order[cut:])
    shuffled = order[cut:]
    place = np.empty(len(shuffled), dtype=int)  # of each test row among those of its rule
    for number in np.unique(data.rule):
        mine = data.rule[shuffled] == number
        place[mine] = np.arange(mine.sum())
    if explained > len(test):
        raise BadInput(f"{explained} rows cannot be explained of {len(test)} test rows; lower `explained`.")
    chosen = np.sort(shuffled[np.argsort(place, kind="stable")[:explained]])
    return Split(data, train, test, chosen)


def generate_all(workspace: Workspace, params: Params) -> dict[str, Any]:
    """Generate every dataset of the suite into build/ground_truth, with its card, and validate what was written.

    Writes results/ground_truth/expectations.json and .html. Raises BadInput where a rule is broken.
    """
    block = ground_truth_params(params)
    tables, cards = [], {}
    for name in block.datasets:
        path = _path(workspace, name)
        _ground_truth.write_ground_truth(path, _ground_truth.generate(name, params.seed, block.rows))
        data = _ground_truth.read_ground_truth(path)
        cards[name] = _card(data, path, block, params.seed)
        write_json(path.with_suffix(".json"), cards[name])
        tables.append(_table(data, block.rows))
    result = {"schema_version": 1, "version": VERSION} | _expectations.validate(FOLDER, tables)
    target = workspace.results / FOLDER / "expectations.html"
    write_json(target.with_suffix(".json"), result)
    described = {"version": VERSION, "source": "generator of this project, after paper 002", "licence": "CC0-1.0"}
    write_bytes(target, _expectations.page(result, described, None).encode())
    sentence = _expectations.failure(result)
    if sentence is not None:
        raise BadInput(f"{sentence} The whole list is in {target}.")
    return cards


def card_of(workspace: Workspace, name: str) -> dict[str, Any]:
    """A generated dataset's card. Raises BadInput where it is not there."""
    path = _path(workspace, name).with_suffix(".json")
    if not path.is_file():
        raise BadInput(f"{path} does not exist; run `explainbench ground-truth generate` first.")
    return read_json(path)


def load_split(workspace: Workspace, params: Params, name: str) -> Split:
    """A generated dataset, checked against its card, and cut. Raises BadInput or Corrupt."""
    block, card, path = ground_truth_params(params), card_of(workspace, name), _path(workspace, name)
    if not path.is_file() or sha256_file(path) != card["sha256"]:
        raise Corrupt(f"{path} is not what its card describes; run `explainbench ground-truth generate` again.")
    if card["inputs_sha256"] != _inputs(block, params.seed):
        raise BadInput(f"{path} was generated with other parameters; run `explainbench ground-truth generate` again.")
    return split(_ground_truth.read_ground_truth(path), block.test_share, block.explained, params.seed)


def performance(name: str, block: GroundTruthParams, seed: int) -> float:
    """Test AUC of a random forest on a member of the pool, generated for this (paper 002, dataset selection)."""
    part = split(_ground_truth.generate(name, seed, block.rows), block.test_share, 2, seed)
    return part.auc(part.fit("random_forest", block.options.get("random_forest"), seed))


def select_datasets(
    workspace: Workspace, params: Params, names: Iterable[str], done: Callable[[str, float], None]
) -> tuple[str, ...]:
    """Score members of the pool and select the 11 at the percentiles of AUC; results/ground_truth/pool.json is resumed.

    The whole pool takes hours; every score is on disk before the next is computed.
    """
    block = ground_truth_params(params)
    path = workspace.results / FOLDER / "pool.json"
    inputs = _inputs(block, params.seed)
    known = read_json(path) if path.is_file() else {}
    scores: dict[str, float] = known["auc"] if known.get("inputs_sha256") == inputs else {}
    wanted = list(names)
    for name in wanted:
        if name not in scores:
            scores[name] = round(performance(name, block, params.seed), 6)
            write_json(path, {"inputs_sha256": inputs, "auc": scores})
        done(name, scores[name])
    return _ground_truth.select({name: scores[name] for name in wanted})


def _path(workspace: Workspace, name: str) -> Path:
    return workspace.output / "build" / FOLDER / f"{name}.parquet"


def _inputs(block: GroundTruthParams, seed: int) -> str:
    """What a dataset and its split follow from."""
    return sha256_json({"version": VERSION, "seed": seed, "rows": block.rows, "test_share": block.test_share})


def _card(data: GroundTruth, path: Path, block: GroundTruthParams, seed: int) -> dict[str, Any]:
    rules = _ground_truth.rules_of(data.name)
    part = split(data, block.test_share, block.explained, seed)
    return {
        "schema_version": 1,
        "name": data.name,
        "version": VERSION,
        "order_of_importance": _ground_truth.ORDER,
        "licence": "CC0-1.0",
        "synthetic": True,
        "published_rank": PUBLISHED.index(rules) + 1 if rules in PUBLISHED else None,
        "seed": seed,
        "inputs_sha256": _inputs(block, seed),
        "sha256": sha256_file(path),
        "rows": len(data.y),
        "columns": COLUMNS,
        "positive": round(float(data.y.mean()), 6),
        "training_rows": len(part.train),
        "explained_rows": part.explained.tolist(),
        "rules": {
            str(number): {
                "text": RULES[number - 1].text,
                "columns": [f"x{c + 1}" for c in RULES[number - 1].columns],
                "tiers": list(RULES[number - 1].tiers),
                "rows": int((data.rule == number).sum()),
                "positive": round(float(data.y[data.rule == number].mean()), 6),
            }
            for number in rules
        },
    }


def _table(data: GroundTruth, rows: int) -> _expectations.Table:
    """Rules of a dataset: schema, row count, scaled and finite columns, labels, strata, and a truth for every row."""
    import pandas as pd

    expect = _expectations._gx().expectations
    frame = pd.DataFrame(data.x, columns=[f"x{c + 1}" for c in range(COLUMNS)])
    frame["missing"] = np.isnan(data.x).sum(axis=1)
    frame["y"], frame["rule"] = data.y, data.rule
    own = {number: len(RULES[number - 1].tiers) for number in _ground_truth.rules_of(data.name)}
    frame["truth_columns_off"] = (data.truth > 0).sum(axis=1) - np.vectorize(own.get)(data.rule)
    rule = _expectations.Rule
    rules = [
        rule(
            "(table)",
            "columns are the 48 features, then missing, label, rule and truth, in order",
            expect.ExpectTableColumnsToMatchOrderedList(column_list=list(frame.columns)),
        ),
        rule("(table)", f"there are {rows} rows", expect.ExpectTableRowCountToEqual(value=rows)),
        rule(
            "missing",
            "no feature of a row is missing",
            expect.ExpectColumnValuesToBeInSet(column="missing", value_set=[0]),
        ),
        rule("y", "labels are 0 or 1", expect.ExpectColumnValuesToBeInSet(column="y", value_set=[0, 1])),
        rule("y", "labels are balanced", expect.ExpectColumnMeanToBeBetween(column="y", min_value=0.4, max_value=0.6)),
        rule(
            "rule",
            "strata are those of the combination",
            expect.ExpectColumnDistinctValuesToEqualSet(column="rule", value_set=sorted(own)),
        ),
        rule(
            "truth_columns_off",
            "the ground truth of a row is the columns of its rule",
            expect.ExpectColumnValuesToBeInSet(column="truth_columns_off", value_set=[0]),
        ),
    ]
    rules += [
        rule(
            f"x{c + 1}",
            "values are from 0 to 1",
            expect.ExpectColumnValuesToBeBetween(column=f"x{c + 1}", min_value=0, max_value=1),
        )
        for c in range(COLUMNS)
    ]
    return _expectations.Table(data.name, frame, rules)
