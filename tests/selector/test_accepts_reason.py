"""A candidate that is refused because another refuses says why that one does."""

from __future__ import annotations

import json

import pytest

from selector import Catalog, explain
from selector.answers import answer_text

INNER = """
requires: {device: any}
supports: {dtype: any, head_size: {max: 128}}
rules:
  - {when: {sinks: true}, reject: no sinks here}
"""
ASKING = """
requires: {device: any}
supports: {dtype: any, head_size: any, sinks: true}
rules:
  - {name: same, require: {accepts: inner}, reject: serves what inner serves}
"""
CHAIN = ASKING.replace("accepts: inner", "accepts: asking").replace("what inner", "what asking")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("asking")
    (folder / "pack.yaml").write_text("pack: 1\nname: asking\n", encoding="utf-8")
    for name, text in {"inner": INNER, "asking": ASKING, "chain": CHAIN}.items():
        (folder / f"{name}.yaml").write_text(f"manifest: 1\nname: {name}\n{text}", encoding="utf-8")
    return Catalog.load(str(folder))


def messages(catalog: Catalog, ident: str, **fields: object) -> list[str]:
    report = explain({"dtype": "bf16", **fields}, environment="h100", catalog=catalog)
    return [reason.message for reason in report.rejected.get(ident, ())]


def test_the_inner_reason_is_said(catalog: Catalog) -> None:
    assert messages(catalog, "asking", head_size=64) == []
    assert messages(catalog, "asking", head_size=256) == [
        "serves what inner serves (asking; needs: inner accepts it; "
        "inner refuses: head_size 256: inner takes at most 128)"
    ]
    assert messages(catalog, "asking", head_size=512) == [
        "serves what inner serves (asking; needs: inner accepts it; "
        "inner refuses: head_size 512: inner takes at most 128)"
    ]


def test_how_many_more_there_are(catalog: Catalog) -> None:
    (text,) = messages(catalog, "asking", head_size=256, sinks=True)
    assert text.endswith("inner refuses: head_size 256: inner takes at most 128 and 2 more)")


def test_the_whole_chain_is_said(catalog: Catalog) -> None:
    (text,) = messages(catalog, "chain", head_size=256)
    assert text == (
        "serves what asking serves (chain; needs: asking accepts it; asking refuses: serves what inner serves "
        "(asking; needs: inner accepts it; inner refuses: head_size 256: inner takes at most 128))"
    )


def test_the_short_answers_say_the_same(catalog: Catalog) -> None:
    for size in (256, 512, 256):
        report = explain({"dtype": "bf16", "head_size": size}, environment="h100", catalog=catalog)
        told = json.loads(answer_text(report, reasons=True))["rejected"]
        assert [r["message"] for r in told["chain"]] == messages(catalog, "chain", head_size=size)
