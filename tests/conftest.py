"""The suite keeps compiled catalogs in a directory of its own, not in the user's, and draws the same examples each time.

`HYPOTHESIS_PROFILE=default pytest tests/property` draws others, as one does by hand after a change of the engine.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

from selector.cache import VARIABLE

settings.register_profile("suite", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

if VARIABLE not in os.environ:
    _FOLDER = tempfile.mkdtemp(prefix="attention-selector-")
    os.environ[VARIABLE] = _FOLDER
    atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
