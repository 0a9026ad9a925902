"""The blocks of `docs/language.md`: quotes stand in the packs, sketches load and decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from selector import Catalog, Environment, Report, explain

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
PAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A block of the page, under a rule's number; `file` where it is a quotation."""

    rule: int
    file: str | None
    data: Any


def blocks() -> Iterator[Block]:
    """Every block of YAML of the page."""
    number = 0
    for found in re.finditer(r"^### (\d+)\.|^```yaml(?: file=(\S+))?\n(.*?)^```$", PAGE, re.M | re.S):
        if found[1]:
            number = int(found[1])
        else:
            yield Block(number, found[2], yaml.safe_load(found[3]))


BLOCKS = list(blocks())
QUOTES = [block for block in BLOCKS if block.file is not None]
SKETCHES = {block.rule: block.data for block in BLOCKS if block.file is None}


def parts(node: Any) -> Iterator[Any]:
    """A node of a YAML file and everything inside it; an entry of a mapping also as a mapping of one."""
    yield node
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield {key: value}
            yield from parts(value)
    elif isinstance(node, list):
        for item in node:
            yield from parts(item)


def test_every_rule_has_a_block() -> None:
    assert sorted({block.rule for block in BLOCKS}) == list(range(1, 16))


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: f"{quote.rule}-{quote.file}")
def test_quotes_stand_in_the_packs(quote: Block) -> None:
    assert quote.file is not None
    assert quote.data in parts(yaml.safe_load((MANIFESTS / quote.file).read_text(encoding="utf-8")))


def decide(tmp_path: Path, rule: int, facts: Mapping[str, Any], fields: Mapping[str, Any]) -> Report:
    """The answer of a sketch: a kernel with its rules and limits, or the candidates that its policy names."""
    sketch = SKETCHES[rule]
    pack = tmp_path / "sketch"
    pack.mkdir()
    orders = [policy["order"] for policy in sketch.get("policy", [])]
    flags = ("causal", "sliding_window", "training", "dropout", "sinks", "alibi")
    for name in {name for order in orders for name in order} or {"kernel"}:
        manifest = {
            "manifest": 1,
            "name": name,
            "requires": {"device": "any"},
            "supports": {
                "head_size": "any",
                "dtype": "any",
                **dict.fromkeys(flags, True),
                **sketch.get("limits", {}),
            },
            "rules": sketch.get("rules", []),
        }
        (pack / f"{name}.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    (pack / "vocabulary.yaml").write_text(
        yaml.safe_dump({"vocabulary": 1, "axes": sketch.get("axes", {})}, sort_keys=False)
    )
    policy = sketch.get("policy", [{"name": "all", "order": ["kernel"]}])
    (pack / "pack.yaml").write_text(
        yaml.safe_dump({"pack": 1, "name": "sketch", "policy": policy}, sort_keys=False)
    )
    catalog = Catalog.load(str(pack), manifests=MANIFESTS)
    environment = Environment({"device": "cuda", **facts}, vocabulary=catalog.vocabulary)
    request = catalog.request({"head_size": 128, "dtype": "bfloat16", **fields})
    return explain(request, environment=environment, catalog=catalog)


B200 = {"compute_capability": "10.0", "cudnn_version": "9.23.0"}
TRAIN_256 = {"head_size": 256, "training": True, "causal": True}
L40S = {"compute_capability": "8.9"}


@pytest.mark.parametrize(
    ("rule", "facts", "fields", "accepted"),
    [
        (4, B200, TRAIN_256, True),
        (4, B200, {**TRAIN_256, "layout": "varlen"}, False),
        (4, {**B200, "cudnn_version": "9.25.0"}, {**TRAIN_256, "layout": "varlen"}, True),
        (4, B200, {**TRAIN_256, "causal": False, "sliding_window": True}, False),
        (11, {}, {"sequences": 2, "lse_packed": "padded"}, False),
        (11, {}, {"sequences": 2, "lse_packed": "packed"}, True),
        (11, {}, {"sequences": 1, "lse_packed": "padded"}, True),
        (12, L40S, {"head_size": 192, "training": True}, True),
        (12, L40S, {"head_size": 224, "training": True}, False),
        (12, L40S, {"head_size": 256, "training": True}, True),
        (12, L40S, {"head_size": 256, "training": True, "dropout": True}, False),
        (12, {"compute_capability": "9.0"}, {"head_size": 224, "training": True}, True),
        (13, {"cudnn_version": "9.10.0"}, {"dropout_e4": 1250}, True),
        (13, {"cudnn_version": "9.10.0"}, {"dropout_e4": 1000}, False),
        (13, {"cudnn_version": "9.12.0"}, {"dropout_e4": 1250}, False),
        (13, {"cudnn_version": "9.12.0"}, {}, True),
        (14, {"compute_capability": "7.5"}, {"head_size": 36}, False),
        (14, {"compute_capability": "8.0"}, {"head_size": 36, "dtype": "float32"}, True),
        (14, {"compute_capability": "7.5"}, {"head_size": 35, "dtype": "float32"}, True),
    ],
)
def test_sketches_decide(
    tmp_path: Path, rule: int, facts: Mapping[str, Any], fields: Mapping[str, Any], accepted: bool
) -> None:
    assert (decide(tmp_path, rule, facts, fields).selected is not None) is accepted


FEW = {"shared_key_head": True, "queries": 1, "keys": 4096, "batch_heads": 32}


@pytest.mark.parametrize(
    ("fields", "ranked"),
    [
        (FEW, ["fa2", "splitk", "cutlass"]),
        ({**FEW, "block_diagonal": True}, ["splitk", "fa3", "fa2", "cutlass"]),
        ({**FEW, "queries": 64}, ["fa3", "fa2", "cutlass", "splitk"]),
        ({**FEW, "training": True}, ["fa3", "fa2", "cutlass", "splitk"]),
    ],
)
def test_promotion(tmp_path: Path, fields: Mapping[str, Any], ranked: list[str]) -> None:
    assert [candidate.id for candidate in decide(tmp_path, 10, {}, fields).ranked] == ranked
