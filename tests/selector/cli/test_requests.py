"""`explain --requests`: a line in, a line out, in order, whatever the line is."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from selector.cli import batch
from tests.selector.cli.command import ROOT, Command, spawn


def written(path: Path, lines: list[Any]) -> str:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_text(text)
    return str(path)


def answers(ran: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def mixed(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """Requests on several machines, some as presets, some as facts, some on the command's own."""
    draw = random.Random(seed)
    machines = ["h100", "a100", "cpu", {"device": "cuda", "compute_capability": "9.0"}, None]
    lines = []
    for _ in range(count):
        request: dict[str, Any] = {
            "head_size": draw.choice([64, 80, 128, 256]),
            "dtype": draw.choice(["bf16", "float16", "fp32"]),
        }
        for flag in ("sinks", "softcap", "alibi"):
            if draw.random() < 0.2:
                request[flag] = True
        line: dict[str, Any] = {"request": request}
        machine = draw.choice(machines)
        if machine is not None:
            line["environment"] = machine
        lines.append(line)
    return lines


def test_ten_thousand_lines_in_order_and_a_bad_one_does_not_stop_the_rest(
    command: Command, tmp_path: Path
) -> None:
    lines: list[Any] = mixed(10_000)
    lines[4321] = {"request": {"head_siz": 128}}
    ran = command("explain", "--on", "b200", "--requests", written(tmp_path / "r.jsonl", lines))
    found = answers(ran)
    assert len(found) == 10_000
    assert found[4321] == {"error": "unknown field 'head_siz' (did you mean head_size?)", "line": 4322}
    assert ran.code == 2
    assert ran.err == "1 of 10000 lines could not be answered\n"
    for n in range(0, 10_000, 997):
        line = lines[n]
        machine = line.get("environment", "b200")
        if not isinstance(machine, str):
            continue
        words = [f"{k}={str(v).lower()}" for k, v in line["request"].items()]
        alone = command("explain", "--on", machine, *words, "--json").json
        assert found[n]["selected"] == alone["selected"]
        assert found[n]["candidates"] == [c["id"] for c in alone["candidates"]]
        assert found[n]["policy_rule"] == alone["policy_rule"]
        assert found[n]["rejected"] == {
            ident: [{k: r[k] for k in ("axis", "code", "message", "at")} for r in reasons]
            for ident, reasons in alone["rejected"].items()
        }


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nonsense", "not JSON: Expecting value (column 1)"),
        ("", "the line is empty"),
        ("[1]", "the line is no JSON object"),
        ("{}", 'the line has no "request"'),
        ('{"request": 5}', '"request" is an object of axis to value'),
        ('{"reqest": {}}', "unknown key 'reqest': did you mean request?"),
        ('{"request": {}, "request": {}}', "'request' is there twice"),
        ('{"request": {"head_size": NaN}}', "NaN is no JSON"),
        ('{"request": {"head_size": 1e400}}', "head_size is a whole number"),
        ('{"request": {"head_size": true}}', "head_size is a whole number"),
        ('{"request": {"dtype": {"a": 1}}}', "is no value of dtype"),
        ('{"request": {"dtype": "bf61"}}', "did you mean bf16?"),
        ('{"request": {}, "environment": "h1000"}', "did you mean h100?"),
        ('{"request": {}, "environment": 5}', '"environment" is the name of a preset'),
        ('{"request": {}, "environment": {"devise": "cpu"}}', "did you mean device?"),
        ('{"request": {}, "environment": {"device": "abacus"}}', "is no value of device"),
        ('{"request": {}, "environment": {"facts": 3}}', '"facts" is an object'),
        ('{"request": {}, "environment": "/etc/passwd"}', "no preset environment"),
        ('{"request": {}, "environment": "../environments/h100"}', "no preset environment"),
        ('{"request": {}, "backend": "flashy"}', "no backend of pack core is called 'flashy'"),
        ('{"request": {}, "backend": ["reference"]}', '"backend" is a name'),
        ('{"request": {}, "prefer": [1]}', '"prefer" is a name, or a list of them'),
        ('{"request": {}, "strict": "yes"}', '"strict" is true or false'),
        ("[" * 100_000, "nested too deeply"),
        ('{"request": {"head_size": ' + "9" * 5000 + "}}", ""),
        ('{"request": {"x": "' + "y" * (1 << 20) + '"}}', "the line is longer than"),
    ],
)
def test_a_line_that_cannot_be_answered_is_an_error_in_its_place(
    command: Command, tmp_path: Path, line: str, told: str
) -> None:
    good = {"request": {"head_size": 64}, "environment": "h100"}
    path = written(tmp_path / "r.jsonl", [good, line, good])
    ran = command("explain", "--requests", path)
    first, second, third = answers(ran)
    assert first == third
    assert first["selected"] == "flash_attn/fa3"
    assert second["line"] == 2
    assert told in second["error"]
    assert len(second["error"]) < 2000
    assert ran.code == 2


