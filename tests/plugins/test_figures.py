"""Pictures of a cell: drawn without global state, small, the same bytes twice."""

import numpy as np
from matplotlib import image
from matplotlib._pylab_helpers import Gcf

from explainbench.figures import draw_cell, scores_figure


def test_two_small_pictures_without_global_state(project, tmp_path):
    stored = project.add("shap")
    written = draw_cell(stored, tmp_path / "figures")
    assert [path.name for path in written] == ["attribution.png", "scores.png"]
    for path in written:
        assert path.stat().st_size < 150_000
        assert np.asarray(image.imread(path))[..., :3].std() > 0.02  # something was drawn
    assert not Gcf.get_all_fig_managers()  # nothing was left in global state


def test_same_cell_same_bytes(project, tmp_path):
    stored = project.add("lime")
    first, again = draw_cell(stored, tmp_path / "a"), draw_cell(stored, tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_one_column_per_regime_and_one_panel_per_score(project):
    from explainbench.figures import attribution_figure

    stored = project.add("shap")
    titles = [axes.get_title() for axes in attribution_figure(stored).axes if axes.get_title()]
    assert [title.split(":")[0] for title in titles] == ["peak", "ramp", "off_peak"]
    figure = scores_figure(stored)
    assert figure is not None
    shown = {axes.get_title() for axes in figure.axes if axes.get_visible()}
    assert shown == {"faithfulness (raw)", "stability (0 to 1)", "fidelity (0 to 1)", "faithfulness_skill (raw)"}
