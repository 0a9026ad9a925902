"""The suite keeps compiled catalogs in a directory of its own, not in the user's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from selector.cache import VARIABLE

if VARIABLE not in os.environ:
    _FOLDER = tempfile.mkdtemp(prefix="attention-selector-")
    os.environ[VARIABLE] = _FOLDER
    atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
