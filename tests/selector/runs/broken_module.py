"""A kernel module that does not import, and not with an ImportError either."""

from __future__ import annotations

raise RuntimeError("built for another torch")
