"""What the checks ask of one (task, model): masks crossed with baselines, K, segments, re-drawn weights, run twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from explainbench.analysis.ablation import (
    concordance,
    diagonal,
    off_diagonal,
    rank_tau,
    relative_panel,
)
from explainbench.analysis.aliases import scale_equivariance
from explainbench.analysis.intervals import resample_indices
from explainbench.analysis.sanity import Estimate, estimate, randomisation_verdict, rank_correlations
from explainbench.core.arrays import Floats, Ints
from explainbench.core.cell import stream
from explainbench.core.errors import NotApplicable
from explainbench.core.explanation import Explanation
from explainbench.core.forecaster import ExplainedModel, Forecaster, HasTorchModule, NonFiniteForecast, require
from explainbench.core.masking import OPERATORS, Groups, Masker, cumulative_keep, ranking
from explainbench.core.params import Params
from explainbench.core.registry import METHODS, METRICS
from explainbench.core.windows import Windows
from explainbench.stages.cell import Bench

CONTROL = "raw_zero"  # the mask that is a negative control, never part of a mean
SHARES = (0.1, 0.2, 0.3, 0.5)  # K as a share of the groups
DEFINED = 0.9  # share of windows on which a method must explain something to be compared
PER_GROUP = 2.5  # coalitions per group that SHAP and LIME get at least


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of the grid the checks look at; stated in results/checks.json.

    windows_per_regime: of the panel, the segments and the re-drawn weights (one per regime is run twice);
    coalitions, samples, steps, runs: of SHAP, LIME, integrated gradients and counterfactual search, where smaller than
    the cells' own, but never fewer coalitions or samples than `PER_GROUP` a group;
    batch: rows per model call, so that a padded batch is not mostly padding; redraws: sets of re-drawn weights;
    resamples: bootstrap resamples of W.
    """

    windows_per_regime: int = 4
    coalitions: int = 160
    samples: int = 160
    steps: int = 64
    runs: int = 4
    batch: int = 48
    redraws: int = 2
    resamples: int = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """One (task, model) under examination: its bench, the importance of its stored cells on all windows, a subset."""

    params: Params
    sizes: Sizes
    task: str
    model: str
    bench: Bench
    stored: Mapping[str, Floats]
    rows: Ints

    @property
    def windows(self) -> Windows:
        """The subset that is explained again."""
        return self.bench.data.windows.take(self.rows)

    @property
    def explained(self) -> ExplainedModel:
        """The model in batches of the checks' size."""
        return replace(self.bench.model, batch=self.sizes.batch)

    def method(self, name: str, groups: int) -> Any:
        """The method with its options, budgets cut to the checks' sizes."""
        options = dict(self.params.methods.get(name) or {})
        cut = {
            "shap": ("coalitions", self.sizes.coalitions, ceil(PER_GROUP * groups)),
            "lime": ("samples", self.sizes.samples, ceil(PER_GROUP * groups)),
            "integrated_gradients": ("steps", self.sizes.steps, 0),
            "counterfactual": ("runs", self.sizes.runs, 0),
        }
        if name in cut:
            key, most, least = cut[name]
            options[key] = max(min(getattr(METHODS.build(name, options), key), most), least)
        return METHODS.build(name, options)

    def explain(self, name: str, model: ExplainedModel, windows: Windows, masker: Masker, *purpose: str) -> Floats:
        """e (n, g) of one run, from the stream of this (task, model, method) and purpose. Raises NotApplicable."""
        rng = stream(self.params.seed, "checks", self.task, self.model, name, *purpose)
        explanation = self.method(name, len(masker.groups)).explain(model, windows, masker, rng)
        return grouped(name, explanation, masker.groups)

    def estimate(self, values: Floats) -> Estimate:
        """A mean over the windows on which it is defined, with its interval. Raises NotApplicable below two."""
        values = values[np.isfinite(values)]
        statistics = self.params.statistics
        rng = stream(self.params.seed, "interval", len(values))
        return estimate(values, resample_indices(len(values), statistics.bootstrap, rng), statistics.confidence)

    def shown(self, values: Floats) -> dict[str, Any]:
        """An estimate as plain JSON values, null below two defined windows."""
        try:
            return plain(self.estimate(values))
        except NotApplicable:
            return {"value": None, "low": None, "high": None, "n": int(np.isfinite(values).sum())}


