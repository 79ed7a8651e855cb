"""The palette of the pages, light and dark: WCAG 2.2 AA contrast of every pair that carries words or shapes."""

import re
from pathlib import Path

import pytest

import mlflow_plugins.app

CSS = (Path(mlflow_plugins.app.__file__).parent / "static" / "explainbench.css").read_text(encoding="utf-8")
WORDS = [  # 4.5 to 1
    *((ink, ground) for ink in ("ink", "muted", "accent") for ground in ("page", "card", "raised")),
    *(("ink", ground) for ground in ("soft", "ok-soft", "bad-soft", "open-soft")),
    *(("muted", ground) for ground in ("ok-soft", "bad-soft", "open-soft")),
    ("on-accent", "accent"), ("accent", "soft"), ("bad", "page"), ("ok", "page"), ("open", "page"),
    *((kind, ground) for kind in ("ok", "bad", "open") for ground in ("card", f"{kind}-soft")),
    *((group, ground) for group in ("g1", "g0") for ground in ("card", "raised")),
]  # fmt: skip
SHAPES = [  # 3 to 1
    *(("edge", ground) for ground in ("page", "card")),
    *((kind, ground) for kind in ("g1", "g0", "base", "ink") for ground in ("page", "card")),
    *((kind, f"{kind}-soft") for kind in ("ok", "bad", "open")),
    ("ink", "halo"), ("h5", "h0"), ("h-5", "h0"),
]  # fmt: skip


def palettes() -> dict[str, dict[str, str]]:
    found = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in found)
    return {"light": light, "dark": light | dark}


def rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def luminance(colour: tuple[float, ...]) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_at_its_ends():
    assert contrast(rgb("#000000"), rgb("#ffffff")) == pytest.approx(21)
    assert contrast(rgb("#767676"), rgb("#ffffff")) == pytest.approx(4.54, abs=0.01)  # WCAG's own example


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(theme):
    colours = palettes()[theme]
    weak = {}
    for pairs, least in ((WORDS, 4.5), (SHAPES, 3.0)):
        for ink, ground in pairs:
            found = contrast(rgb(colours[ink]), rgb(colours[ground]))
            if found < least:
                weak[ink, ground] = round(found, 2)
    for name in ("r0", "r1", "r2", "r3"):  # points are drawn with opacity 0.75
        mixed = tuple(0.75 * a + 0.25 * b for a, b in zip(rgb(colours[name]), rgb(colours["card"]), strict=True))
        if (found := contrast(mixed, rgb(colours["card"]))) < 3.0:
            weak[name, "card"] = round(found, 2)
    assert not weak


def test_both_themes_define_the_same_colours():
    found = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    light, dark = (set(re.findall(r"--([\w-]+):", block)) for block in found)
    assert light == dark
    assert ".point { opacity: 0.75; }" in CSS
    assert set(re.findall(r"var\(--([\w-]+)\)", CSS)) <= light
