"""AXE, agreement and prediction gaps: worked numbers, properties, bad input, and their scores on forecasts."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.evidence import Evidence
from explainbench.core.explanation import Explanation, MethodCard
from explainbench.core.forecaster import ExplainedModel
from explainbench.core.registry import METRICS
from explainbench.metrics import prediction_gap as gap_module
from explainbench.metrics._top_n import DEFAULT, PRESETS, Preset, area, preset
from explainbench.metrics.agreement import Agreement, agreement, agreement_auc
from explainbench.metrics.axe import Axe, axe, axe_at, regression_errors
from explainbench.metrics.prediction_gap import Normal, PredictionGap, prediction_gap

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import axe_speed  # type: ignore[import-not-found]

LINE = np.array([[0.0], [1.0], [3.0], [3.0], [7.0]])  # five rows, one column, one duplicate
LABELS = np.array([0, 0, 1, 0, 1])


def _problem(rows=60, features=5, seed=0, flags=False):
    rng = stream(seed, "axe tests")
    x = rng.integers(0, 2, (rows, features)).astype(float) if flags else rng.standard_normal((rows, features))
    labels = (x @ np.arange(1.0, features + 1) > (features + 1) * features / 4 * flags).astype(int)
    labels[0], labels[1] = 0, 1
    return x, labels, rng.standard_normal((rows, features))


# Presets


def test_presets_are_named_data():
    assert set(PRESETS) == {"explainbench", "paper", "openxai-2024", "axe-sec4.1", "axe-sec4.2-legacy"}
    assert all(name == rule.name and rule.source for name, rule in PRESETS.items())
    assert len({replace(rule, name="", source="") for rule in PRESETS.values()}) == 5  # no two are the same
    with pytest.raises(BadInput, match="there are explainbench, paper"):
        preset("Paper")


def test_area_of_a_perfect_curve():
    perfect = np.ones(8)
    assert area(perfect, DEFAULT, 8) == 1.0
    assert area(perfect, PRESETS["axe-sec4.2-legacy"], 8) == pytest.approx(0.75)  # (N - 2) / N: why we normalise
    assert area(np.array([0.5]), DEFAULT, 1) == 0.5
    assert area(np.array([0.0, 1.0, 1.0]), DEFAULT, 3) == pytest.approx(0.75)


# AXE: worked numbers


def test_leave_one_out_by_index_with_shared_ties():
    """Row 1's neighbours at k = 2 are row 0 and, tied at distance 2, rows 2 and 3: labels 0, 1, 0."""
    curves = axe(LINE, LABELS, np.ones((5, 1)), k=(1, 2))
    # k = 1: row 0 sees 1 (agrees), 1 sees 0 (agrees), 2 sees its double 3 (does not), 3 sees 2 (does not), and row 4
    # sees both doubles (split: half); k = 2: row 3 sees its double and row 1 (split)
    assert curves.agreement[:, 0, 0].tolist() == [1.0, 1.0, 0.0, 0.0, 0.5]
    assert curves.agreement[:, 0, 1].tolist() == [1.0, 1.0, 0.0, 0.5, 0.5]
    assert curves.base_rate == 0.6


def test_other_rules_on_the_same_rows():
    e = np.ones((5, 1))
    kept = axe(LINE, LABELS, e, preset=replace(DEFAULT, include_self="yes"), k=(1,))
    assert kept.agreement[:, 0, 0].tolist() == [1.0, 1.0, 0.5, 0.5, 1.0]  # each row finds itself, doubles half
    dropped = axe(LINE, LABELS, e, preset=PRESETS["axe-sec4.2-legacy"], k=(1,))
    # the first hit of row 3 is its double, row 2: dropping it leaves row 3 as its own neighbour
    assert dropped.agreement[:, 0, 0].tolist() == [1.0, 1.0, 0.0, 1.0, 1.0]
    shares = axe(LINE, LABELS, e, preset=replace(DEFAULT, aggregate="mean"), k=(2,))
    assert shares.agreement[1, 0, 0] == pytest.approx(2 / 3)


