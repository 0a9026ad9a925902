"""One rank of a gloo group: `python -m tests.selector.distributed.worker RANK SIZE PORT PRESET [MODE]`; prints one JSON line."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from selector import Catalog, Environment, NoBackendError, SelectorError, select


def main() -> None:
    """Meet the others, select once, say what came of it."""
    rank, size, port, preset = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    mode = sys.argv[5] if len(sys.argv) > 5 else "dense"
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(seconds=60))
    catalog = Catalog.load()
    if mode == "die" and rank == size - 1:
        os._exit(9)
    if mode == "late" and rank == size - 1:
        time.sleep(8)
    fields: dict[str, object] = {"head_size": 128, "dtype": "bfloat16", "num_heads": 32}
    if mode == "heads":
        fields |= {"kv_cache_dtype": "fp8_e4m3", "per_head_scales": True}
    if mode == "mistake" and rank == 1:
        fields["hed_size"] = 1
    if mode == "configuration" and rank == 1:
        os.environ["ATTN_SELECTOR_CONFIG"] = "/no/such/file.yaml"
    backend: Any = 3 if mode == "backend" and rank == 1 else None
    machine = preset if mode in ("preset", "backend", "configuration") else Environment.preset(preset)
    start = time.monotonic()
    answer: dict[str, object] = {"rank": rank}
    try:
        selection = select(
            fields,
            environment=machine,
            catalog=catalog,
            backend=backend,
            group=dist.group.WORLD,
            group_limit=3.0,
        )
        answer["selected"] = selection.id
        answer["valid"] = selection.id in selection.candidates and selection.id not in selection.rejected
    except SelectorError as error:
        answer |= {
            "error": type(error).__name__,
            "message": str(error),
            "report": isinstance(error, NoBackendError),
        }
    answer["seconds"] = time.monotonic() - start
    print(json.dumps(answer), flush=True)
    os._exit(0)  # a group with dead members cannot be closed


if __name__ == "__main__":
    main()
