"""Put a measured table into a page, between the two marks that name it."""

import re
from pathlib import Path


def put_into(page: Path, name: str, content: str) -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    text = page.read_text(encoding="utf-8")
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)
    if not marks.search(text):
        raise SystemExit(f"{page} has no place for {name!r}")
    filled = marks.sub(lambda found: f"{found[1]}{content.strip()}\n{found[2]}", text)
    page.write_text(filled, encoding="utf-8")
