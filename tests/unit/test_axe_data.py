"""The AXE suite's tables and published weights: what is checked, what is said when they are absent, generated ones."""

import numpy as np
import pytest

from explainbench.core.cell import stream
from explainbench.core.errors import BadInput, Corrupt, Unavailable
from explainbench.data._axe_generated import CENTRES, four_gaussians, planted_bias
from explainbench.data._communities_table2 import communities_table2
from explainbench.data._compas import compas
from explainbench.data._german import german
from explainbench.data._openxai import openxai
from explainbench.data._pima import ROW, pima
from explainbench.models._openxai_networks import SoftmaxClassifier, openxai_network

LOADERS = {
    "German Credit": german,
    "COMPAS": compas,
    "Communities and Crime": communities_table2,
    "Pima": pima,
    "OpenXAI german": lambda folder: openxai(folder, "german"),
}


@pytest.mark.parametrize("title", LOADERS)
def test_absent_data_are_said_so(title, tmp_path):
    with pytest.raises(Unavailable, match=f"the {title}.* data are not shipped: .* give the folder that holds it"):
        LOADERS[title](tmp_path)
    with pytest.raises(Unavailable, match="published weights german_lr"):
        openxai_network(tmp_path, "german_lr")


@pytest.mark.parametrize(
    ("name", "loader"),
    [("german_processed.csv", german), ("pima_indians_diabetes_raw.csv", pima)],
)
def test_another_file_is_refused(name, loader, tmp_path):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(Corrupt, match="its sha256 is"):
        loader(tmp_path)


def test_weights_that_changed_are_refused(tmp_path):
    (tmp_path / "german_lr.npz").write_bytes(b"not an npz")
    with pytest.raises(Corrupt, match="not the published file"):
        openxai_network(tmp_path, "german_lr")


@pytest.mark.parametrize(("loader", "case"), [(german, "german_mL_1foil"), (compas, "compas_mS_1foil")])
def test_tables_equal_the_reference_to_the_bit(loader, case, shared):
    table = loader(shared / "data")
    with np.load(shared / "golden" / f"axe_table2_{case}" / "inputs.npz") as stored:
        assert np.array_equal(table.test, stored["X_test_standardised"])
        assert (table.biased(table.test) == stored["y_pred"]).mean() > 0.96  # the attack's fidelity to it
    assert table.protected in table.names
    assert set(table.foils) <= set(table.names)


def test_communities_table(shared):
    table = communities_table2(shared / "data")
    assert table.train.shape == (1794, 102)
    assert table.test.shape == (200, 102)
    assert not any(name.startswith("communityname") for name in table.names)
    assert np.abs(table.train.mean(axis=0)).max() < 1e-9


def test_pima_and_openxai_splits_equal_the_reference(shared):
    with np.load(shared / "golden" / "axe_fig1_pima_row141" / "inputs.npz") as stored:
        assert np.array_equal(pima(shared / "data")[1], stored["X_test"])
        assert stored["row"][0] == ROW
    with np.load(shared / "golden" / "axe_fig7_published_german" / "inputs.npz") as stored:
        split = openxai(shared / "data", "german")
        assert np.abs(split.rows - stored["X_minmax"]).max() < 1e-7
        assert np.array_equal(split.labels, stored["y"])
        assert np.array_equal(openxai_network(shared / "data", "german_lr").predict(split.rows), stored["y_pred_lr"])
    with pytest.raises(BadInput, match="there are adult-train"):
        openxai(shared / "data", "heloc")


@pytest.mark.parametrize("hidden", [False, True])
def test_gradient_agrees_with_finite_differences(hidden):
    rng = stream(0, "network")
    first = (rng.standard_normal((6, 3)), rng.standard_normal(6)) if hidden else None
    model = SoftmaxClassifier(first, rng.standard_normal((2, 6 if hidden else 3)), rng.standard_normal(2))
    rows, classes, h = rng.standard_normal((4, 3)), np.array([0, 1, 1, 0]), 1e-6
    slopes = np.stack(
        [(model.probability(rows + h * step) - model.probability(rows - h * step)) / (2 * h) for step in np.eye(3)],
        axis=1,
    )
    assert model.gradient(rows) == pytest.approx(slopes, abs=1e-8)
    assert model.gradient(rows, classes) == pytest.approx(slopes * (2 * classes - 1)[:, None], abs=1e-8)


def test_four_gaussians():
    rows, labels = four_gaussians(stream(0, "gaussians"), each=2000)
    for i, centre in enumerate(CENTRES):
        assert rows[i * 2000 : (i + 1) * 2000].mean(axis=0) == pytest.approx(centre, abs=0.08)
    assert np.array_equal(labels, (rows[:, 0] > 0).astype(int))


def test_planted_bias():
    table = planted_bias(stream(0, "bias"), 1000)
    assert table.train.shape == (900, 12)
    assert np.array_equal(planted_bias(stream(0, "bias"), 1000).test, table.test)
    group = table.test[:, table.index("group")] > 0
    assert np.array_equal(table.biased(table.test) == 0, group)
    one, two = (table.test[:, table.index(name)] > 0 for name in table.foils)
    assert np.array_equal(table.innocuous(table.test) == 0, one)
    assert np.array_equal(table.innocuous(table.test, 2) == 0, one ^ two)
