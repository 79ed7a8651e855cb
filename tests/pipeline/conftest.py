"""A tiny project, really simulated, fitted and scored: the whole pipeline in seconds."""

import pytest
from faults.tiny import Project, build

from explainbench.core.workspace import Workspace


@pytest.fixture(scope="module", autouse=True)
def _without_pictures():
    """Pictures take longer than these tiny cells and are tested in tests/plugins, which must not see this patch."""
    from explainbench.stages import energy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "draw_cell", lambda stored, folder: [])
        yield


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Project:
    """Data simulated, windows cut, one transformer fitted for T1 and T2."""
    return build(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def finished(project, tmp_path_factory) -> Workspace:
    """The tiny grid, scored by one worker."""
    from explainbench.stages.evaluate import evaluate

    workspace = project.output(tmp_path_factory.mktemp("runs") / "one")
    summary = evaluate(workspace, project.params, 1, lambda plan: None, lambda outcome: None)
    assert not summary.failed
    return workspace
