"""Deployment contexts: the shipped six, what is feasible, what a method meets, and files that are wrong."""

from dataclasses import replace

import numpy as np
import oracles
import pytest
import yaml

from explainbench.core.context import RULES, Context, load_context, privacy
from explainbench.core.errors import BadInput, NotApplicable
from explainbench.core.params import load_params
from explainbench.core.registry import METHODS

NAMES = ("smart_grid_edge", "home", "building", "industrial_iot", "ev_v2g", "renewable_microgrid")
QUANTITY = {"value": 1.0, "source": "illustrative"}


def context(**actions) -> Context:
    return Context.model_validate(
        {
            "name": "mine", "version": "v", "title": "Mine", "latency_seconds": QUANTITY, "memory_mb": QUANTITY,
            "energy_joules": QUANTITY, "actions_source": "illustrative", "actions": actions,
        }
    )  # fmt: skip


def change(windows, *cells) -> np.ndarray:
    """(n, 1, t, c) in z-units, zero but for (step, channel, value)."""
    moved = np.zeros((len(windows), 1, *windows.context.shape[1:]))
    for step, channel, value in cells:
        moved[:, :, step, channel] = value
    return moved


def test_the_six_are_shipped_and_every_number_has_a_source(tmp_path):
    assert sorted(path.stem for path in RULES.glob("*.yaml")) == sorted(NAMES)
    for name in NAMES:
        found = load_context(name, tmp_path)
        assert found.name == name
        assert {found.latency_seconds.source, found.memory_mb.source, found.energy_joules.source} == {"illustrative"}
        assert found.actions


@pytest.mark.parametrize(
    ("action", "cells", "feasible"),
    [
        ({"last_steps": 2, "relative": 9.0}, [(-1, 0, 1.0)], True),
        ({"last_steps": 2, "relative": 9.0}, [(-3, 0, 0.01)], False),  # too early
        ({"last_steps": 2, "relative": 9.0}, [(-1, 1, 0.01)], False),  # another channel
        ({"last_steps": 2, "relative": 9.0, "sign": "decrease"}, [(-1, 0, 1.0)], False),
        ({"last_steps": 2, "relative": 9.0, "sign": "decrease"}, [(-1, 0, -1.0)], True),
        ({"last_steps": 2, "relative": 9.0, "sign": "increase"}, [(-1, 0, -1.0)], False),
        ({"last_steps": 2, "relative": 9.0, "ramp": 0.5}, [(-1, 0, 0.6)], False),
        ({"last_steps": 2, "relative": 9.0, "ramp": 0.5}, [(-2, 0, 0.4), (-1, 0, 0.8)], True),
        ({"last_steps": 2, "relative": 1e-3}, [(-1, 0, 1.0)], False),
    ],
)
def test_what_is_feasible(action, cells, feasible):
    windows = oracles.windows()
    found = context(**{windows.channels.names[0]: action}).feasible(change(windows, *cells), windows)
    assert found.shape == (len(windows), 1)
    assert found.tolist() == [[feasible]] * len(windows)


def test_the_relative_limit_is_of_the_value_or_the_deviation():
    windows = oracles.windows()
    channels = replace(windows.channels, std=np.full(len(windows.channels), 10.0))
    values = np.zeros_like(windows.context)
    values[:, -1, 0] = 40.0
    windows = replace(windows, channels=channels, context=values)
    limit = context(**{channels.names[0]: {"last_steps": 4, "relative": 0.5}})
    assert limit.feasible(change(windows, (-1, 0, 2.0)), windows).all()  # 20 of 40
    assert not limit.feasible(change(windows, (-1, 0, 2.1)), windows).any()
    assert limit.feasible(change(windows, (-2, 0, 0.5)), windows).all()  # value 0: 5 of the deviation's 10
    assert not limit.feasible(change(windows, (-2, 0, 0.6)), windows).any()


def test_a_context_for_other_channels_does_not_apply():
    windows = oracles.windows()
    with pytest.raises(NotApplicable, match="none of which the dataset has"):
        context(heat_pump_kw={"last_steps": 1, "relative": 1.0}).feasible(change(windows), windows)


def test_needs_are_met_by_what_cards_declare():
    need = context(x={"last_steps": 1, "relative": 1.0})
    asked = need.model_copy(update={"needs": ("no_gradients", "no_hooks", "no_stored_data", "deterministic")})
    assert need.met(METHODS.card("shap")) == 1.0
    assert asked.met(METHODS.card("integrated_gradients")) < 1.0
    assert asked.met(METHODS.card("attention")) > asked.met(METHODS.card("grad_cam"))
    assert {privacy(METHODS.card(name)) for name in METHODS.names()} == {0.5, 1.0}


def test_a_seventh_context_is_a_file(tmp_path):
    content = yaml.safe_load((RULES / "home.yaml").read_text())
    content["name"] = "island"
    (tmp_path / "contexts").mkdir()
    (tmp_path / "contexts" / "island.yaml").write_text(yaml.safe_dump(content))
    assert load_context("contexts/island.yaml", tmp_path).name == "island"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"actions": {}}, "actions: Dictionary should have at least 1 item"),
        ({"latency_seconds": QUANTITY | {"value": -1.0}}, "latency_seconds.value: Input should be greater"),
        ({"memory_mb": {"value": 1.0}}, "memory_mb.source: Field required"),
        ({"needs": ["telepathy"]}, "needs.0"),
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"name": "other"}, "says it is context 'other'"),
    ],
)
def test_a_wrong_context_file_says_which_key(tmp_path, edit, said):
    content = yaml.safe_load((RULES / "home.yaml").read_text()) | {"name": "bad"} | edit
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(BadInput) as error:
        load_context("bad.yaml", tmp_path)
    assert said in str(error.value)


def test_params_name_the_contexts_that_there_are(tmp_path):
    with pytest.raises(BadInput, match=r"'moon' is no shipped context \(building, ev_v2g"):
        load_context("moon", tmp_path)
    base = (RULES.parents[3] / "params.yaml").read_text()
    assert [item.name for item in load_params(RULES.parents[3] / "params.yaml").contexts] == list(NAMES)
    (tmp_path / "params.yaml").write_text(base.replace("contexts: [smart_grid_edge", "contexts: [home"))
    with pytest.raises(BadInput, match="names home twice"):
        load_params(tmp_path / "params.yaml")
