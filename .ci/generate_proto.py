"""Generate the Python modules of `msgbroker/v1` from `msgbroker/proto/msgbroker/v1/*.proto`.

Used by the build hook, by `make proto`, and with `--check` by `make check`. The result is not committed.
"""

from __future__ import annotations

import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

_PACKAGE = Path("msgbroker", "v1")


def generate(root: Path, target_root: Path | None = None) -> None:
    """Write `*_pb2.py`, `*_pb2.pyi` and `*_pb2_grpc.py` below *target_root* (*root* itself if not given)."""
    target_root = target_root or root
    proto_root = root / "msgbroker" / "proto"
    sources = sorted(proto_root.glob("msgbroker/v1/*.proto"))
    package = target_root / _PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"-I{proto_root}",
            f"-I{well_known}",
            f"--python_out={target_root}",
            f"--pyi_out={target_root}",
            f"--grpc_python_out={target_root}",
            *map(str, sources),
        ]
    )
    if status != 0:
        message = f"protoc ended with status {status}"
        raise SystemExit(message)
    (package / "__init__.py").write_text('"""Generated from `msgbroker/proto/msgbroker/v1`; do not edit."""\n')


def check(root: Path) -> None:
    """End the program unless what is generated below *root* is what its proto files give."""
    with tempfile.TemporaryDirectory() as directory:
        generate(root, Path(directory))
        wanted = _contents(Path(directory) / _PACKAGE)
    if _contents(root / _PACKAGE) != wanted:
        message = f"{_PACKAGE} is not what the proto files give: run `make proto`"
        raise SystemExit(message)


def _contents(package: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in package.glob("*.py*")}


if __name__ == "__main__":
    repository = Path(__file__).resolve().parent.parent
    if "--check" in sys.argv[1:]:
        check(repository)
    else:
        generate(repository)
