"""A copy of the product with edits in its source, and the command that runs it.

The copy is a directory that stands first on PYTHONPATH of the processes under test, and of all they
start; the suite itself goes on with the product as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import coord
from jepsen_lite.broken.breakage import Edit

PACKAGE = "coord"
ORIGINAL = Path(coord.__file__).resolve().parent
LOOK_S = 60.0
_WHERE = f"import {PACKAGE}; print({PACKAGE}.__file__)"


class DoesNotFit(Exception):
    """An edit does not fit the product any more, or the copy is not what runs. The message says
    what to look at."""


def install(name: str, edits: Iterable[Edit], base: Path) -> tuple[str, ...]:
    """Copy the product to `base/name`, edit the copy, and return the `coordctl` that runs it. What
    was there before is replaced. Raises DoesNotFit."""
    root = base.resolve() / name
    shutil.rmtree(root, ignore_errors=True)
    copy = root / PACKAGE
    # What was compiled comes along, and is found stale where the source is edited.
    shutil.copytree(ORIGINAL, copy)
    for file, text in edited(name, edits, copy).items():
        (copy / file).write_text(text)
        # An edit of the same length within the same second would not show.
        for compiled in (copy / file).parent.glob(f"__pycache__/{Path(file).stem}.*.pyc"):
            compiled.unlink()
    python = (*_environment(root), sys.executable)
    found = _where(python)
    if not found.is_relative_to(copy):
        raise DoesNotFit(
            f"{name}: its processes would run {found.parent}, not the copy in {copy}; is there a "
            "site hook that puts another first?"
        )
    return (*python, "-m", "coord.cli.main")


def edited(name: str, edits: Iterable[Edit], package: Path = ORIGINAL) -> dict[str, str]:
    """File within the package -> its new text. Raises DoesNotFit where `old` does not stand exactly
    once, or the outcome does not compile."""
    texts: dict[str, str] = {}
    for edit in edits:
        path = package / edit.file
        if edit.file not in texts and not path.is_file():
            raise DoesNotFit(f"{name}: {PACKAGE} has no {edit.file}; where has its content gone?")
        text = texts.get(edit.file) or path.read_text()
        count = text.count(edit.old)
        if count != 1:
            raise DoesNotFit(
                f"{name}: {edit.old!r} stands {count} times in {PACKAGE}/{edit.file}, not once; "
                "the product has changed under this edit, so write it anew"
            )
        texts[edit.file] = text.replace(edit.old, edit.new)
    for file, text in texts.items():
        try:
            compile(text, file, "exec")
        except SyntaxError as error:
            raise DoesNotFit(f"{name}: {PACKAGE}/{file} does not compile: {error}") from error
    return texts


def _environment(root: Path) -> tuple[str, ...]:
    """Set by `env`, because only some of the suite's own processes run the copy. PYTHONSAFEPATH:
    the working directory, which may hold the product, must not come first."""
    after = os.environ.get("PYTHONPATH", "")
    path = f"{root}{os.pathsep}{after}" if after else str(root)
    return ("env", f"PYTHONPATH={path}", "PYTHONSAFEPATH=1")


def _where(python: tuple[str, ...]) -> Path:
    asked = subprocess.run(
        [*python, "-c", _WHERE], capture_output=True, text=True, timeout=LOOK_S, check=False
    )
    if asked.returncode:
        raise DoesNotFit(f"the copy cannot be imported: {asked.stderr.strip()}")
    return Path(asked.stdout.strip())
