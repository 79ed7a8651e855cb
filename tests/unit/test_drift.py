"""Drift between two versions: known gains, directions, false alarms, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from explainbench.analysis.drift import Rule, Version, disagreement, drift, drifts
from explainbench.core.cell import stream
from explainbench.core.errors import BadInput

GROUP = np.repeat(["base", "peak", "ramp"], 20)


def _version(seed=0, flatter=0.0):
    rng = stream(seed, "version")
    return Version(
        rng.dirichlet(np.geomspace(4, 0.4, 8), size=60) + flatter, GROUP, {"stability": rng.random(60) * 0.1 + 0.5}
    )


def _run(baseline, candidate, **options):
    direction = options.pop("higher_is_better", None)
    return drift(baseline, candidate, stream(0, "drift"), Rule(**({"bootstrap": 400} | options)), direction)


def test_a_version_does_not_drift_from_itself():
    found = _run(_version(), _version())
    assert found.passed
    assert not found.reasons
    assert found.disagreement == 0.0
    assert {change.verdict for change in found.changes} == {"same"}
    assert len(found.changes) == 6


def test_flatter_importances_are_worse_where_concentration_counts():
    found = _run(_version(), _version(flatter=0.5))
    verdicts = {change.metric: change.verdict for change in found.changes}
    assert verdicts["spread_divergence"] == verdicts["alpha_importance"] == "worse"
    assert verdicts["importance_stability"] == "better"
    assert verdicts["stability"] == "same"
    assert not found.passed
    assert any("spread_divergence" in reason for reason in found.reasons)
    spread = found.changes[0]
    assert spread.low < spread.gain < 0
    assert spread.gain == pytest.approx(spread.candidate - spread.baseline)
    back = _run(_version(flatter=0.5), _version())
    assert {c.metric: c.verdict for c in back.changes}["spread_divergence"] == "better"


def test_direction_and_margin_of_further_scores():
    worse = replace(_version(), scores={"latency": _version().scores["stability"] + 0.05})
    base = replace(_version(), scores={"latency": _version().scores["stability"]})
    by = {change.metric: change for change in _run(base, worse, higher_is_better={"latency": False}).changes}
    assert by["latency"].verdict == "worse"
    assert by["latency"].gain == pytest.approx(-0.05)
    assert {c.metric: c.verdict for c in _run(base, worse).changes}["latency"] == "better"
    assert {c.metric: c.verdict for c in _run(base, worse, margin=0.06).changes}["latency"] == "same"


def test_noise_rarely_fails_the_gate():
    outcomes = [
        drift(_version(2 * seed), _version(2 * seed + 1), stream(seed, "noise"), Rule(bootstrap=200)).passed
        for seed in range(20)
    ]
    assert sum(outcomes) >= 18
    pairs = {str(seed): (_version(2 * seed), _version(2 * seed + 1)) for seed in range(20)}
    together = drifts(pairs, stream(0, "noise"), Rule(bootstrap=200))
    assert all(one.passed for one in together.values())  # the more is compared, the wider the intervals
    assert all(one.changes[0].low < one.changes[0].gain < one.changes[0].high for one in together.values())


def test_intervals_of_several_pairs_hold_all_at_once():
    alone = _run(_version(), _version(1))
    pairs = {str(seed): (_version(), _version(seed)) for seed in range(1, 9)}
    among = drifts(pairs, stream(0, "drift"), Rule(bootstrap=400))
    assert list(among) == list(pairs)
    for one, two in zip(alone.changes, among["1"].changes, strict=True):
        assert (two.baseline, two.candidate, two.gain) == (one.baseline, one.candidate, one.gain)
        assert two.high - two.low > one.high - one.low
    turned = drifts(dict(reversed(pairs.items())), stream(0, "drift"), Rule(bootstrap=400))
    assert turned == among  # whatever the order


def test_disagreement_by_hand_and_as_a_gate():
    rows = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    other = np.array([[2.0, 4.0, 9.0], [3.0, 2.0, 1.0], [5.0, 5.0, 5.0], [1.0, 2.0, 3.0]])
    assert list(disagreement(rows, other)) == pytest.approx([0.0, 1.0, 0.0, 0.5])
    turned = replace(_version(), importance=_version().importance[:, ::-1].copy())
    found = _run(_version(), turned, most_disagreement=0.2, margin=1.0)
    assert not found.passed
    assert "rank the groups differently" in found.reasons[0]


def test_versions_over_different_windows_are_refused():
    with pytest.raises(BadInput, match="same windows"):
        _run(_version(), replace(_version(), group=GROUP[::-1]))
    with pytest.raises(BadInput, match="different scores"):
        _run(_version(), replace(_version(), scores={}))
    with pytest.raises(BadInput, match="stability must hold one finite value"):
        _run(_version(), replace(_version(), scores={"stability": np.full(60, np.nan)}))
    with pytest.raises(BadInput, match="bootstrap must be"):
        _run(_version(), _version(), bootstrap=0)