def test_axe_finds_the_feature_the_model_uses():
    x, _, noise = _problem(300, 6, seed=4)
    labels = (x[:, 2] > 0).astype(int)
    right = np.zeros_like(x)
    right[:, 2] = -1.0  # the sign does not matter
    good = axe(x, labels, right, rng=stream(0, "random"))
    bad = axe(x, labels, -np.abs(noise) * (np.arange(6) != 2))
    assert good.mean()[0].min() > 0.98
    assert bad.mean()[0].max() < 0.65
    assert good.random is not None
    assert good.random[0].max() < 0.75
    assert good.auc().mean() > bad.auc().mean()
    assert good.auc().mean() == pytest.approx(area(good.mean().T, DEFAULT, 6).mean())


def test_tied_importances_are_joined_by_a_line_from_the_base_rate():
    """An explanation that ranks nothing earns neither all features at n = 1 nor a crash."""
    x, labels, _ = _problem(80, 4)
    curves = axe(x, labels, np.zeros_like(x), k=(3,))
    full = curves.agreement[:, 3, 0]
    majority = float(labels.mean() > 0.5)
    start = (labels == majority).astype(float)
    for n in range(1, 5):
        assert curves.agreement[:, n - 1, 0] == pytest.approx(start + (full - start) * n / 4)
    assert axe(x, labels, np.zeros_like(x), k=(3,), top=1).agreement[:, 0] == pytest.approx(curves.agreement[:, 0])


def test_points_outside_the_data():
    found = axe_at([[2.9]], [1], [[1.0]], LINE, LABELS, k=(1, 2))
    assert found[0, 0].tolist() == [0.5, 0.5]  # both rows at 3 are the nearest, whatever k <= 2


# AXE: properties


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_row_and_column_order_do_not_matter(seed, flags):
    x, labels, e = _problem(40, 4, seed, flags)
    e = np.round(e)  # with ties
    rng = stream(seed, "orders")
    rows, columns = rng.permutation(40), rng.permutation(4)
    here = axe(x, labels, e, k=(1, 3, 9)).agreement
    there = axe(x[rows][:, columns], labels[rows], e[rows][:, columns], k=(1, 3, 9)).agreement
    assert there == pytest.approx(here[rows], abs=1e-12)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_one_pass_equals_an_index_per_subset(seed, flags):
    """Same bits as the plain implementation under the same tie rule, with and without ties."""
    x, labels, e = _problem(20, 4, seed, flags)
    assert np.array_equal(axe(x, labels, e).agreement, axe_speed.index_per_subset(x, labels, e, (1, 3, 5, 9)))


def test_blocks_have_no_influence(monkeypatch):
    x, labels, e = _problem(50, 4, flags=True)
    whole = axe(x, labels, e).agreement
    monkeypatch.setattr("explainbench.metrics.axe.BLOCK", 120)
    assert np.array_equal(axe(x, labels, e).agreement, whole)
    some = np.array([7, 3])
    assert np.array_equal(axe(x, labels, e[some], explained=some).agreement, whole[some])


def test_signs_and_scale_of_an_explanation_do_not_matter():
    x, labels, e = _problem()
    assert np.array_equal(axe(x, labels, -7.0 * e).agreement, axe(x, labels, e).agreement)


def test_duplicate_rows_are_legal():
    x, labels, e = _problem(20, 3)
    twice = axe(np.concatenate([x, x]), np.concatenate([labels, labels]), np.concatenate([e, e]), k=(1,))
    assert twice.mean().min() == 1.0  # everyone has a double with its own label


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.full((60, 5), np.nan)}, "rows holds 300 values that are NaN or infinite"),
        ({"explanations": np.full((60, 5), np.inf)}, "explanations holds 300 values"),
        ({"explanations": np.ones((59, 5))}, "explanations must have shape 60 x 5, but it is 59 x 5"),
        ({"explanations": np.ones(5)}, "explanations must have shape 60 x 5, but it is 5"),
        ({"predictions": np.zeros(59)}, "predictions must be 60 labels"),
        ({"predictions": np.r_[np.nan, np.ones(59)]}, "predictions hold NaN or infinity, the first at row 0"),
        ({"predictions": np.arange(60) / 7}, "AXE needs labels"),
        ({"rows": np.ones((0, 5)), "predictions": np.ones(0), "explanations": np.ones((0, 5))}, "rows is empty"),
    ],
)
def test_bad_input_is_named(change, message):
    x, labels, e = _problem()
    with pytest.raises(BadInput, match=message):
        axe(**{"rows": x, "predictions": labels, "explanations": e} | change)


