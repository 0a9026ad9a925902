"""Measured orders: read, stale, tied, outranked; and a real measurement that changes a real decision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from selector import Catalog, Environment, ManifestError, explain, measured, select
from selector.cli import main
from selector.measured import Entry, Measurements, Timing, ordered

ASKED = {"head_size": 64, "dtype": "bfloat16"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(measured.VARIABLE, "")
    measured.forget()
    yield
    measured.forget()


def timing(candidate: str, median: float, spread: float = 0.01) -> Timing:
    return Timing(candidate, median, median * (1 - spread), median * (1 + spread), 21)


def use(monkeypatch: pytest.MonkeyPatch, path: Path, environment: Environment, *timings: Timing) -> None:
    entry = Entry(ASKED, "batch 1, 128 keys", timings)
    found = Measurements("h100", environment.fingerprint, environment.to_dict(), [entry])
    path.write_text(found.to_text(), encoding="utf-8")
    monkeypatch.setenv(measured.VARIABLE, str(path))
    measured.forget()


def test_the_faster_one_comes_first_and_the_report_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, h100 = Catalog.load(), Environment.preset("h100")
    assert explain(ASKED, environment=h100, catalog=catalog).selected == "flash_attn/fa3"
    use(
        monkeypatch, tmp_path / "m.yaml", h100, timing("flash_attn/fa3", 2e-3), timing("flash_attn/fa2", 1e-3)
    )
    report = explain(ASKED, environment=h100, catalog=catalog)
    assert report.selected == "flash_attn/fa2"
    assert "2x as fast as flash_attn/fa3" in report.ranked[0].because
    assert "21 runs" in report.ranked[0].because
    assert "measurement" in report.to_text()
    assert explain(ASKED, environment="a100", catalog=catalog).policy_rule != report.policy_rule


def test_explicit_choices_outrank_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, h100 = Catalog.load(), Environment.preset("h100")
    use(
        monkeypatch, tmp_path / "m.yaml", h100, timing("flash_attn/fa3", 2e-3), timing("flash_attn/fa2", 1e-3)
    )
    ask = {"environment": h100, "catalog": catalog}
    assert select(ASKED, **ask, backend="flash_attn/fa3").id == "flash_attn/fa3"  # type: ignore[arg-type]
    assert select(ASKED, **ask, prefer="flash_attn/fa4").id == "flash_attn/fa4"  # type: ignore[arg-type]
    assert select(ASKED, **ask, avoid="flash_attn/fa2").id == "flash_attn/fa3"  # type: ignore[arg-type]
    assert select({**ASKED, "sinks": True}, **ask).id != "flash_attn/fa2"  # type: ignore[arg-type]


def test_a_tie_keeps_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, h100 = Catalog.load(), Environment.preset("h100")
    use(
        monkeypatch,
        tmp_path / "m.yaml",
        h100,
        timing("flash_attn/fa3", 1.01e-3, 0.1),
        timing("flash_attn/fa2", 1e-3, 0.1),
    )
    assert explain(ASKED, environment=h100, catalog=catalog).selected == "flash_attn/fa3"
    order = ordered(
        [timing("a", 3.0, 0.01), timing("b", 1.01, 0.1), timing("c", 1.0, 0.1), timing("d", 2.0, 0.01)]
    )
    assert [t.candidate for t in order] == ["b", "c", "d", "a"]


def test_another_version_makes_it_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, h100 = Catalog.load(), Environment.preset("h100")
    use(
        monkeypatch, tmp_path / "m.yaml", h100, timing("flash_attn/fa3", 2e-3), timing("flash_attn/fa2", 1e-3)
    )
    later = h100.with_packages({"flash-attn": "2.8.9"})
    assert explain(ASKED, environment=later, catalog=catalog).selected == "flash_attn/fa3"
    found = measured.in_use()
    assert found is not None
    assert "flash-attn was 2.8.3.post2 and is 2.8.9" in str(found.stale(later))
    assert found.stale(h100) is None


@pytest.mark.parametrize(
    "text",
    ["", "measured: 2", "measured: 1\nfacts: 3\nentries: [1, {request: {}, times: [{median_us: -1}]}]"],
)
def test_a_broken_file_is_an_error_with_its_place(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv(measured.VARIABLE, str(tmp_path / "m.yaml"))
    with pytest.raises(ManifestError, match=r"m\.yaml:\d+:\d+"):
        explain(ASKED, environment="h100", catalog=Catalog.load())


def test_measuring_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four tokens under a window: the policy's first compiles a block mask that the plain reference does without."""
    file = tmp_path / "m.yaml"
    words = ["head_size=8", "num_heads=1", "dtype=float32", "softcap", "causal"]
    shape = ["--lengths", "4", "--runs", "7", "--file", str(file)]
    assert main(["tune", *words, *shape, "--json"]) == 0
    entry, decode = json.loads(capsys.readouterr().out)["entries"]
    assert (entry["request"]["query_length"], decode["request"]["query_length"]) == ("same", "one")
    order = [t["candidate"] for t in entry["order"]]
    assert set(order) == {"flex_attention", "reference"}
    monkeypatch.setenv(measured.VARIABLE, str(file))
    measured.forget()
    catalog = Catalog.load()
    report = explain(catalog.request(entry["request"]), environment=Environment.probe(), catalog=catalog)
    assert [r.id for r in report.ranked][: len(order)] == order
    assert main(["tune", *words, *shape]) == 0
    assert "measured already" in capsys.readouterr().err
    assert main(["tune", "--show", "--file", str(file)]) == 0
    assert "2 requests" in capsys.readouterr().out


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "head_size=8", "--file", "x", "--lengths", "0"]) == 2
    assert main(["tune", "--file", "x"]) == 2
    assert main(["tune", "head_size=8"]) == 2
    assert "switches measurements off" in capsys.readouterr().err


def test_a_report_says_why_a_measurement_did_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, h100 = Catalog.load(), Environment.preset("h100")
    file = tmp_path / "m.yaml"
    assert measured.unused(catalog.request(ASKED), h100) is None, "there is none"
    use(monkeypatch, file, h100, timing("flash_attn/fa3", 2e-3), timing("flash_attn/fa2", 1e-3))

    def said(request: dict[str, object], machine: Environment) -> str:
        text = explain(request, environment=machine, catalog=catalog).to_text(width=400)
        found = [line for line in text.splitlines() if line.strip().startswith("measured ")]
        assert len(found) <= 1
        return found[0].split(None, 1)[1] if found else ""

    assert said(ASKED, h100) == "", "it counts"
    assert (
        said({**ASKED, "causal": True, "head_size": 128}, h100)
        == f"{file} does not count: another request was measured, with head_size=64, no causal"
    )
    assert said(ASKED, Environment.preset("mi300x")) == f"{file} does not count: device was cuda and is rocm"
    later = h100.with_packages({"flash-attn": "2.8.9"})
    assert said(ASKED, later) == f"{file} does not count: flash-attn was 2.8.3.post2 and is 2.8.9"
    use(monkeypatch, file, h100, timing("flash_attn/fa3", 1e-3), timing("flash_attn/fa2", 2e-3))
    assert "has this request, and the policy's order stands" in said(ASKED, h100)
    file.write_text(Measurements("h", h100.fingerprint, h100.to_dict(), []).to_text(), encoding="utf-8")
    measured.forget()
    assert said(ASKED, h100) == f"{file} is empty"
