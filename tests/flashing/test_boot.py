# SPDX-License-Identifier: Apache-2.0
"""What starts the first boot: what is found on a boot partition, and how its files are added to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hardcase.flashing.boot import FIRST, find, is_hooked
from hardcase_edge.errors import InputError
from tests.helpers.cards import CLOUD_INIT, RASPBERRY_PI

CALL = "for d in /boot/firmware /boot; do [ -f $d/hardcase/first.sh ] && { sh $d/hardcase/first.sh %s; break; }; done"


def after(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, **find(files.get, "card").files}


def test_cloud_init_runs_the_script_at_every_boot_until_it_is_done() -> None:
    hook = find(CLOUD_INIT.get, "card")
    assert hook.kind == "cloud-init"
    text = f"#cloud-config\n#hostname: pi\nbootcmd:\n  - '{CALL % 'cloud-init'}'\n"
    assert hook.files == {"user-data": text.encode()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("", "#cloud-config\nbootcmd:\n  - 'CALL'\n", id="empty"),
        pytest.param(
            "#cloud-config\nbootcmd:\n- echo one\nssh: x\n", "#cloud-config\nbootcmd:\n- 'CALL'\n- echo one\nssh: x\n",
            id="a list",
        ),
        pytest.param(
            "#cloud-config\nbootcmd: # mine\n  # first\n    - a\n",
            "#cloud-config\nbootcmd: # mine\n    - 'CALL'\n  # first\n    - a\n", id="a list that is indented",
        ),
        pytest.param(
            "#cloud-config\n---\n# x\nssh:\n  a: |\n   {\n\npackages:\n- b\n",
            "#cloud-config\n---\n# x\nssh:\n  a: |\n   {\n\npackages:\n- b\nbootcmd:\n  - 'CALL'\n", id="of an imager",
        ),
        pytest.param("#cloud-config\nruncmd: [a]", "#cloud-config\nruncmd: [a]\nbootcmd:\n  - 'CALL'\n", id="no end"),
    ],
)  # fmt: skip
def test_a_users_own_commands_stay(old: str, new: str) -> None:
    files = after({**CLOUD_INIT, "user-data": old.encode()})
    assert files["user-data"].decode() == new.replace("CALL", CALL % "cloud-init")


def test_raspberry_pi_os_runs_the_script_and_its_own_first_boot_before() -> None:
    files = after(RASPBERRY_PI)
    assert files["cmdline.txt"] == (
        b"console=tty1 root=PARTUUID=1-02 rootwait quiet init=/usr/lib/raspberrypi-sys-mods/firstboot "
        b"systemd.run=/boot/firmware/firstrun.sh systemd.run_success_action=reboot "
        b"systemd.unit=kernel-command-line.target\n"
    )
    assert files["firstrun.sh"].startswith(f"#!/bin/sh\n{CALL % 'firstrun'}\n".encode())


def test_the_imagers_own_firstrun_stays_and_ours_comes_first() -> None:
    line = b"quiet systemd.run=/boot/firstrun.sh systemd.unit=kernel-command-line.target\n"
    files = after({**RASPBERRY_PI, "cmdline.txt": line, "firstrun.sh": b"#!/bin/bash\nset +e\nhostname pi\n"})
    assert files["cmdline.txt"] == line
    assert files["firstrun.sh"] == f"#!/bin/bash\n{CALL % 'firstrun'}\nset +e\nhostname pi\n".encode()


def test_custom_toml_stays_and_is_spoken_of() -> None:
    hook = find({**RASPBERRY_PI, "custom.toml": b"config_version = 1\n"}.get, "card")
    assert list(hook.files) == ["firstrun.sh", "cmdline.txt"]
    assert hook.notes == ("custom.toml stays as it is; firstrun.sh starts what was flashed",)


@pytest.mark.parametrize("files", [CLOUD_INIT, RASPBERRY_PI], ids=["cloud-init", "firstrun"])
def test_a_second_flash_changes_nothing(files: dict[str, bytes]) -> None:
    once = after(files)
    assert after(once) == once
    assert is_hooked(once.get) == find(files.get, "card").kind
    assert is_hooked(files.get) == ""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"kernel.img": b""}, "but none of these files; use ssh://", id="nothing"),
        pytest.param({"config.txt": b""}, "but config.txt; use ssh://", id="half of one"),
        pytest.param(
            {**RASPBERRY_PI, "issue.txt": b"Raspberry Pi reference 2022-09-22\n"},
            "Raspberry Pi OS of 2022-09, with a Python older than 3.11", id="an old one",
        ),
        pytest.param({**CLOUD_INIT, "user-data": b"#!/bin/sh\n"}, "is not a #cloud-config", id="a script"),
        pytest.param(
            {**CLOUD_INIT, "user-data": b"#cloud-config\nbootcmd: [a, b]\n"}, "bootcmd on one line", id="a flow list"
        ),
        *(
            pytest.param({**CLOUD_INIT, "user-data": b"#cloud-config" + rest}, "keys at the beginning of lines", id=id_)
            for rest, id_ in (
                (b'\n{"users": ["default"]}\n', "JSON"), (b"-archive\n- content: x\n", "an archive"),
                (b"\n  users: [default]\n", "indented keys"), (b'\n"bootcmd":\n- a\n', "a quoted bootcmd"),
                (b"\nusers: [default]\n...\n", "its end is marked"), (b"\n- users\n", "a list"),
            )
        ),
        pytest.param({**CLOUD_INIT, "user-data": b"\xff"}, "user-data is not text in UTF-8", id="no text"),
        pytest.param(
            {**RASPBERRY_PI, "cmdline.txt": b"quiet systemd.run=/boot/other.sh\n"}, "runs another program first",
            id="another first program",
        ),
        pytest.param(
            {**RASPBERRY_PI, "cmdline.txt": b"quiet\n# was: splash\n"}, "has 2 lines, of which a boot",
            id="a second line",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_added_to_is_refused_in_one_line(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(InputError) as error:
        find(files.get, "card")
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_the_commands_are_a_shells(tmp_path: Path) -> None:
    """Our own firstrun.sh ends well, takes itself out of the kernel's command line, and is gone.

    It writes over the line in place: a new file in its name could be empty after a power cut, and nothing would boot.
    """
    files = after(RASPBERRY_PI)
    boot = tmp_path / "boot"
    (boot / "hardcase").mkdir(parents=True)
    (boot / "cmdline.txt").write_bytes(files["cmdline.txt"])
    script = files["firstrun.sh"].decode().replace("/boot/firmware /boot", str(boot))
    (boot / "firstrun.sh").write_text(script)
    (boot / "hardcase" / "first.sh").write_text(f"echo $1 >{tmp_path}/how\n")
    before = (boot / "cmdline.txt").stat()
    subprocess.run(["sh", str(boot / "firstrun.sh")], check=True, timeout=120)
    assert (tmp_path / "how").read_text() == "firstrun\n"
    line, after_it = (boot / "cmdline.txt").read_bytes(), (boot / "cmdline.txt").stat()
    assert line.rstrip() + b"\n" == RASPBERRY_PI["cmdline.txt"]
    assert (after_it.st_ino, after_it.st_size) == (before.st_ino, before.st_size)
    assert not (boot / "firstrun.sh").exists()


def test_a_system_without_python_says_so_where_the_card_is_read(tmp_path: Path) -> None:
    (tmp_path / "first.sh").write_text(FIRST)
    for tool in ("dirname", "sync"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "first.sh"), "hand"], env={"PATH": str(tmp_path)}, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "this system has no python3" in (tmp_path / "log.txt").read_text()