def subset(windows: Windows, per_regime: int) -> Ints:
    """Rows of up to `per_regime` windows of each regime, evenly spread over time, in time order."""
    rows: list[int] = []
    for kind in sorted(set(windows.regime.tolist())):
        mine = np.flatnonzero(windows.regime == kind)
        picked = np.unique(np.linspace(0, len(mine) - 1, min(per_regime, len(mine))).round().astype(int))
        rows += mine[picked].tolist()
    return np.array(sorted(rows), dtype=np.int64)


def grouped(method: str, explanation: Explanation, groups: Groups) -> Floats:
    """e over groups (n, g), as metrics see it: summed for signed methods, averaged for non-negative ones."""
    reduce = groups.total if METHODS.card(method).vector == "signed" else groups.average
    return reduce(explanation.attribution)


def changes(masker: Masker, model: ExplainedModel, windows: Windows, importance: Floats, depth: int) -> Floats:
    """|f(x) - f(x without its top-k groups)| for k = 1..depth: (n, depth); NaN where nothing is explained."""
    keep = cumulative_keep(ranking(importance)[:, :depth], len(masker.groups))
    moved = np.abs(model(windows.context)[:, None] - masker.outputs(model, windows, keep))
    moved[~importance.any(axis=1)] = np.nan
    return moved


def default_depth(params: Params, groups: int) -> int:
    """K of the Faithfulness of the cells."""
    metric: Any = METRICS.build("faithfulness", params.metrics.get("faithfulness"))
    return metric.depth(groups)


def masks(probe: Probe) -> dict[str, Any]:
    """Kendall's W over metric masks of the methods' published explanations, on all windows."""
    bench, windows = probe.bench, probe.bench.data.windows
    depth = default_depth(probe.params, len(bench.masker.groups))
    methods = [name for name, e in probe.stored.items() if e.any(axis=1).mean() >= DEFINED]
    row: dict[str, Any] = {
        "methods": methods, "left_out": sorted(set(probe.stored) - set(methods)), "operators": [], "w": None,
        "low": None, "high": None, "supported": None, "n": 0, "reason": "", "taus": {}, "means": {},
    }  # fmt: skip
    scores: dict[str, Floats] = {}
    for operator in OPERATORS:
        masker = replace(bench.masker, operator=operator)
        columns = [changes(masker, bench.model, windows, probe.stored[name], depth).mean(axis=1) for name in methods]
        scores[operator] = np.stack(columns, axis=1) if columns else np.empty((len(windows), 0))
    defined = np.all([np.isfinite(values).all(axis=1) for values in scores.values()], axis=0)
    scores = {operator: values[defined] for operator, values in scores.items()}
    if defined.any():
        row["means"] = {
            operator: dict(zip(methods, values.mean(axis=0), strict=True)) for operator, values in scores.items()
        }
    try:
        rng = stream(probe.params.seed, "checks", "concordance", int(defined.sum()))
        indices = resample_indices(int(defined.sum()), probe.sizes.resamples, rng)
        serious = {operator: values for operator, values in scores.items() if operator != CONTROL}
        found = concordance(serious, indices, probe.params.statistics.confidence)
    except NotApplicable as gap:
        return row | {"reason": gap.reason}
    reference = scores[probe.bench.masker.operator].mean(axis=0)
    control = rank_tau(scores[CONTROL].mean(axis=0), reference)
    return row | {
        "operators": list(serious), "w": found.w, "low": found.low, "high": found.high, "n": found.n,
        "supported": found.supported, "taus": {f"{one}~{two}": tau for (one, two), tau in found.taus.items()},
        "control_tau": control,
    }  # fmt: skip


