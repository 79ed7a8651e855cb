"""One cell of the agnostic suite: a model of a table, a forecaster, or the stored explanations of a forecaster.

Reads and writes nothing: this module's imports are the code on a cell's path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explainbench.analysis.set_scores import times_drawn
from explainbench.core.arrays import Bools, Floats, Ints
from explainbench.core.cell import Cell, CellResult, Score, Skipped, stream
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.masking import Groups
from explainbench.core.tabular import TABULAR_MODELS, Kind, TabularModel
from explainbench.core.windows import Windows
from explainbench.data._public_tables import Split
from explainbench.methods._tabular._windowed import explained_as_windows
from explainbench.methods.shap import Shap
from explainbench.metrics import eamex
from explainbench.models._tabular._metered import metered, per_explanation
from explainbench.stages._agnostic_params import AgnosticParams
from explainbench.stages.cell import Bench

METHOD = "eamex"  # of a cell that judges the model itself, not its explanations by one method
CHUNK = 2048  # windows built at a time: bounds memory, has no influence on bits


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A cell's result. arrays: see `docs/agnostic.md`; origin, regime: (n,) of the rows; features: (d,) names;
    left_out: rows without an explanation; counters: rows the model was asked about, and with gradients; model_sha256:
    of a model fitted here, else empty; model_seconds: inside the model, a measurement.
    """

    result: CellResult
    arrays: dict[str, NDArray[Any]]
    origin: NDArray[Any]
    regime: NDArray[Any]
    features: tuple[str, ...]
    left_out: int = 0
    counters: tuple[float, float] = (0.0, 0.0)
    model_sha256: str = ""
    model_seconds: float = 0.0


def judge_table(options: AgnosticParams, seed: int, cell: Cell, kind: Kind, split: Split) -> Judged:
    """All nine metrics of a model fitted on a table, on the first `rows` test rows. Raises BadInput."""
    entry = TABULAR_MODELS.build(cell.model, options.models[cell.model])
    fitted = entry.fit(split.train_x, split.train_y.astype(np.float64), kind, seed)
    model, meter = metered(fitted)
    x, y = split.test_x[: options.rows], split.test_y[: options.rows]
    explained = min(options.explained, len(x))
    shap = Shap(coalitions=options.coalitions)
    rng = stream(seed, cell.suite, cell.task, "explain")
    local = np.abs(explained_as_windows(shap, model, x[:explained], split.train_x, rng).attribution)
    seen = local.sum(axis=1) > 0
    found = eamex.study(
        _labelled(model) if kind == "classification" else model.predict, x, y, kind,
        score=model.predict, train=split.train_x, local=local[seen] if seen.sum() > 1 else None, top=options.top,
        points=options.points, repeats=options.repeats, bootstraps=options.bootstraps,
        rng=stream(seed, cell.suite, cell.task, "permute"),
    )  # fmt: skip
    regime = eamex.groups_of(y, kind)
    again = times_drawn(regime[:explained], options.resamples, stream(seed, cell.suite, cell.task, "explained rows"))
    result, arrays = _scored(options, seed, cell, found, regime, again[:, seen])
    arrays |= {"importance": local, "regime": regime[:explained], "row_regime": regime}
    return Judged(
        *(result, arrays, np.arange(len(x)), regime, split.names),
        left_out=int((~seen).sum()),
        counters=per_explanation(meter, 1),
        model_sha256=fitted.digest(),
        model_seconds=meter.seconds,
    )


