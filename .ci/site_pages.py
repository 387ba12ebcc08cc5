"""The pages of the documentation site: the documents of this repository, where they lie, and the sources they link to.

A page has on the site the path that it has here, so that links between documents lead the same way on the site, on a
code host and on a disk. Documents may link to directories and to source files, too: those get a page as well, made of
what is there. In the `nav` of `mkdocs.yml` a pattern stands for all documents that match it and are not named by
themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parent.parent
_DOCUMENTS = ("*.md", "docs/**/*.md", "[!.]*/**/README.md")
_BESIDE_DOCUMENTS = ("docs/**/*.png", "docs/**/*.svg", "docs/**/*.json")
_NOT_OURS = {"build", "dist", "node_modules"}
_NO_SOURCES = {".md", ".png", ".svg", ".json"}

_LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
# What a browser fetches by itself; links that a reader may follow are <a>.
_FETCHED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")


def on_config(config: MkDocsConfig) -> None:
    """Put the documents that are there in the place of the nav's patterns."""
    named = set(_leaves(config.nav))
    config.nav = [entry for given in config.nav or [] for entry in _expanded(given, named)]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Give the site the documents, what lies beside them and what they link to, and what the theme brings."""
    documents = _found(_DOCUMENTS)
    linked = {path for document in documents for path in _linked_sources(document)}
    for directory in [path for path in linked if (_ROOT / path).is_dir()]:
        linked.update(_sources_in(directory))
    pages = [file for file in files if file.src_dir != config.docs_dir]
    pages += [_copied(path, config) for path in sorted(documents | _found(_BESIDE_DOCUMENTS))]
    pages += [_made(path, config) for path in sorted(linked) if _page_of(path) not in documents]
    return Files(pages)


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Lead links to directories and source files to the pages that show them."""
    document = page.file.src_uri
    if page.file.generated_by:
        return markdown
    shown = set(_linked_sources(document))

    def led(link: re.Match[str]) -> str:
        path = normpath(join(dirname(document), link[1]))
        return relpath(_page_of(path), dirname(document) or ".") if path in shown else link[1]

    return _LINK.sub(led, markdown)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Refuse a site that sends its readers' browsers to other hosts."""
    for page in Path(config.site_dir).rglob("*.html"):
        if fetched := _FETCHED.search(page.read_text()):
            raise PluginError(f"{page}: {fetched[1]} would be fetched from another host")


def _found(patterns: tuple[str, ...]) -> set[str]:
    paths = {path.relative_to(_ROOT) for pattern in patterns for path in _ROOT.glob(pattern)}
    return {path.as_posix() for path in paths if not _NOT_OURS.intersection(path.parts) and path.parts[0][0] != "."}


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(entry)


def _expanded(entry: Any, named: set[str]) -> list[Any]:
    if isinstance(entry, str):
        return sorted(_found((entry,)) - named) if "*" in entry else [entry]
    ((title, inner),) = entry.items()
    return [entry if isinstance(inner, str) else {title: [made for given in inner for made in _expanded(given, named)]}]


def _copied(path: str, config: MkDocsConfig) -> File:
    return File(path, str(_ROOT), config.site_dir, config.use_directory_urls)


def _made(path: str, config: MkDocsConfig) -> File:
    shown = _listing(path) if (_ROOT / path).is_dir() else _listed(path)
    page = File.generated(config, _page_of(path), content=shown, inclusion=InclusionLevel.NOT_IN_NAV)
    page.generated_by = page.generated_by or __name__
    return page


def _linked_sources(document: str) -> Iterator[str]:
    """Return what *document* links to that is not a document: source files, and directories."""
    for target in _LINK.findall((_ROOT / document).read_text()):
        path = normpath(join(dirname(document), target))
        if "://" not in target and Path(path).suffix not in _NO_SOURCES and (_ROOT / path).exists():
            yield path


def _sources_in(directory: str) -> list[str]:
    files = sorted(path for path in (_ROOT / directory).iterdir() if path.is_file())
    return [path.relative_to(_ROOT).as_posix() for path in files if path.suffix not in _NO_SOURCES]


def _page_of(path: str) -> str:
    """Return the document that shows the source file or the directory *path* on the site."""
    return f"{path}/README.md" if (_ROOT / path).is_dir() else f"{path}.md"


def _listing(directory: str) -> str:
    """Return a page that leads to all that is in *directory*."""
    titles = {path.name: _TITLE.search(path.read_text()) for path in (_ROOT / directory).glob("*.md")}
    lines = [f"- [{title[1] if title else name}]({name})" for name, title in sorted(titles.items())]
    lines += [f"- [{Path(path).name}]({Path(path).name}.md)" for path in _sources_in(directory)]
    return "\n".join([f"# {directory}", "", *lines])


def _listed(path: str) -> str:
    """Return a page with the text of a source file, which is as wide as the screen lets it."""
    source = _ROOT / path
    heading = f"---\nhide: [navigation, toc]\n---\n\n# {path}"
    return f"{heading}\n\n```{source.suffix.removeprefix('.')}\n{source.read_text()}\n```\n"
