# SPDX-License-Identifier: Apache-2.0
"""What starts the first boot's script: cloud-init or Raspberry Pi OS, found by the files of a boot partition. No I/O.

cloud-init runs ``bootcmd`` of ``user-data`` at every boot, so what a power cut has stopped goes on at the next one.
Raspberry Pi OS before cloud-init runs ``firstrun.sh``, which the kernel's command line names until it has ended well.
``custom.toml`` has no key that starts a program: it stays as it is, and ``firstrun.sh`` comes beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from hardcase_edge.errors import InputError

FOLDER = "hardcase"
MAX_TEXT_BYTES = 262_144  # of user-data, cmdline.txt or firstrun.sh
PYTHON_SINCE = "2023-10"  # the first Raspberry Pi OS with Python 3.11
FIRST = """\
#!/bin/sh
# Puts down, once and without a network, what `hardcase flash` left in this folder.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
[ -f "$here/done.txt" ] && exit 0
{
    if command -v python3 >/dev/null; then
        python3 -I "$here/card.pyz" "$here" "$@"
    else
        echo "hardcase needs Python 3.11 or later, and this system has no python3"
        false
    fi
} >"$here/log.txt" 2>&1
status=$?
sync
exit $status
"""
_CALL = "for d in /boot/firmware /boot; do [ -f $d/hardcase/first.sh ] && { sh $d/hardcase/first.sh %s; break; }; done"
_COMMAND = (
    "systemd.run=/boot/firmware/firstrun.sh systemd.run_success_action=reboot systemd.unit=kernel-command-line.target"
)
_KEY = r"[A-Za-z_][\w-]*\s*:(?:\s|$)"  # of YAML, at the beginning of a line
_END = """\
for d in /boot/firmware /boot; do
    [ -f $d/cmdline.txt ] || continue
    line=$(sed 's| systemd\\.[^ ]*||g' $d/cmdline.txt)
    # Over the old line, in as many bytes, and flushed: a power cut leaves either line, with the old one this script.
    n=$(($(wc -c <$d/cmdline.txt) - 1))
    printf "%-${n}s\\n" "$line" | dd of=$d/cmdline.txt bs=4096 conv=notrunc,fsync 2>/dev/null || continue
    rm -f $d/firstrun.sh && break
done
exit 0
"""

Reader = Callable[[str], bytes | None]


class Hook(NamedTuple):
    """What was found, what to write for it (in this order), and what a user should know."""

    kind: str  # "cloud-init" or "firstrun"
    files: dict[str, bytes]
    notes: tuple[str, ...] = ()


def find(read: Reader, name: str) -> Hook:
    """The hook for a boot partition.

    Parameters
    ----------
    read : gives a file's bytes, or None; names have no folder
    name : of the target, for messages

    Raises
    ------
    InputError
        Neither system is there, it is too old, or its files cannot be added to.
    """
    command, user_data = _text(read, "cmdline.txt"), _text(read, "user-data")
    is_cloud_init = user_data is not None and (read("meta-data") is not None or "ds=nocloud" in (command or ""))
    is_pi = command is not None and read("config.txt") is not None
    if is_cloud_init and user_data is not None:
        return Hook("cloud-init", {"user-data": _with_command(user_data, name).encode()})
    if is_pi and command is not None:
        issue = re.search(r"Raspberry Pi reference (\d{4}-\d\d)", _text(read, "issue.txt") or "")
        if issue and issue[1] < PYTHON_SINCE:
            raise InputError(
                f"{name} has Raspberry Pi OS of {issue[1]}, with a Python older than 3.11; flash a newer one"
            )
        notes = ("custom.toml stays as it is; firstrun.sh starts what was flashed",) if read("custom.toml") else ()
        first = _text(read, "firstrun.sh")
        return Hook(
            "firstrun",
            {"firstrun.sh": _with_call(first).encode(), "cmdline.txt": _with_run(command, name).encode()},
            notes,
        )
    files = [n for n in ("cmdline.txt", "config.txt", "user-data", "meta-data") if read(n) is not None]
    raise InputError(
        f"{name} has a system that is not known: neither cloud-init (user-data with meta-data) nor Raspberry Pi OS "
        f"(cmdline.txt with config.txt) is there, but {', '.join(files) or 'none of these files'}; use ssh:// or the "
        "folder of its mounted root"
    )


def is_hooked(read: Reader) -> str:
    """Which system will run the first boot's script; "" if none will."""
    if FOLDER + "/first.sh" in (_text(read, "user-data") or ""):
        return "cloud-init"
    is_called = FOLDER + "/first.sh" in (_text(read, "firstrun.sh") or "")
    return "firstrun" if is_called and "/firstrun.sh" in (_text(read, "cmdline.txt") or "") else ""


