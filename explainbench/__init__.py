"""ExplainBench: a reproducibility-first benchmark of explanation methods over energy forecasters."""

__version__ = "0.1.0"
