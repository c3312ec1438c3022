"""The pages that are made from the tables are what the tables say; links between pages lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from repository_paths import ROOT

import samerun
from samerun.check.causes.table import CAUSES
from samerun.check.variations.table import VARIATIONS
from samerun.control.switches.table import SWITCHES

REPOSITORY, RAW = "https://github.com/samerun/samerun", "https://raw.githubusercontent.com/samerun/samerun"
"""Links of README.md are absolute, because it is shown on other pages too; what they lead to lies here."""
OWN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("samerun_tools_docs", ROOT / "tools/docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["docs/causes.md", "docs/variations.md", "docs/reference/switches.md", "docs/reference/rules.md"]
)
def test_a_page_is_what_its_table_says(docs: ModuleType, name: str) -> None:
    made = docs.PAGES[name]()
    assert (ROOT / name).read_text(encoding="utf-8") == made, f"{name} is out of date: run python tools/docs.py"


def test_an_old_page_is_noticed(docs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs/reference").mkdir(parents=True)
    for name, make in docs.PAGES.items():
        (tmp_path / name).write_text(make(), encoding="utf-8")
    assert docs.find_outdated_pages(tmp_path) == []
    (tmp_path / "docs/causes.md").write_text(docs.render_causes_page() + "by hand\n", encoding="utf-8")
    (tmp_path / "docs/variations.md").unlink()
    assert docs.find_outdated_pages(tmp_path) == ["docs/causes.md", "docs/variations.md"]


def test_everything_has_a_heading_and_a_text(docs: ModuleType) -> None:
    causes, variations = docs.render_causes_page(), docs.render_variations_page()
    for cause in CAUSES:
        assert re.search(rf"^## {cause.kind}\n\n\w", causes, re.M) or f"## {cause.kind}\n\n`" in causes
        assert cause.doc and cause.fix
    kinds = {cause.kind for cause in CAUSES}
    for variation in VARIATIONS:
        assert f"\n## {variation.name}\n" in variations and variation.apply.__doc__
        assert variation.cause in kinds or variation.name == "rerun"
    switches = docs.render_switches_page()
    for switch in SWITCHES:
        assert f"\n## {switch.name}\n\n{switch.what[:20]}" in switches and f"](#{switch.name})" in switches


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as they are made where Markdown is shown."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", OWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        inside = re.fullmatch(rf"{REPOSITORY}/(?:blob|tree|raw)/main/(.*)|{RAW}/main/(.*)", path)
        if "://" in path and inside is None:
            continue
        there = ROOT / (inside[1] or inside[2]) if inside else (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page.name}: {target}"


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert re.findall(r"^\| \[\d{4}\]\((\S+)\)", index, re.MULTILINE) == records


def test_the_page_of_results_is_what_the_files_say() -> None:
    subprocess.run([sys.executable, ROOT / "benchmarks" / "result_tables.py", "page", "--check"], check=True)


def test_one_version_everywhere() -> None:
    """It stands in the package; what cannot be made from it agrees."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.M) == [samerun.__version__]
    assert re.search(r"^## (\S+)", changelog, re.M)[1] == samerun.__version__  # type: ignore[index]
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_page_is_on_the_site() -> None:
    """Decisions are reached from their index; all others stand in the navigation."""
    pages = {
        str(page.relative_to(ROOT / "docs"))
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name != "decisions"
    }
    listed = set(re.findall(r"^ +- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    assert listed == pages | {"decisions/README.md"}
