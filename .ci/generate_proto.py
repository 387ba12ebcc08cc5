"""Generate the Python modules of `msgbroker/v1` from `msgbroker/proto/msgbroker/v1/*.proto`.

Used by the build hook and by `make proto`. The result is not committed.
"""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path

from grpc_tools import protoc


def generate(root: Path) -> None:
    """Write `*_pb2.py`, `*_pb2.pyi` and `*_pb2_grpc.py` below *root*/msgbroker/v1."""
    proto_root = root / "msgbroker" / "proto"
    sources = sorted(proto_root.glob("msgbroker/v1/*.proto"))
    target = root / "msgbroker" / "v1"
    target.mkdir(exist_ok=True)
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"-I{proto_root}",
            f"-I{well_known}",
            f"--python_out={root}",
            f"--pyi_out={root}",
            f"--grpc_python_out={root}",
            *map(str, sources),
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc ended with status {status}")
    (target / "__init__.py").write_text('"""Generated from `msgbroker/proto/msgbroker/v1`; do not edit."""\n')


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
