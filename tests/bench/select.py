"""`select`: requests seen before, as the same object and as an equal one, and requests that are new."""

from __future__ import annotations

import time

from selector import Catalog, Environment, NoBackendError, Request, select
from tests.bench.draw import distinct
from tests.bench.harness import ROOT, Figure, interleaved, loop, ratios, spread
from tests.plain import interpreter as plain
from tests.plain.loading import load_environment

__all__ = ["equal", "known", "new", "times"]

FIELDS = "head_size=128, dtype='bf16', num_heads=32, num_kv_heads=8, causal=True"


def known(quick: bool) -> list[Figure]:
    """The same object again, beside a look-up in a plain dict."""
    request = Request(head_size=128, dtype="bf16", num_heads=32, num_kv_heads=8, causal=True)
    select(request)
    number = 1_000 if quick else 2_000
    samples = interleaved(
        {
            "select": loop("select(request)", number, select=select, request=request),
            "dict": loop("known[request]", number, known={request: request}, request=request),
        },
        5 if quick else 501,
    )
    taken, beside, ratio = (
        spread(samples["select"]),
        spread(samples["dict"]),
        ratios(samples, "select", "dict"),
    )
    return [
        Figure(
            "known/ratio",
            "`select(request)` seen before, same object, over a plain dict look-up of it",
            ratio.median, "x", 3.0, low=ratio.low, high=ratio.high,
            note=f"the look-up: {beside.median * 1e9:.0f} ns",
        ),
        Figure(
            "known/time", "the same, by itself",
            taken.median * 1e9, "ns", 280.0, low=taken.low * 1e9, high=taken.high * 1e9,
        ),
    ]  # fmt: skip


def equal(quick: bool) -> list[Figure]:
    """An equal request built anew, beside building it and looking it up in a plain dict."""
    request = Request(head_size=128, dtype="bf16", num_heads=32, num_kv_heads=8, causal=True)
    select(request)
    number = 100 if quick else 200
    samples = interleaved(
        {
            "select": loop(f"select(Request({FIELDS}))", number, select=select, Request=Request),
            "dict": loop(f"known[Request({FIELDS})]", number, known={request: request}, Request=Request),
            "fields": loop(f"select({FIELDS})", number, select=select),
        },
        5 if quick else 501,
    )
    ratio, beside = ratios(samples, "select", "dict"), spread(samples["dict"])
    words = spread(samples["fields"])
    return [
        Figure(
            "equal/ratio",
            "`select(Request(...))`, an equal one seen before, over building it and a plain dict look-up",
            ratio.median, "x", 2.0, low=ratio.low, high=ratio.high,
            note=f"building and look-up: {beside.median * 1e6:.2f} µs",
        ),
        Figure(
            "equal/fields", "`select(head_size=..., ...)`, fields as keywords, seen before",
            words.median * 1e6, "µs", low=words.low * 1e6, high=words.high * 1e6,
        ),
    ]  # fmt: skip


def times(catalog: Catalog, environment: Environment, requests: list[Request], warm: int) -> list[float]:
    """Seconds for the first `select` of each request after the first ``warm``; nothing fits some of them."""
    found, missed = [], 0
    for request in requests:
        began = time.perf_counter_ns()
        try:  # suppress() takes time of its own
            select(request, environment=environment, catalog=catalog)
        except NoBackendError:
            missed += 1
        found.append((time.perf_counter_ns() - began) / 1e9)
    if missed == len(requests):
        raise AssertionError("nothing fits any of them")
    return found[warm:]


def new(quick: bool) -> list[Figure]:
    """Requests that were never asked, vllm pack on h100, beside the plain interpreter."""
    pack = Catalog.load("vllm")
    environment = Environment.preset("h100", vocabulary=pack.vocabulary)
    drawn = list(distinct(400 if quick else 4_000, 1, pack.vocabulary))
    taken: list[float] = []
    for _ in range(1 if quick else 7):
        fresh = Catalog.load("vllm")  # with no decision made yet
        requests = [fresh.request(fields) for fields in drawn]
        taken += times(fresh, environment, requests, len(drawn) // 4)
    manifests = ROOT / "manifests"
    interpreted, facts = plain.load_pack(manifests, "vllm"), load_environment(manifests, "h100", pack="vllm")
    slow = []
    for fields in drawn[: 3 if quick else 40]:
        began = time.perf_counter()
        plain.decide(interpreted, fields, facts)
        slow.append(time.perf_counter() - began)
    found, beside = spread(taken), spread(slow)
    return [
        Figure(
            "new/median", "first `select` of a new request, vllm pack on h100, no reasons read: median",
            found.median * 1e6, "µs", 8.0, low=found.low * 1e6, high=found.high * 1e6,
            note=f"{found.of:,} requests",
        ),
        Figure("new/p99", "the same: 99th percentile", found.p99 * 1e6, "µs", 40.0),
        Figure(
            "new/plain", "the plain interpreter of the tests over it",
            beside.median / found.median, "x", 15.0, at_least=True,
            low=beside.low / found.median, high=beside.high / found.median,
            note=f"the interpreter: {beside.median * 1e3:.1f} ms",
        ),
    ]  # fmt: skip