def _text(read: Reader, name: str) -> str | None:
    data = read(name)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not text in UTF-8; write the card's system again") from error


def _with_command(text: str, name: str) -> str:
    """``user-data`` with the call among its ``bootcmd``."""
    call = "'" + _CALL % "cloud-init" + "'"
    if f"/{FOLDER}/first.sh" in text:
        return text
    if text.strip() and not _is_block(text):
        raise InputError(
            f"user-data on {name} is not a #cloud-config with its keys at the beginning of lines; add a bootcmd to it "
            "by hand (docs/flashing.md)"
        )
    lines = text.rstrip("\n").split("\n") if text.strip() else ["#cloud-config"]
    at = next((k for k, line in enumerate(lines) if re.match(r"bootcmd\s*:", line)), None)
    if at is None:
        return "\n".join([*lines, "bootcmd:", f"  - {call}", ""])
    if not re.fullmatch(r"bootcmd\s*:\s*(#.*)?", lines[at]):
        raise InputError(f"user-data on {name} has bootcmd on one line; write it as a list, one command per line")
    item = next(
        (re.match(r"(\s*)- ", line) for line in lines[at + 1 :] if line.strip() and line.strip()[0] != "#"), None
    )
    indent = item[1] if item else "  "
    return "\n".join([*lines[: at + 1], f"{indent}- {call}", *lines[at + 1 :], ""])


def _is_block(text: str) -> bool:
    """Whether this is YAML of keys in the block style, to which another key may be added as a line.

    JSON, an archive, an indented mapping or a quoted key, which may be bootcmd, would not be read as it was any more.
    """
    head, *rest = text.rstrip().split("\n")
    lines = [line for line in rest if line.strip() and line.lstrip()[0] != "#"]
    lines = lines[lines[:1] == ["---"] :]
    is_begun = not lines or re.match(_KEY, lines[0]) is not None
    outer = [line for line in lines if not line[0].isspace()]
    return head.rstrip() == "#cloud-config" and is_begun and all(re.match(rf"{_KEY}|-(?:\s|$)", line) for line in outer)


def _with_run(command: str, name: str) -> str:
    """``cmdline.txt``, which is one line, with the call of ``firstrun.sh``."""
    lines = [line for line in command.splitlines() if line.strip()]
    if len(lines) > 1:
        raise InputError(f"cmdline.txt on {name} has {len(lines)} lines, of which a boot takes one; delete the others")
    line = " ".join(command.split())
    ours = "systemd.run=" in line
    if ours and not re.search(r"systemd\.run=\S*/firstrun\.sh\b", line):
        raise InputError(f"cmdline.txt on {name} runs another program first (systemd.run=); boot it once, then flash")
    return (line if ours else f"{line} {_COMMAND}") + "\n"


def _with_call(text: str | None) -> str:
    """``firstrun.sh`` with the call in front of what it does; one of our own where there is none."""
    if text is not None and f"/{FOLDER}/first.sh" in text:
        return text
    call = _CALL % "firstrun"
    if text is None or not text.strip():
        return f"#!/bin/sh\n{call}\n{_END}"
    head, _, rest = text.partition("\n") if text.startswith("#!") else ("#!/bin/sh", "", text)
    return f"{head}\n{call}\n{rest}"
