"""`make docs`: write the generated pages of `docs/` anew, and with `--examples` the output of the pages' examples too."""

from __future__ import annotations

import sys

from tests.docs.pages import DOCS, build


def main(arguments: list[str]) -> int:
    """Write what is stale; with `--check` only tell, and return 1."""
    stale = 0
    for name, text in build().items():
        path = DOCS / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"docs/{name}: {'stale' if '--check' in arguments else 'written'}")
    if "--examples" in arguments:
        from tests.docs.examples import rewrite

        for line in rewrite():
            print(line)
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