def judge_forecaster(
    options: AgnosticParams, seed: int, cell: Cell, bench: Bench, learning: Windows, every: Groups
) -> Judged:
    """Seven metrics of a forecaster as a black box; features: all groups of inputs; groups of rows: the regimes.

    A feature's value is the mean of its inputs. Permuted: a group's inputs come from another window; partial
    dependence: they are shifted together; the surrogate sees the means. every: the groups of all channels; one that the
    model does not see has importance 0. learning: the windows on which the surrogate is fitted.
    """
    windows, model, seen = bench.data.windows, bench.model, bench.masker.groups
    before = replace(model.meter)
    n, functional = len(windows), model.functional
    y = np.asarray(functional(windows.target), dtype=np.float64)
    output = bench.shared("output", lambda: model(windows.context))
    sources = np.repeat(np.arange(n, dtype=np.float64)[:, None], len(seen), axis=1)
    importance = eamex.permutation_importance(
        lambda rows: _in_chunks(bench, rows, _swapped),
        *(sources, y, "regression", windows.regime, options.repeats),
        rng=stream(seed, cell.suite, cell.task, "permute"),
    )
    means = seen.average(windows.context)
    top = [int(name) for name in importance.top(min(options.top, len(seen)))]
    curves = eamex.partial_dependence(
        lambda rows: _in_chunks(bench, rows, _shifted),
        np.column_stack([means, np.arange(n)]),
        top,
        options.forecast_points,
    )
    curves = [replace(curve, name=seen.names[column]) for curve, column in zip(curves, top, strict=True)]
    taught = model(learning.context)
    tree = eamex.fit_surrogate(every.average(learning.context), taught, "regression")
    overlaps = eamex.surrogate_overlaps(
        *(every.average(learning.context), taught, "regression", options.bootstraps),
        original=tree,
        rng=stream(seed, cell.suite, cell.task, "surrogate"),
    )
    shallow = tree.predict(every.average(windows.context))
    missing: dict[str, str] = dict.fromkeys(eamex.LOCAL, "judged per explanation method, in the cells of the model")
    whole = _on_all(importance, seen.names, every.names)
    found = eamex.Study("regression", whole, curves, y, output, shallow, overlaps, None, missing)
    result, arrays = _scored(options, seed, cell, found, windows.regime, np.empty((options.resamples, 0)))
    arrays |= {"row_regime": windows.regime.astype(str)}
    return Judged(
        *(result, arrays, windows.origin, windows.regime, every.names),
        counters=(float(model.meter.evaluations - before.evaluations), 0.0),
        model_seconds=model.meter.seconds - before.seconds,
    )


def judge_explanations(
    options: AgnosticParams,
    seed: int,
    cell: Cell,
    stored: Mapping[str, NDArray[Any]],
    groups: Sequence[str],
    every: Groups,
) -> Judged:
    """The five metrics that need nothing but explanations, of one method's explanations of a forecaster.

    stored: `explanations.npz` of the energy cell, groups: its features. Windows without an explanation are left out.
    Raises BadInput for features of another segmentation, NotApplicable where fewer than two windows are left.
    """
    foreign = [name for name in groups if name not in every.names]
    if foreign:
        raise BadInput(
            f"the explanations behind {cell} are over {foreign[0]}, which is no group of the task now; evaluate the "
            "energy suite again."
        )
    regime = stored["regime"].astype(str)
    importance = np.zeros((len(regime), len(every)))
    importance[:, [every.names.index(name) for name in groups]] = np.abs(stored["importance"])
    seen: Bools = np.isfinite(importance).all(axis=1) & (importance.sum(axis=1) > 0)
    if seen.sum() < 2:
        raise NotApplicable(f"{int(seen.sum())} of {len(seen)} windows are explained, and 2 are needed")
    local = eamex.LocalImportance.of(importance[seen], regime[seen])
    times = times_drawn(regime, options.resamples, stream(seed, cell.suite, cell.task, "rows"))
    drawn = local.resampled(times[:, seen], options.alpha)
    scores = {name: _score(name, value) for name, value in local.scores(options.alpha).items()}
    reason = "needs the model, not its explanations: see the cell of method eamex"
    skipped = {name: Skipped("not_applicable", reason) for name in eamex.DEFINITIONS["paper"] if name not in scores}
    arrays: dict[str, NDArray[Any]] = {"draws": _stacked(drawn), "draw_names": np.array(sorted(drawn))}
    arrays |= {"importance": importance, "regime": regime, "row_regime": regime}
    result = CellResult(cell, scores, skipped)
    return Judged(result, arrays, stored["origin"], regime, every.names, left_out=int((~seen).sum()))


