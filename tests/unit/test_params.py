"""params.yaml: read whole, checked, and every mistake named."""

import pytest
import yaml

from explainbench.core.errors import BadInput
from explainbench.core.params import load_params
from explainbench.core.registry import METHODS, METRICS, MODELS

REGISTRIES = {"models": MODELS, "methods": METHODS, "metrics": METRICS}


@pytest.fixture
def raw(root):
    return yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))


def write(folder, raw):
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return path


def test_the_shipped_file_holds_the_protocol_constants(root):
    params = load_params(root / "params.yaml")
    assert (params.seed, params.runs, params.statistics.bootstrap, params.statistics.alpha) == (42, 5, 10_000, 0.05)
    tasks = params.suites.energy.tasks
    assert (tasks["T1"].context, tasks["T1"].horizon, tasks["T1"].segment, tasks["T1"].windows_per_regime) == (
        96, 4, 8, 20,
    )  # fmt: skip
    assert (tasks["T2"].context, tasks["T2"].horizon, tasks["T2"].segment, tasks["T2"].windows_per_regime) == (
        192, 96, 16, 12,
    )  # fmt: skip
    assert METRICS.build("fidelity", params.metrics["fidelity"]).draws == 500
    assert METHODS.build("shap", params.methods["shap"]).coalitions == 512
    assert METHODS.build("lime", params.methods["lime"]).samples == 512
    assert METHODS.build("integrated_gradients", params.methods["integrated_gradients"]).steps == 128


@pytest.mark.parametrize("profile", [None, "smoke", "pilot"])
def test_every_block_of_every_profile_fits_its_entry(root, profile):
    params = load_params(root / "params.yaml", profile)
    for kind, registry in REGISTRIES.items():
        for name, block in getattr(params, kind).items():
            registry.build(name, block)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw.update(sede=1), "sede"),
        (lambda raw: raw["statistics"].update(bootstrap=10), "statistics.bootstrap"),
        (lambda raw: raw["statistics"]["weights"].update(faithfulness=0.6), "must sum to 1"),
        (lambda raw: raw["suites"]["energy"]["tasks"]["T1"].update(segment=97), "longer than the context"),
        (lambda raw: raw["suites"]["energy"]["tasks"]["T1"].update(horizon=0), "suites.energy.tasks.T1.horizon"),
        (lambda raw: raw["suites"]["energy"].update(masker="zero"), "suites.energy.masker"),
        (lambda raw: raw.pop("seed"), "seed"),
    ],
)
def test_a_wrong_key_or_value_is_named(raw, tmp_path, change, said):
    change(raw)
    with pytest.raises(BadInput, match=said):
        load_params(write(tmp_path, raw))


def test_an_option_that_an_entry_does_not_have_is_named_with_those_it_has():
    with pytest.raises(BadInput, match=r"methods\.shap\.samples is not an option; its options are coalitions"):
        METHODS.build("shap", {"samples": 3})
    with pytest.raises(BadInput, match=r"methods\.shap\.coalitions = 'many'"):
        METHODS.build("shap", {"coalitions": "many"})
    with pytest.raises(BadInput, match="'shapp' is not a registered method; registered are"):
        METHODS.build("shapp")


def test_broken_files_and_profiles_are_named(root, tmp_path):
    (tmp_path / "params.yaml").write_text("a: [1", encoding="utf-8")
    with pytest.raises(BadInput, match="not valid YAML"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("- 1", encoding="utf-8")
    with pytest.raises(BadInput, match="must be a mapping"):
        load_params(tmp_path / "params.yaml")
    with pytest.raises(BadInput, match="no profile 'pilott'; its profiles are pilot, smoke"):
        load_params(root / "params.yaml", "pilott")
    with pytest.raises(BadInput, match="does not exist"):
        load_params(tmp_path / "absent.yaml")
