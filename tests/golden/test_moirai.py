"""Our Moirai 2 against the official implementation on the same parameters (golden numbers, made elsewhere)."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from explainbench.models.moirai import Core, glu_width

CASE = Path(__file__).parent / "moirai2_official"
CASES = json.loads((CASE / "cases.json").read_text())


def value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The parameter that both sides use: a sine of its name and index."""
    wave = np.sin(zlib.crc32(name.encode()) % 1000 + 1.7 * np.arange(math.prod(shape), dtype=float)).reshape(shape)
    if "norm" in name:
        return 1 + 0.1 * wave
    return wave * math.sqrt(2 / shape[1]) if len(shape) == 2 and "emb" not in name else 0.3 * wave


def core(case: dict[str, int]) -> Core:
    width = case["width"]
    built = Core(width, width // 64, glu_width(width), case["layers"], case["patch"], case["predicted"])
    state = {name: torch.from_numpy(value(name, tuple(old.shape))).float() for name, old in built.state_dict().items()}
    built.load_state_dict(state)
    return built.eval()


@pytest.mark.parametrize("name", CASES)
def test_forecasts_equal_the_official_ones(name: str) -> None:
    case = CASES[name]
    t = np.arange(case["context"])
    series = np.stack(
        [
            50 + (10 + 3 * i) * np.sin(2 * np.pi * (t + 5 * i) / (24 + 8 * i)) + 2 * np.cos(0.9 * t * (i + 1))
            for i in range(3)
        ]
    )
    with torch.no_grad():
        found = core(case).quantiles(torch.from_numpy(series).float(), case["horizon"]).transpose(1, 2).numpy()
    with np.load(CASE / "expected.npz") as expected:
        assert np.abs(found - expected[name]).max() < 1e-4


def test_parameters_have_the_official_names_and_shapes() -> None:
    official = json.loads((CASE / "parameters.json").read_text())
    assert {name: list(part.shape) for name, part in core(CASES["one_pass"]).state_dict().items()} == official
