"""The documentation site has all there is, leads where its documents lead, and asks nobody else for anything."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import griffe
import pytest
from mkdocs.exceptions import PluginError

import msgbroker.client
import msgbroker.client.testing
from msgbroker.contract.error_families import FAMILIES, MessageCenterError

ROOT = Path(__file__).parents[2]
REFERENCE = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md")))
TOLD = set(re.findall(r"^::: (\S+)$", REFERENCE, re.MULTILINE))


def program(name: str) -> ModuleType:
    """Return a module of `.ci`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site_pages = program("site_pages")


def test_the_reference_has_every_name_that_the_client_exports() -> None:
    families = {f"msgbroker.contract.errors.{family.__name__}" for family in FAMILIES}
    families.add(f"msgbroker.contract.errors.{MessageCenterError.__name__}")
    exported = {f"msgbroker.client.{name}" for name in msgbroker.client.__all__}
    exported = {name for name in exported if name.replace(".client.", ".contract.errors.") not in families}
    for_tests = {f"msgbroker.client.testing.{name}" for name in msgbroker.client.testing.__all__}

    assert families | exported | for_tests == TOLD


@pytest.mark.parametrize(
    "fetching",
    [
        '<script src="https://example.org/a.js">',
        "<link rel=stylesheet href=//example.org/a.css>",
        '<img alt="" src="http://example.org/a.png">',
    ],
)
def test_a_site_that_has_browsers_ask_other_hosts_is_refused(tmp_path: Path, fetching: str) -> None:
    (tmp_path / "page.html").write_text(f"<p>Text</p>{fetching}")

    with pytest.raises(PluginError, match=r"page\.html: .*example\.org/a\..* would be fetched from another host"):
        site_pages.on_post_build(config=SimpleNamespace(site_dir=tmp_path))


def test_a_site_may_lead_its_readers_to_other_hosts(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<a href="https://example.org">there</a> <script src="assets/a.js"></script>')

    site_pages.on_post_build(config=SimpleNamespace(site_dir=tmp_path))


def test_a_pattern_of_the_nav_stands_for_what_has_no_line_of_its_own() -> None:
    config = SimpleNamespace(nav=["README.md", {"Run it": ["docs/limits.md", "*.md", "docs/l*.md", "docs/o*.md"]}])

    site_pages.on_config(config)

    assert config.nav[0] == "README.md"
    assert "CHANGELOG.md" in config.nav[1]["Run it"]
    assert "README.md" not in config.nav[1]["Run it"]
    assert config.nav[1]["Run it"].count("docs/limits.md") == 1
    assert config.nav[1]["Run it"][-1] == "docs/operating.md"


@pytest.mark.parametrize(
    "target, led",
    [
        ("../msgbroker/contract/limits.py", "../msgbroker/contract/limits.py.md"),
        ("../msgbroker/proto/msgbroker/v1", "../msgbroker/proto/msgbroker/v1/README.md"),
        ("client.md#errors", "client.md#errors"),
        ("https://example.org/a.py", "https://example.org/a.py"),
    ],
)
def test_a_link_to_a_source_leads_to_a_page_that_shows_it(
    target: str, led: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for there in ("docs", "msgbroker/contract", "msgbroker/proto/msgbroker/v1"):
        (tmp_path / there).mkdir(parents=True)
    (tmp_path / "msgbroker/contract/limits.py").touch()
    (tmp_path / "docs/page.md").write_text(f"[there]({target})")
    monkeypatch.setattr(site_pages, "_ROOT", tmp_path)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="docs/page.md", generated_by=None))

    made = site_pages.on_page_markdown(f"[there]({target})", page=page)

    assert made == f"[there]({led})"


def test_the_reference_shows_examples_as_code_and_leaves_out_what_is_for_the_client_itself() -> None:
    source = '''
class Center:
    """Publishes.

    Example:
        center = Center()

        center.publish()
    """

    def publish(self) -> None:
        """Publish."""

    def settle(self) -> None:
        """Settle; for the client itself."""
'''
    extensions = griffe.load_extensions(program("reference").Reference)
    with griffe.temporary_visited_package("package", {"__init__.py": source}, extensions=extensions) as package:
        center = package["Center"]

    assert "    ```python\n    center = Center()\n\n    center.publish()\n    ```" in center.docstring.value
    assert list(center.members) == ["publish"]
