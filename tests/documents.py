"""What the Markdown files hold: code blocks, commands, inline code, links, tables, headings."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [
    *GUIDES,
    *sorted(ROOT.glob("recipes/*/README.md")),
    *sorted(ROOT.glob("kernels/*.md")),
]

_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its document, first line, info string and text."""

    document: Path
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path, info: str) -> list[Block]:
    """The document's blocks with this info string, such as ``bash``."""
    text = document.read_text(encoding="utf-8")
    return [
        Block(document, text[: match.start()].count("\n") + 1, match[1], match[2])
        for match in _BLOCK.finditer(text)
        if match[1] == info
    ]


def commands(block: Block) -> list[list[str]]:
    """Words of each command of a shell block, as the shell would pass them on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [command for command in words if command]


def prose(document: Path) -> str:
    """The text without its fenced blocks."""
    return _BLOCK.sub("", document.read_text(encoding="utf-8"))


def inline_code(document: Path) -> set[str]:
    return set(_CODE.findall(prose(document)))


def links(document: Path) -> set[str]:
    return set(_LINK.findall(prose(document)))


def anchors(document: Path) -> set[str]:
    """GitHub's anchors of the headings."""
    headings = _HEADING.findall(prose(document))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def table_rows(document: Path) -> list[list[str]]:
    """Cells of every row of every table."""
    lines = [line for line in prose(document).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