def panel(probe: Probe) -> dict[str, Any]:
    """Metric mask x explainer baseline, for the methods that mask: do explainers win under their own baseline?"""
    bench, windows, model = probe.bench, probe.windows, probe.explained
    depth = default_depth(probe.params, len(bench.masker.groups))
    maskers = {operator: replace(bench.masker, operator=operator) for operator in OPERATORS}
    methods = [name for name in probe.stored if METHODS.card(name).stores == "background" and name != "counterfactual"]
    raw = np.empty((len(windows), len(methods), len(OPERATORS), len(OPERATORS)))
    for m, name in enumerate(methods):
        for b, (operator, masker) in enumerate(maskers.items()):
            importance = probe.explain(name, model, windows, masker, "panel", operator)
            for k, scorer in enumerate(maskers.values()):
                raw[:, m, b, k] = changes(scorer, model, windows, importance, depth).mean(axis=1)
    serious = [k for k, operator in enumerate(OPERATORS) if operator != CONTROL]
    relative = relative_panel(raw[:, :, serious][:, :, :, serious])
    off, own = off_diagonal(relative), diagonal(relative)
    rows = [
        {
            "method": name,
            "off_diagonal": probe.shown(off[:, m]),
            "diagonal": probe.shown(own[:, m]),
            "self_preference": probe.shown(own[:, m] - off[:, m]),
            "table": raw[:, m].mean(axis=0).tolist(),
        }
        for m, name in enumerate(methods)
    ]
    return {
        "operators": list(OPERATORS),
        "control": CONTROL,
        "n": len(windows),
        "methods": rows,
        "tau": rank_tau(own.mean(axis=0), off.mean(axis=0)) if len(methods) > 1 else None,
    }


def depths(probe: Probe) -> dict[str, Any]:
    """The ranking of methods by Faithfulness at other K, against that at the default K."""
    bench, windows, groups = probe.bench, probe.windows, len(probe.bench.masker.groups)
    ks = {share: ceil(share * groups) for share in SHARES}
    default = default_depth(probe.params, groups)
    deepest = max(*ks.values(), default)
    methods = list(probe.stored)
    moved = np.stack(
        [changes(bench.masker, bench.model, windows, probe.stored[name][probe.rows], deepest) for name in methods]
    )
    return {
        "default": default,
        "n": len(windows),
        "points": [
            {"share": share, "k": k, "tau": rank_tau(_means(moved[:, :, :k]), _means(moved[:, :, :default]))}
            for share, k in ks.items()
        ],
    }