def test_bytes_that_are_no_text(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"request": {}}\n\xff\xfe\n{"request": {}}\n')
    found = answers(command("explain", "--on", "cpu", "--requests", str(path)))
    assert found[1] == {"error": "not UTF-8: byte 1", "line": 2}
    assert found[0] == found[2]


def test_empty_lines_at_the_end_are_none(command: Command, tmp_path: Path) -> None:
    ran = command(
        "explain", "--on", "cpu", "--requests", written(tmp_path / "r.jsonl", [{"request": {}}, "", " "])
    )
    assert ran.code == 0
    assert len(answers(ran)) == 1


def test_an_empty_file_has_no_answers(command: Command, tmp_path: Path) -> None:
    ran = command("explain", "--on", "cpu", "--requests", written(tmp_path / "r.jsonl", []))
    assert (ran.code, ran.out) == (0, "")


def test_nothing_fits_is_an_answer(command: Command, tmp_path: Path) -> None:
    line = {"request": {"mla": True, "head_size": 576}, "environment": "h100"}
    ran = command("explain", "--requests", written(tmp_path / "r.jsonl", [line]))
    assert ran.code == 0
    assert answers(ran)[0]["selected"] is None


def test_winners_leaves_reasons_out(command: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", mixed(50))
    full, short = (
        answers(command("explain", "--on", "cpu", "--requests", path, *more)) for more in ((), ("--winners",))
    )
    assert [{k: v for k, v in a.items() if k != "rejected"} for a in full] == short


def test_preferences_of_a_line_and_of_the_command(command: Command, tmp_path: Path) -> None:
    asked = {"head_size": 128, "dtype": "bf16"}
    lines = [
        {"request": asked},
        {"request": asked, "backend": "flex_attention"},
        {"request": asked, "prefer": ["flex_attention"]},
        {"request": asked, "avoid": "torch_sdpa"},
        {"request": asked},
    ]
    path = written(tmp_path / "r.jsonl", lines)
    found = answers(command("explain", "--on", "h100", "--avoid", "flash_attn", "--requests", path))
    assert [a["selected"] for a in found] == [
        "flashinfer/fa3",
        "flex_attention",
        "flex_attention",
        "flashinfer/fa3",
        "flashinfer/fa3",
    ]
    for entry in found:
        assert not any(i.startswith("flash_attn") for i in entry["candidates"])


def test_requests_and_words_do_not_mix(command: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", [])
    assert command("explain", "head_size=1", "--requests", path).code == 2
    assert command("explain", "--why-not", "reference", "--requests", path).code == 2


def test_a_file_that_is_not_there(command: Command) -> None:
    ran = command("explain", "--on", "cpu", "--requests", "/nothing.jsonl")
    assert (ran.code, ran.err) == (2, "error: --requests /nothing.jsonl: No such file or directory\n")


def test_each_answer_comes_before_the_next_question() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "selector.cli", "explain", "--on", "cpu", "--requests", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        for size in (64, 128):
            child.stdin.write(json.dumps({"request": {"head_size": size}}).encode() + b"\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["selected"] == "torch_sdpa/cpu_flash"
        child.stdin.close()
        assert child.wait(30) == 0


def test_standard_input_from_a_file() -> None:
    ran = spawn("explain", "--on", "cpu", "--requests", "-", stdin=b'{"request": {}}\n{"request": {}}\n')
    assert (ran.code, len(ran.out.splitlines())) == (0, 2)


def test_memory_does_not_grow_with_the_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line asks something new, so that nothing but the bounded caches could keep what was answered."""
    from selector.catalog import Catalog
    from selector.environment import Environment

    catalog = Catalog.load()
    machine = Environment.preset("h100", vocabulary=catalog.vocabulary)
    monkeypatch.setattr(batch, "CHARACTERS", 1 << 18)
    answerer = batch._Answerer(catalog, machine, (), strict=False, reasons=False)

    def feed(start: int) -> int:
        for n in range(start, start + 1500):
            answerer.answer(
                json.dumps({"request": {"head_size": 8 * (n % 32 + 1), "index_topk": n}}).encode()
            )
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        feed(0)
        before = feed(2000)
        after = feed(4000)
    finally:
        tracemalloc.stop()
    assert after - before < 1 << 20


def test_a_line_is_read_no_further_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "LINE", 16)
    lines = list(batch._lines(io.BytesIO(b"x" * 40 + b"\nshort\n" + b"y" * 16 + b"\n\nend")))
    assert lines == [(1, None), (2, b"short\n"), (3, None), (4, b""), (5, b"end")]
