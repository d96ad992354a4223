"""Hooks for mkdocs, which add the files outside docs/ that pages link to."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "benchmarks/README.md",
    "deploy/**/*",
    "tests/transforms/encoder/families.md",
    "tests/transforms/encoder/folders.md",
)
PLACE = "repository"  # where they are on the site
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of docs/, and those outside."""
    for path in sorted(found for pattern in OUTSIDE for found in ROOT.glob(pattern)):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, f"{PLACE}/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point the links of a page at the places of files on the site."""
    source = page.file.src_uri
    folder = posixpath.dirname(in_repository(source))

    def on_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        return posixpath.relpath(of_site(target), posixpath.dirname(source) or ".")

    return LINK.sub(on_site, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Point the links of llms.txt, which is no page, at the pages of the site."""
    path = Path(config.site_dir) / "llms.txt"
    text = LINK.sub(lambda link: page_url(link[1], config), path.read_text(encoding="utf8"))
    path.write_text(text, encoding="utf8")


def page_url(source: str, config: MkDocsConfig) -> str:
    """The address of a page, relative to the root of the site."""
    url: str = File(source, config.docs_dir, config.site_dir, config.use_directory_urls).url
    return url


def in_repository(source: str) -> str:
    """The path in the repository of a file of the site."""
    return source.removeprefix(f"{PLACE}/") if source.startswith(f"{PLACE}/") else f"docs/{source}"


def of_site(path: str) -> str:
    """The path on the site of a file of the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{PLACE}/{path}"
