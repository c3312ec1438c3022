"""The HTML reports as a browser reads them, and text of a stranger that tries to be markup."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

EVIL = '<script>alert("x")</script>&{{ 7 * 7 }}'


class Page(HTMLParser):
    """Tags, ids, links and the text of a page; fails on tags that do not close."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
