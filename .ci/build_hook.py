"""Generate `msgbroker/v1` from the proto files, for wheels and editable installs alike."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HERE = Path(__file__).resolve().parent
if str(_HERE) not in sys.path:
    sys.path.insert(0, str(_HERE))


class ProtoBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Run the proto generator before anything is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the generated modules into the source tree, where `artifacts` picks them up."""
        from generate_proto import generate

        generate(Path(self.root))
