"""Regenerates `coord/pb` from `proto/`: `python -m tests.generate_proto [FOLDER]`."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
CHECKED_IN = ROOT / "coord" / "pb"

_PACKAGE_DOCSTRING = (
    '"""Generated from `proto/` by `make proto`. Only `coord/codec.py` imports it."""\n'
)
_SIBLING_IMPORT = re.compile(r"^from coord\.v1 import ", re.MULTILINE)


def generate(into: Path) -> list[str]:
    """Write one module for every file in `proto/coord/v1` and return their names.

    protoc lays modules out as the sources are, `coord/v1`, a package that an installed wheel does
    not have; they are moved to `coord/pb`, and so is what they import of each other.
    """
    into.mkdir(parents=True, exist_ok=True)
    sources = sorted((SOURCES / "coord" / "v1").glob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        arguments = ["protoc", f"-I{SOURCES}", f"-I{well_known}", f"--python_out={scratch}"]
        status = protoc.main(arguments + [str(source) for source in sources])
        if status != 0:
            raise SystemExit(f"protoc ended with status {status}; its message stands above")
        names = ["__init__.py"]
        (into / "__init__.py").write_text(_PACKAGE_DOCSTRING)
        for module in sorted((Path(scratch) / "coord" / "v1").glob("*_pb2.py")):
            text = _SIBLING_IMPORT.sub("from coord.pb import ", module.read_text())
            (into / module.name).write_text(text)
            names.append(module.name)
    return names


def main() -> None:
    into = Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKED_IN
    names = generate(into)
    for stale in {path.name for path in into.glob("*.py")} - set(names):
        (into / stale).unlink()


if __name__ == "__main__":
    main()
