"""Makes the README's picture: the output of a command in a terminal, as SVG.

`python scripts/picture.py` prints it; `scripts/generate.py` writes it to `docs/pictures/check.svg`. Each piece of text
has an explicit position and width, so that the columns line up in every font.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from click.testing import CliRunner

from bylaw.cli import cli

COMMAND = "check v2.jsonl --policy bylaw.yaml"

CHARACTER_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN = 8, 19, 13, 16
BACKGROUND, FOREGROUND = "#1d1f27", "#d8dbe2"
COLOURS = {
    **{30: "#6b7280", 31: "#f2777a", 32: "#8fce7f", 33: "#f0c05a", 34: "#7aa6f2", 35: "#d19ae6", 36: "#6cc9c9"},
    **{90: "#8b92a0", 91: "#f2777a", 92: "#8fce7f", 93: "#f0c05a", 94: "#7aa6f2", 95: "#d19ae6", 96: "#6cc9c9"},
}
"""the colour codes of a terminal → what the picture shows"""

_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")


class Style(NamedTuple):
    colour: str = FOREGROUND
    is_bold: bool = False
    is_dim: bool = False

    def changed_by(self, code: int) -> Style:
        if code in COLOURS:
            return self._replace(colour=COLOURS[code])
        changes = {
            0: Style(),
            1: self._replace(is_bold=True),
            2: self._replace(is_dim=True),
            22: self._replace(is_bold=False, is_dim=False),
            39: self._replace(colour=FOREGROUND),
        }
        return changes[code]  # another code needs a line here: the picture must not lose a style silently

    @property
    def attributes(self) -> str:
        weight = ' font-weight="bold"' if self.is_bold else ""
        opacity = ' opacity="0.65"' if self.is_dim else ""
        return f'fill="{self.colour}"{weight}{opacity}'


def draw() -> str:
    """The picture of `COMMAND`, run on the files of `bylaw demo`."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run("demo", ".")
        return render(f"\x1b[1m$ bylaw {COMMAND}\x1b[0m\n{run('--color', *COMMAND.split())}")


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(cli, list(arguments), color=True, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def render(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    columns = max(len(_ESCAPE.sub("", line)) for line in lines)
    width, height = columns * CHARACTER_WIDTH + 2 * MARGIN, len(lines) * LINE_HEIGHT + 2 * MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>bylaw {escape(COMMAND)}</title>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{FONT_SIZE}" xml:space="preserve">',
            *_texts(lines),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _texts(lines: list[str]) -> Iterator[str]:
    style = Style()
    for row, line in enumerate(lines):
        column = 0
        y = MARGIN + row * LINE_HEIGHT + FONT_SIZE
        for number, piece in enumerate(_ESCAPE.split(line)):  # text, codes, text, codes, …, text
            if number % 2:
                for code in piece.split(";"):
                    style = style.changed_by(int(code or 0))
                continue
            if words := piece.strip():
                x = MARGIN + (column + piece.index(words)) * CHARACTER_WIDTH
                length = len(words) * CHARACTER_WIDTH
                yield f'<text x="{x}" y="{y}" textLength="{length}" {style.attributes}>{escape(words)}</text>'
            column += len(piece)


if __name__ == "__main__":
    print(draw(), end="")
