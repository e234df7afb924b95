"""The most memory that this process ever had, since it became what it is: `ru_maxrss` counts its parent's too."""

from __future__ import annotations

from pathlib import Path


def peak_mib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    raise AssertionError("the kernel does not say")