def test_fewer_rows_than_k():
    x, labels, e = _problem(5)
    with pytest.raises(BadInput, match="k = 9 neighbours cannot be found among 5 rows"):
        axe(x, labels, e)
    assert axe(x, labels, e, k=(4,)).mean().shape == (5, 1)
    with pytest.raises(BadInput, match="positive"):
        axe(x, labels, e, k=(0,))
    with pytest.raises(BadInput, match="row indices"):
        axe(x, labels, e[:1], k=(1,), explained=np.array([5]))


def test_constant_predictions_leave_axe_undefined():
    x, _, e = _problem()
    with pytest.raises(NotApplicable, match="undefined for a constant model"):
        axe(x, np.ones(60), e)


# Agreement


def test_agreement_by_hand():
    """e ranks features 0, 1, 2, 3; e* ranks 0, 2, 1, 3, and feature 1 has the other sign."""
    found = agreement([[4.0, -3.0, 2.0, 1.0]], [4.0, 2.0, 3.0, 1.0])
    assert found["feature_agreement"][0].tolist() == [1.0, 0.5, 1.0, 1.0]
    assert found["rank_agreement"][0] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 2])
    assert found["sign_agreement"][0] == pytest.approx([1, 1 / 2, 2 / 3, 3 / 4])
    assert found["signed_rank_agreement"][0] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 2])
    assert found["rank_correlation"][0] == pytest.approx(0.8)
    assert found["pairwise_rank_agreement"][0] == pytest.approx(5 / 6)


def test_agreement_with_itself_is_perfect():
    _, _, e = _problem()
    found = agreement(e, e)
    assert all(values == pytest.approx(1.0) for values in found.values())
    assert agreement_auc(found["rank_agreement"]) == pytest.approx(1.0)
    assert np.isnan(agreement(np.zeros((1, 3)), [1.0, 2.0, 3.0])["rank_correlation"][0])  # it ranks nothing


def test_agreement_does_not_depend_on_column_order():
    _, _, e = _problem(6, 5)
    truth = np.array([3.0, -1.0, 0.5, 2.0, -4.0])
    columns = stream(1, "columns").permutation(5)
    here, there = agreement(e, truth), agreement(e[:, columns], truth[columns])
    assert all(there[name] == pytest.approx(here[name]) for name in here)


def test_agreement_refuses_bad_input():
    with pytest.raises(BadInput, match="ground truth must have shape 2 x 3"):
        agreement(np.ones((2, 3)), np.ones((4, 3)))
    with pytest.raises(BadInput, match="give the predictions"):
        agreement(np.ones((2, 3)), np.ones(3), preset=preset("openxai-2024"))
    with pytest.raises(BadInput, match="NaN"):
        agreement([[np.nan, 1.0]], [1.0, 1.0])


# Prediction gaps


def test_prediction_gap_of_a_linear_model():
    """E|w d| = |w| std sqrt(2 / pi) for d ~ N(0, std), and the root of the sum of squares for several features."""
    w = np.array([3.0, -2.0, 0.0])
    rows = np.zeros((1, 3))
    gaps = prediction_gap(lambda x: x @ w, rows, [w], stream(0, "gap"), perturbation=Normal(0.5, 40_000))
    unit = 0.5 * np.sqrt(2 / np.pi)
    assert gaps.important[0] == pytest.approx([3 * unit, np.sqrt(13) * unit, np.sqrt(13) * unit], rel=0.02)
    assert gaps.unimportant[0] == pytest.approx([2 * unit, 0.0, 0.0], rel=0.02)


