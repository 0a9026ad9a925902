"""`python -m selector`: the same as `attn-select`."""

from __future__ import annotations

import sys

from selector.cli import main

if __name__ == "__main__":
    sys.exit(main())