def _scored(
    options: AgnosticParams, seed: int, cell: Cell, found: eamex.Study, regime: NDArray[Any], local_times: Floats
) -> tuple[CellResult, dict[str, NDArray[Any]]]:
    """Scores, and what is stored beside them. local_times: resamples of the rows that are explained one by one."""
    values, reasons = found.scores(options.alpha)
    times = times_drawn(regime, options.resamples, stream(seed, cell.suite, cell.task, "rows"))
    rng = stream(seed, cell.suite, cell.task, "bootstraps")
    drawn = found.resampled(times, local_times, rng, options.alpha)
    arrays: dict[str, NDArray[Any]] = {"draws": _stacked(drawn), "draw_names": np.array(sorted(drawn))}
    assert found.importance is not None
    arrays |= {
        "permutation": found.importance.overall,
        "permutation_by_group": np.stack(list(found.importance.by_group.values())),
        "permutation_groups": np.array(list(found.importance.by_group)),
        "curve_names": np.array([curve.name for curve in found.curves]),
    }
    for kind in ("grid", "average"):
        lines = [getattr(curve, kind) for curve in found.curves]
        padded = np.full((len(lines), max(map(len, lines))), np.nan)
        for line, row in zip(lines, padded, strict=True):
            row[: len(line)] = line
        arrays[f"curve_{kind}"] = padded
    scores = {name: _score(name, value) for name, value in values.items()}
    skipped = {name: Skipped("not_applicable", reason) for name, reason in reasons.items()}
    return CellResult(cell, scores, skipped), arrays


def _score(name: str, raw: float) -> Score:
    """The metric as it is, and turned and scaled to [0, 1] by its range, so that higher is better."""
    return Score(np.array([raw]), np.array([eamex.definition(name).scaled(raw)]))


def _stacked(drawn: Mapping[str, Floats]) -> Floats:
    """(b, m), metrics by name."""
    return np.column_stack([drawn[name] for name in sorted(drawn)])


def _labelled(model: TabularModel) -> Callable[[Floats], Ints]:
    """The more probable class of rows."""
    return lambda rows: (model.predict(rows) > 0.5).astype(np.int64)


def _in_chunks(bench: Bench, rows: Floats, build: Any) -> Floats:
    """f at the windows that `build` makes of rows of numbers, a few at a time."""
    parts = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
    return np.concatenate([bench.model(build(bench, part)) for part in parts])


def _swapped(bench: Bench, sources: Floats) -> Floats:
    """Windows (m, t, c) whose groups come from the windows with the numbers `sources` (m, g).

    All but one group come from the same window, which is therefore their median, and gives the rest of the inputs.
    """
    labels, context = bench.masker.groups.labels, bench.data.windows.context
    own = np.median(sources, axis=1).astype(np.int64)
    wanted = np.concatenate([sources.astype(np.int64), own[:, None]], axis=1)[:, labels]
    steps, channels = np.indices(labels.shape)
    return context[wanted, steps, channels]


def _shifted(bench: Bench, rows: Floats) -> Floats:
    """Windows (m, t, c) whose groups are shifted to the means in `rows` (m, g + 1), the last column says which one."""
    groups, context = bench.masker.groups, bench.data.windows.context[rows[:, -1].astype(np.int64)]
    shift = rows[:, :-1] - groups.average(context)
    return context + np.concatenate([shift, np.zeros((len(rows), 1))], axis=1)[:, groups.labels]


def _on_all(
    found: eamex.PermutationImportance, names: Sequence[str], every: Sequence[str]
) -> eamex.PermutationImportance:
    """The importances over all groups; those the model does not see have none."""
    columns = [every.index(name) for name in names]

    def spread(values: Floats) -> Floats:
        whole = np.zeros((*values.shape[:-1], len(every)))
        whole[..., columns] = values
        return whole

    return replace(
        found,
        names=tuple(every),
        overall=spread(found.overall),
        by_group={name: spread(values) for name, values in found.by_group.items()},
        rises=spread(found.rises),
        rises_within=spread(found.rises_within),
    )