def segments(probe: Probe) -> dict[str, Any]:
    """The ranking of methods by Faithfulness when groups are half and twice as long, against the default length.

    Stored groups cannot be cut anew, so all methods explain again, at the checks' sizes, also at the default length.
    """
    spec = probe.params.suites.energy.tasks[probe.task]
    channels = probe.bench.data.windows.channels
    used = np.flatnonzero((probe.bench.masker.groups.labels >= 0).any(axis=0))
    means: dict[int, Floats] = {}
    for length in (spec.segment // 2, spec.segment, 2 * spec.segment):
        if 1 <= length <= spec.context:
            groups = Groups.of(channels, spec.context, length, used)
            means[length] = _faithfulness(probe, replace(probe.bench.masker, groups=groups))
    return {
        "default": spec.segment,
        "n": len(probe.rows),
        "points": [{"segment": length, "tau": rank_tau(found, means[spec.segment])} for length, found in means.items()],
    }


def _faithfulness(probe: Probe, masker: Masker) -> Floats:
    """Mean raw Faithfulness (m,) of all methods, explained and scored under `masker`."""
    model, windows = probe.explained, probe.windows
    depth = default_depth(probe.params, len(masker.groups))
    found = (probe.explain(name, model, windows, masker, "segments") for name in probe.stored)
    return _means(np.stack([changes(masker, model, windows, importance, depth) for importance in found]))


def randomisation(probe: Probe, forecaster: Callable[[], Forecaster]) -> list[dict[str, Any]]:
    """Model-parameter randomisation test: explanations must change when every weight tensor is shuffled.

    Rank correlation over groups between the published explanations and those of the shuffled model, mean over
    `redraws`, per window; sizes: the same of |e|, by which metrics rank; input_sizes: of the published |e| with the
    distance between the window and its fully masked self, which is what no weight has a part in.
    """
    masker, windows = probe.bench.masker, probe.windows
    distance = masker.groups.total(np.abs(windows.context - masker.fill(windows)) / windows.channels.std)
    correlations: dict[str, list[tuple[Floats, Floats]]] = {name: [] for name in probe.stored}
    reasons: dict[str, str] = {}
    for draw in range(probe.sizes.redraws):
        try:
            model = replace(probe.explained, forecaster=redrawn(forecaster(), probe, draw))
        except NotApplicable as gap:
            reasons = dict.fromkeys(probe.stored, gap.reason)
            break
        for name, importance in probe.stored.items():
            try:
                other = probe.explain(name, model, windows, masker, "re-drawn", str(draw))
            except (NotApplicable, NonFiniteForecast) as gap:
                reasons[name] = f"no explanation with re-drawn weights: {gap}"
                continue
            here = importance[probe.rows]
            pair = rank_correlations(here, other), rank_correlations(np.abs(here), np.abs(other))
            correlations[name].append(pair)
    rows: list[dict[str, Any]] = []
    for name, importance in probe.stored.items():
        row: dict[str, Any] = {
            "method": name, "value": None, "low": None, "high": None, "n": 0, "verdict": None, "sizes": None,
            "input_sizes": None, "reason": "",
        }  # fmt: skip
        try:
            if name in reasons:
                raise NotApplicable(reasons[name])
            signed, sizes = np.mean(correlations[name], axis=0)
            found = probe.estimate(signed)
        except NotApplicable as gap:
            rows.append(row | {"reason": gap.reason})
        else:
            driven = rank_correlations(np.abs(importance[probe.rows]), distance)
            row |= plain(found) | {"verdict": randomisation_verdict(found), "sizes": probe.shown(sizes)}
            rows.append(row | {"input_sizes": probe.shown(driven)["value"]})
    return rows


def redrawn(forecaster: Forecaster, probe: Probe, draw: int) -> Forecaster:
    """The forecaster with the values of each weight tensor shuffled, from a stream named by the tensor.

    Shuffling keeps every tensor's distribution, so outputs stay in range while all that was learnt is gone. Buffers
    (means and standard deviations of the data) are no weights. Raises NotApplicable for a model without torch weights.
    """
    import torch

    module = require(forecaster, HasTorchModule).module
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            rng = stream(probe.params.seed, "re-drawn weights", probe.task, probe.model, draw, name)
            order = torch.from_numpy(rng.permutation(tensor.numel()))
            tensor.copy_(tensor.flatten()[order].reshape(tensor.shape))
    return forecaster


def repeated(probe: Probe, forecaster: Callable[[], Forecaster]) -> dict[str, Any]:
    """Declared determinism verified by running twice: the model, and methods with the same and with other seeds."""
    bench = probe.bench
    windows = bench.data.windows.take(subset(bench.data.windows, 1))
    once = bench.model(windows.context)
    alone = np.concatenate([bench.model(windows.context[i : i + 1]) for i in range(len(windows))])
    again = replace(bench.model, forecaster=forecaster())(windows.context)
    model = replace(bench.model, batch=len(windows) * probe.sizes.runs)
    rows = []
    for name in probe.stored:
        card = METHODS.card(name)
        first, second = (probe.explain(name, model, windows, bench.masker, "repeated") for _ in range(2))
        other = probe.explain(name, model, windows, bench.masker, "repeated", "other seed")
        same, free = np.array_equal(first, second), np.array_equal(first, other)
        rows.append(
            {
                "method": name,
                "declared": "deterministic" if card.deterministic else "stochastic",
                "same_seed_same_bits": same,
                "other_seed_same_bits": free,
                "ok": same and (free or not card.deterministic),
            }
        )
    return {
        "n": len(windows),
        "twice": bool(np.array_equal(once, bench.model(windows.context))),
        "alone": bool(np.array_equal(once, alone)),
        "reordered": bool(np.array_equal(once, bench.model(windows.context[::-1].copy())[::-1])),
        "reloaded": bool(np.array_equal(once, again)),
        "scale_equivariance": scale_equivariance(bench.model, windows),
        "methods": rows,
    }


def examine(probe: Probe, forecaster: Callable[[], Forecaster]) -> dict[str, Any]:
    """All checks of one (task, model) as plain JSON values."""
    return {
        "masks": masks(probe),
        "panel": panel(probe),
        "depths": depths(probe),
        "segments": segments(probe),
        "randomisation": randomisation(probe, forecaster),
        "determinism": repeated(probe, forecaster),
    }


def _means(moved: Floats) -> Floats:
    """Mean raw Faithfulness per method of changes (m, n, k), over windows where it explains something: (m,)."""
    per_window = moved.mean(axis=2)
    known = np.isfinite(per_window)
    return np.where(known, per_window, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)


def plain(found: Estimate) -> dict[str, Any]:
    """An estimate as plain JSON values."""
    return {"value": found.value, "low": found.low, "high": found.high, "n": found.n}
