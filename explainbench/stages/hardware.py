"""What a cell was computed on: archived with its measurements, part of no digest."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any


def hardware() -> dict[str, Any]:
    """The processor, its vector capability, the torch build and the threads in use."""
    import torch

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return {
        "cpu": cpu,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
