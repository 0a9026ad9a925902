"""Record a package's signatures: ``python -m tests.backends.contracts.refresh flash-attn==2.8.3``.

The sdist or wheel is downloaded with pip and read, never installed or imported. ``--archive FILE`` reads one
that is here already; ``--folder DIR --source TEXT`` a checkout of the repository, for what is on no index.
FlashAttention 3 travels inside another package's sdist: ``flash-attn-3==3.0.0b1 --of 2.8.3``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.backends.contracts.extract import record
from tests.backends.contracts.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.backends.contracts.extract import Recording
    from tests.backends.contracts.recipes import Recipe

RECORDED = Path(__file__).parent / "recorded"


def archive_reader(archive: Path) -> Callable[[str], str | None]:
    """Reads a text file out of a wheel or an sdist; None where there is no such file."""
    if archive.suffix == ".whl":
        wheel = zipfile.ZipFile(archive)
        names = frozenset(wheel.namelist())
        return lambda path: wheel.read(path).decode() if path in names else None
    sdist = tarfile.open(archive)  # noqa: SIM115 - read until the process ends
    files = {name.partition("/")[2]: name for name in sdist.getnames()}

    def read(path: str) -> str | None:
        member = sdist.extractfile(files[path]) if path in files else None
        return None if member is None else member.read().decode()

    return read


def folder_reader(folder: Path) -> Callable[[str], str | None]:
    """The same of a folder."""

    def read(path: str) -> str | None:
        file = folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    return read


def download(recipe: Recipe, version: str, into: Path) -> Path:
    """Fetch one version's archive with pip.

    Raises:
        FileNotFoundError: pip fetched nothing; its own message is on standard error.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--dest",
        str(into),
        *recipe.pip,
    ]
    command.append(f"{recipe.distribution}=={version}")
    environment = {**os.environ, "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}
    subprocess.run(command, check=False, env=environment)
    for archive in sorted(into.iterdir()):
        return archive
    message = f"pip found no archive of {recipe.distribution} {version}"
    raise FileNotFoundError(message)


def text(recording: Recording) -> str:
    """The recording as the file holds it: one parameter list a line, so that a change is a readable diff."""
    callables = recording["callables"]
    assert isinstance(callables, dict)
    head = {key: value for key, value in recording.items() if key != "callables"}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    entries = [f"    {json.dumps(name)}: {json.dumps(parameters)}" for name, parameters in callables.items()]
    return "\n".join(["{", *lines, '  "callables": {', ",\n".join(entries), "  }", "}", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Record what the command line names; 0, or 2 for a package without a recipe."""
    parser = argparse.ArgumentParser(prog="refresh", description=__doc__)
    parser.add_argument("what", metavar="PACKAGE==VERSION")
    parser.add_argument("--of", metavar="VERSION", help="version of the archive, where it is another")
    parser.add_argument("--archive", type=Path, help="an sdist or wheel that is here already")
    parser.add_argument("--folder", type=Path, help="a checkout of the package's repository")
    parser.add_argument("--source", help="where a folder comes from")
    parser.add_argument("--into", type=Path, default=RECORDED, help="folder of the recordings")
    options = parser.parse_args(arguments)
    package, _, version = options.what.partition("==")
    recipe = RECIPES.get(package)
    if recipe is None or not version:
        print(
            f"{options.what}: expected PACKAGE==VERSION, a package of {', '.join(RECIPES)}", file=sys.stderr
        )
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        if options.folder is not None:
            read, source = folder_reader(options.folder), options.source or str(options.folder)
        else:
            archive = options.archive or download(recipe, options.of or version, Path(scratch))
            read, source = archive_reader(archive), archive.name
        recording = record(package, version, source, recipe, read)
    target = options.into / package / f"{version}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text(recording), encoding="utf-8")
    print(f"{target}: {len(recording['callables'])} callables")  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
