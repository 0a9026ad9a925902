"""The table of wrappers is what the wrappers answer, and every kernel module has what the runner asks of one."""

from __future__ import annotations

from importlib import import_module

import pytest

from backends._guard import FIELDS
from selector.catalog import Catalog
from tests.docs.pages import DOCS
from tests.docs.pages.wrappers import DRAWS, answers, columns, pages

PARTS = ("make_call", "request_fields", "run", "refuses", "is_broken", "HONOURED")
KERNELS = sorted({c.kernel for c in Catalog.load("core").candidates if c.kernel is not None})


def test_the_page_is_current() -> None:
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"docs/{name} is stale: make docs"


def test_every_field_is_asked() -> None:
    assert list(DRAWS) == list(FIELDS)


def test_a_field_that_is_honoured_is_taken() -> None:
    """A table that lists a field, and a wrapper that takes no call with it, would be the same silence the other way round."""
    found = answers()
    less = {
        title: sorted(field for field in import_module(kernel).HONOURED[variant] if not found[title][field])
        for title, kernel, variant, _ in columns()
    }
    # torch's compiled CPU kernel has no log-sum-exp and no backward pass
    nothing: dict[str, list[str]] = {title: [] for title in found}
    expected = nothing | {"flex_attention on a CPU": ["return_lse", "sinks", "training"]}
    assert less == expected


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_a_kernel_module_offers(kernel: str) -> None:
    module = import_module(kernel)
    assert [part for part in PARTS if not hasattr(module, part)] == []
    variants = {c.variant for c in Catalog.load("core").candidates if c.kernel == kernel}
    assert variants <= set(module.HONOURED)
