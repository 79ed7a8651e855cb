"""dvc.yaml says what the code really depends on, and code identity is git's own."""

import subprocess
from pathlib import Path

import pytest
import yaml

from explainbench.core.params import Params
from explainbench.core.provenance import blob_id, canonical_json, import_closure, sha256_json, source_identity

# Which modules each stage runs: its verb, and the entries that the verb looks up by name.
STAGES = {
    "verify_data": ["explainbench.stages.data"],
    "windows": ["explainbench.stages.data"],
    "fit": ["explainbench.stages.fit"],
    "pretrain": ["explainbench.stages.pretrain"],
    "adapt": ["explainbench.stages.fit"],
    "evaluate": ["explainbench.stages.evaluate", "explainbench.stages.energy", "models", "methods", "metrics"],
    "evaluate_suites": [f"explainbench.stages.{part}" for part in ("evaluate", "axe", "agnostic", "ground_truth")]
    + ["models", "methods", "metrics"],
    "ground_truth_data": ["explainbench.stages.ground_truth_data"],
    "ground_truth_table": ["explainbench.report.ground_truth", "methods", "metrics"],
    "checks": ["explainbench.stages.checks", "models", "methods", "metrics"],
    "report": ["explainbench.report.page"],
}


@pytest.fixture(scope="module")
def stages(root):
    files = [root / "dvc.yaml", root / "suites" / "dvc.yaml"]
    return {key: stage for file in files for key, stage in yaml.safe_load(file.read_text("utf-8"))["stages"].items()}


def entries(root, folder):
    return [f"explainbench.{folder}.{path.stem}" for path in (root / "explainbench" / folder).glob("[!_]*.py")]


@pytest.mark.parametrize("stage", STAGES)
def test_declared_code_covers_the_import_graph(root, stages, stage):
    modules = [name for item in STAGES[stage] for name in ([item] if "." in item else entries(root, item))]
    assert modules
    for model in stages[stage].get("matrix", {}).get("model", [""]):
        declared = [Path(path.replace("${item.model}", model)) for path in stages[stage]["deps"]]
        own = [f"explainbench.models.{model}"] if model else []
        for module in import_closure([*modules, *own]):
            path = Path(*module.split("."))
            if (root / path).is_dir():
                continue  # a docstring only, checked below
            path = path.with_suffix(".py")
            assert any(path == item or item in path.parents for item in declared), f"{stage} does not declare {path}"


def test_package_files_hold_no_code(root):
    for path in (root / "explainbench").rglob("__init__.py"):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith(('"""', "__version__"))]
        assert lines == [], path


def test_declared_params_exist(root, stages):
    raw = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    for stage in stages.values():
        for key in stage.get("params", []):
            where = raw
            for part in key.split("."):
                if "$" in part:
                    break
                assert part in where, key
                where = where[part]
    assert set(raw) - {"profiles"} <= set(Params.model_fields)


def test_the_trust_root_is_committed_and_cells_persist(stages):
    outs = {key: value for out in stages["evaluate"]["outs"] for key, value in out.items()}
    for name in ("cells.lock.json", "results/grid.json"):  # the other suites' entries are in them
        assert outs[name] == {"cache": False, "persist": True}
    assert outs["cells"]["persist"] is True
    assert stages["publish"]["always_changed"] is True
    assert stages["profile"]["frozen"] is True


def test_a_module_is_identified_by_its_git_blob(root):
    path = root / "explainbench" / "core" / "cell.py"
    git = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True, cwd=root, check=False)
    if git.returncode:
        pytest.skip("not a git checkout")
    assert git.stdout.strip() == blob_id(path.read_bytes())
    assert source_identity(["explainbench.core.cell"])["explainbench.core.cell"] == blob_id(path.read_bytes())


def test_a_cells_code_holds_its_method_and_no_other():
    closure = import_closure(["explainbench.stages.cell", "explainbench.methods.lime"])
    assert "explainbench.core.masking" in closure
    assert "explainbench.methods.shap" not in closure
    assert "explainbench.store" not in closure


def test_canonical_json_is_one_form():
    assert canonical_json({"b": 1.0, "a": [1, "é"]}) == '{"a":[1,"é"],"b":1.0}'.encode()
    assert sha256_json({"a": 1, "b": 2}) == sha256_json({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json(float("nan"))