def test_prediction_gap_equals_the_row_loop():
    x, _, e = _problem(7, 4)
    copies = x[:, None] + 0.3 * stream(0, "copies").standard_normal((7, 11, 4))
    gaps = prediction_gap(lambda z: np.sin(z).sum(axis=1), x, e, copies)
    for i in range(7):
        order = np.argsort(-np.abs(e[i]))
        for n in range(1, 5):
            moved = np.tile(x[i], (11, 1))
            moved[:, order[:n]] = copies[i][:, order[:n]]
            want = np.abs(np.sin(moved).sum(axis=1) - np.sin(x[i]).sum()).mean()
            assert gaps.important[i, n - 1] == pytest.approx(want, rel=1e-12)


def test_prediction_gap_blocks_have_no_influence(monkeypatch):
    x, _, e = _problem(9, 4)

    def run():
        return prediction_gap(lambda z: z[:, 0] * z[:, 1], x, e, stream(0, "blocks"), perturbation=Normal(0.1, 5))

    whole = run()
    monkeypatch.setattr(gap_module, "BLOCK", 40)
    parts = run()
    assert np.array_equal(whole.important, parts.important)
    assert np.array_equal(whole.unimportant, parts.unimportant)


def test_discrete_features_flip():
    flags = np.array([[0.0, 1.0]])
    copies = Normal(0.1, 4000, np.array([True, True]), 0.3)(flags, stream(0, "flip"))
    assert set(np.unique(copies)) == {0.0, 1.0}
    assert np.abs(copies[0].mean(axis=0) - [0.3, 0.7]).max() < 0.03


def test_prediction_gap_refuses_bad_output():
    with pytest.raises(BadInput, match="one number a row"):
        prediction_gap(lambda x: x, np.ones((2, 3)), np.ones((2, 3)), stream(0, "x"))
    with pytest.raises(BadInput, match="NaN or infinity for row 1"):
        prediction_gap(lambda x: np.where(np.arange(len(x)) == 1, np.nan, 1.0), np.ones((2, 3)), np.ones((2, 3)),
                       stream(0, "x"))  # fmt: skip


# The benchmark's own claims, in small


def test_speed_ratio_in_small(capsys):
    ratio, same = axe_speed.speed_of_axe(25)
    assert same
    assert ratio > 5
    assert "same bits: True" in capsys.readouterr().out


# On forecasts


def _evidence(ranked, n=20, model=None, vector="signed", truth=False):
    windows, masker = oracles.windows(n), oracles.masker()
    spread = masker.groups.spread(np.asarray(ranked, dtype=float))
    if truth:
        share = np.zeros((len(masker.groups),))
        share[[2, 3, 4]] = 1 / 3
        windows = replace(windows, truth=masker.groups.spread(np.tile(share, (n, 1))))
    card = MethodCard(title="planted", category="baseline", source="test", deterministic=True, vector=vector)  # type: ignore[arg-type]
    return Evidence(
        windows=windows,
        model=model or oracles.nonlinear(),
        masker=masker,
        method=card,
        runs=(Explanation(spread),),
        target_std=10.0,
        explain_again=lambda *_: Explanation(spread),
        rng=lambda purpose: stream(0, purpose),
        task_rng=lambda purpose: stream(1, purpose),
        shared=lambda name, compute: compute(),
    )


ACTING = np.isin(np.arange(8), oracles.ACTING).astype(float) * (1 + np.arange(8))


def test_regression_errors_by_hand():
    outputs = np.array([0.0, 1.0, 5.0])
    place = np.array([[0.0, 9.0], [1.0, 0.0], [3.0, 0.5]])
    gaps = (place[:, None] - place[None]) ** 2
    errors = regression_errors(gaps, outputs, np.array([[0, 1], [0, 1], [1, 0]]), 1)
    assert errors[:, 0].tolist() == [1.0, 1.0, 16.0]
    assert errors[2, 1] == 16.0  # row 2 by both columns: row 1 is nearest


def test_registered_metrics_are_found():
    for name, entry in (("axe", Axe), ("agreement", Agreement), ("prediction_gap", PredictionGap)):
        assert METRICS.entry(name) is entry
        assert METRICS.build(name) == entry()


