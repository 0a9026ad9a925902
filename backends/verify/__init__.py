"""`attn-select verify`: are the manifests true of the kernels on this machine?

Each usable candidate's declared space is walked (`space`, `pairwise`, `plan`), each request becomes a real call (`calls`) that
a child process runs and compares with the float64 reference (`worker`, `judge`), and what does not hold is traced to the line of
the manifest that says it (`blame`, `walk`). Candidates that need another machine are put to their wrappers' own refusals with
tensors that have shapes and no memory; nothing of them runs.

Planning needs no framework; only the child imports one.
"""

from __future__ import annotations

from backends.verify.device import missing
from backends.verify.findings import Finding, Result
from backends.verify.walk import Options, verify

__all__ = ["Finding", "Options", "Result", "missing", "verify"]
