"""``make replay``: does the tree still emit what it emitted when the hashes were recorded?

    python tests/project/replay/run.py                      # compare all; exit status 1 where something differs
    python tests/project/replay/run.py --only models        # one group
    python tests/project/replay/run.py --dump before        # write the texts, to compare two trees by diff
    python tests/project/replay/run.py --update             # record: what is emitted now is what is meant

A refactoring keeps every hash. A change that means to emit other code records anew and says in its commit which groups
changed and why.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
sys.path[:0] = [str(p) for p in (HERE, HERE.parent, HERE.parent.parent / "op", HERE.parent.parent / "meta_schedule")]

from corpus import GROUPS, Case, texts_of  # noqa: E402 -- found by the path set above

#: Hashes of one case by stage.
Hashes = dict[str, str]


def hash_of(text: str) -> str:
    """Sixteen digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def replay(group: str, wanted: str = "", dump: Path | None = None) -> Iterator[tuple[str, Hashes]]:
    """Hashes of the cases of a group whose names contain ``wanted``."""
    for name, make in GROUPS[group]():
        if wanted in name:
            yield name, _hashes((name, make), dump and dump / group)


def _hashes(case: Case, folder: Path | None) -> Hashes:
    texts = texts_of(case[1])
    if folder is not None:
        for stage, text in texts.items():
            path = folder / f"{case[0].replace('/', '.')}.{stage.replace(' ', '_')}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return {stage: hash_of(text) for stage, text in texts.items()}


def recorded(group: str) -> dict[str, Hashes]:
    """What was recorded of a group."""
    path = RECORDED / f"{group}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def differences(want: dict[str, Hashes], got: dict[str, Hashes], complete: bool = True) -> list[str]:
    """One line for each case that differs, with its stages; cases that are missing or new count where all were run."""
    lines = []
    for name, hashes in got.items():
        known = want.get(name)
        if known is None:
            lines.append(f"{name}: new")
        elif known != hashes:
            stages = sorted(s for s in {*known, *hashes} if known.get(s) != hashes.get(s))
            lines.append(f"{name}: {', '.join(stages)}")
    return lines + ([f"{name}: gone" for name in want if name not in got] if complete else [])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(GROUPS), action="append", help="a group; may be given several times")
    parser.add_argument("--case", default="", help="only cases whose names contain this")
    parser.add_argument("--dump", type=Path, help="write the texts into this folder")
    parser.add_argument("--update", action="store_true", help="record the hashes instead of comparing with them")
    options = parser.parse_args()
    status = 0
    for group in options.only or GROUPS:
        got = dict(replay(group, options.case, options.dump))
        if options.update:
            kept = recorded(group) if options.case else {}
            RECORDED.mkdir(exist_ok=True)
            (RECORDED / f"{group}.json").write_text(json.dumps(kept | got, indent=0, sort_keys=True) + "\n")
            print(f"{group}: {len(got)} cases recorded")
            continue
        lines = differences(recorded(group), got, complete=not options.case)
        print(f"{group}: {len(got)} cases, {len(lines)} differ", *lines, sep="\n  ")
        status |= bool(lines)
    return status


if __name__ == "__main__":
    sys.exit(main())