def test_axe_on_forecasts_prefers_the_acting_groups():
    """Level of the last temperatures alone drives f: that group first gives skill near one, last near none."""

    def function(x):
        return x[:, :6, 1].mean(1)

    model = ExplainedModel(oracles.Oracle(function))  # type: ignore[arg-type]
    right = np.tile([0.0, 1, 2, 3, 9, 4, 5, 6], (20, 1))
    wrong = np.tile([7.0, 6, 5, 4, 0, 3, 2, 1], (20, 1))
    good, bad = (Axe(k=2).score(_evidence(e, model=model)) for e in (right, wrong))
    assert good["axe"].raw.mean() > bad["axe"].raw.mean()
    assert good["axe_random"].raw == pytest.approx(bad["axe_random"].raw)
    assert good["axe_gain"].raw == pytest.approx(good["axe"].raw - good["axe_random"].raw)


def test_axe_on_forecasts_does_not_depend_on_window_order():
    evidence = _evidence(stream(2, "e").standard_normal((20, 8)))
    order = stream(3, "order").permutation(20)
    moved = replace(
        evidence,
        windows=evidence.windows.take(order),
        runs=(Explanation(evidence.runs[0].attribution[order]),),
    )
    there, here = Axe().score(moved), Axe().score(evidence)
    for name in here:
        assert there[name].raw == pytest.approx(here[name].raw[order])


def test_windows_without_an_explanation_have_no_score():
    ranked = np.tile(ACTING, (8, 1))
    ranked[3] = 0.0
    for metric in (Axe(k=2), Agreement(), PredictionGap(draws=2)):
        for name, score in metric.score(_evidence(ranked, n=8, truth=True)).items():
            if name != "axe_random":
                assert np.flatnonzero(np.isnan(score.raw)).tolist() == [3], name


def test_axe_on_forecasts_says_when_it_is_undefined():
    constant = ExplainedModel(oracles.Oracle(lambda x: 0 * x[:, 0, 0] + 5))  # type: ignore[arg-type]
    with pytest.raises(NotApplicable, match="answers every window alike"):
        Axe().score(_evidence(np.ones((20, 8)), model=constant))
    with pytest.raises(NotApplicable, match="5 windows are too few"):
        Axe(k=5).score(_evidence(np.ones((5, 8)), n=5))


def test_agreement_on_forecasts():
    scores = Agreement(share=0.3).score(_evidence(np.tile(ACTING, (6, 1)), n=6, truth=True))
    assert scores["agreement_feature"].raw == pytest.approx(1.0)
    assert scores["agreement_sign"].raw == pytest.approx(1.0)
    noise = Agreement().score(_evidence(np.tile(8.0 - np.arange(8), (6, 1)), n=6, truth=True))
    assert noise["agreement"].raw.max() < scores["agreement"].raw.min()
    unsigned = Agreement().score(_evidence(np.tile(ACTING, (6, 1)), n=6, vector="nonnegative", truth=True))
    assert "agreement_sign" not in unsigned
    assert "agreement_rank" in unsigned
    with pytest.raises(NotApplicable, match="does not know which inputs"):
        Agreement().score(_evidence(np.ones((6, 8)), n=6))


def test_prediction_gap_on_forecasts():
    scores = PredictionGap(share=0.3, draws=5).score(_evidence(np.tile(ACTING, (6, 1)), n=6))
    assert scores["prediction_gap"].raw.min() > 0
    assert scores["prediction_gap_unimportant"].raw == pytest.approx(0.0, abs=1e-9)  # the others are null groups
    reverse = PredictionGap(share=0.3, draws=5).score(_evidence(np.tile(8.0 * (ACTING == 0), (6, 1)), n=6))
    assert reverse["prediction_gap"].raw == pytest.approx(0.0, abs=1e-9)
    evidence = _evidence(np.tile(ACTING, (6, 1)), n=6)
    PredictionGap(draws=5).score(evidence)
    assert evidence.model.meter.evaluations == 6 * (2 * 5 + 1)


def test_a_preset_is_explicit_about_everything():
    """Every choice of a preset changes something or is documented: the docstring names each field."""
    text = (Preset.__doc__ or "").replace("\n", " ")
    for field in Preset.__dataclass_fields__:
        if field not in ("name", "source"):
            assert field in text, field
