# SPDX-License-Identifier: Apache-2.0
"""The table of all keys that `make docs` puts into docs/configuration.md, from what is stated of each setting.

python tests/house/configuration.py    prints it
"""

from __future__ import annotations

from hardcase_train.settings.toml import STATED

PLACE = "<!-- settings -->\n"  # where docs/configuration.md has the table on the site


def table() -> str:
    """Markdown: a row for each key, in the order of the records."""
    lines = ["| section | key | meaning | default |", "|---|---|---|---|"]
    for section, known in STATED.items():
        place = f"`[[{section}]]`" if section == "sensor" else f"`[{section}]`"
        for key, (_, one) in known.items():
            more = f" ([more]({one.page}))" if one.page else ""
            lines.append(f"| {place} | `{key}` | {one.sentence}{more} | {one.absence} |")
            place = ""
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table())
