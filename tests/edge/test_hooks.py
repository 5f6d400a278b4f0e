# SPDX-License-Identifier: Apache-2.0
"""Hooks: parts of other packages are found by name, and whatever is wrong with one is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.hooks import hooked, load_hook
from tests.helpers.hooks import install


def test_what_packages_offer_is_found_in_alphabetical_order_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "hooks_a", "trials", {"b": "hooks_a:B", "a": "hooks_a:A"}, "1 / 0")
    assert list(hooked("trials")) == ["a", "b"]
    assert hooked("nothing") == {}


def test_one_name_of_two_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("hooks_a", "hooks_b"):
        install(tmp_path, monkeypatch, package, "trials", {"same": f"{package}:X"}, "X = 1")
    with pytest.raises(InputError, match=r"'same' .* hooks_[ab] \(.*\) and hooks_[ab] \(.*\); uninstall one"):
        hooked("trials")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("X = 1", "is a int, but a str is expected"),
        ("1 / 0", "cannot be loaded (division by zero)"),
        ("Y = 1", "cannot be loaded (module 'hooks_a' has no attribute 'X')"),
        ("raise SystemError('two\\nlines')", "cannot be loaded (two lines)"),
        ("raise SystemExit('no more')", "cannot be loaded (no more)"),
        ("X = 'a text'", "has no 'NOUN'"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_its_package(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "hooks_a", "trials", {"x": "hooks_a:X"}, source)
    with pytest.raises(InputError) as caught:
        load_hook(hooked("trials")["x"], str, "upper", "find", "NOUN")
    text = str(caught.value)
    assert said in text
    assert "hooks_a (hooks_a:X)" in text
    assert text.endswith("update or uninstall it")
    assert "\n" not in text
