"""Write native/conformance/vectors.txt from the slow reference: `python tools/conformance.py`; `--check` only looks.

The rows of a released version never change: a new version of the specification gets new rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from samerun.numerics import conformance, library

VECTORS = Path(__file__).resolve().parents[1] / "native" / "conformance" / "vectors.txt"


def main() -> int:
    library.force_level(library.REFERENCE)
    text = "".join(f"{row}\n" for row in conformance.rows())
    if "--check" in sys.argv:
        return int(VECTORS.read_text(encoding="utf-8") != text)
    VECTORS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
