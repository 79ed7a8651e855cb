"""The M counterfactuals per window of one (task, model), which every method's cell shares."""

from __future__ import annotations

from explainbench.core.decision import Agent
from explainbench.core.evidence import Evidence
from explainbench.core.search import Found, Plan, search


def counterfactuals(evidence: Evidence, plan: Plan) -> Found:
    """The searches of spec section 5, from streams of the task: the same for every cell of the model.

    Raises NotApplicable where the target has no decision rule.
    """

    def find() -> Found:
        agent = Agent.of(evidence.model, evidence.windows, evidence.masker)
        rng = evidence.task_rng("counterfactuals")
        return search(evidence.model, evidence.windows, evidence.masker, agent, plan, rng)

    return evidence.shared(f"counterfactuals {plan}", find)
