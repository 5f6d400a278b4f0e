# SPDX-License-Identifier: Apache-2.0
"""What goes on a card: the runtime and paho as they are installed here, kernels, the checked bundle, unit, identity.

Everything is checked before a byte is written anywhere; docs/flashing.md has the list of files.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import hardcase_edge
from hardcase_edge.base.clock import Clock
from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.ed25519 import SIGNATURE_BYTES
from hardcase_edge.bundle.file import read_bundle_bytes
from hardcase_edge.bundle.load import load_bundle, load_bytes
from hardcase_edge.bundle.signature import MAX_KEY_BYTES, MAX_SIGNATURES, signature_path
from hardcase_edge.cli import run_config
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.card.places import RUNTIME, STORE
from hardcase_edge.fleet.identity.folder import read_files
from hardcase_edge.fleet.operations.unit import unit
from hardcase_edge.fleet.release.archive import pack_archive, zip_of
from hardcase_edge.fleet.store.metadata import MAX_METADATA_BYTES
from hardcase_edge.fleet.store.repository import read_repository
from hardcase_edge.fleet.store.trust import first_trust, release_of, updated
from hardcase_edge.running.service import STATE, check_files, check_on, check_service
from hardcase_edge.settings.config import RunConfig, changed
from hardcase_edge.settings.run_toml import text_of
from hardcase_edge.settings.table import RUN_TOML

COMMAND = ("/usr/local/bin/hardcase-edge", "run", "--config", RUN_TOML)
RUNTIME_FILES = (".py", ".typed", ".c", ".h", ".service")
MAX_EXTRA_BYTES = 16 * 1024 * 1024
_EXTRA = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
MAX_METADATA_FILES = 80  # 64 roots and the rest
MAIN = """\
import sys
if sys.version_info < (3, 11):
    sys.exit("hardcase needs Python 3.11 or later, and this system has %d.%d" % sys.version_info[:2])
from hardcase_edge.fleet.card.install import main
sys.exit(main(sys.argv[1:]))
"""


class Card(NamedTuple):
    """What is written, before it is known where."""

    archive: bytes  # card.pyz
    identity: bytes  # identity.zip; empty for none
    bundle: str  # its SHA-256, in hex
    name: str  # its name
    kernels: tuple[str, ...]


def make_card(
    bundle: str | Path,
    arguments: Sequence[str],
    kernels: Mapping[str, bytes],
    identity: Mapping[str, bytes],
    *,
    trust: str | Path | None = None,
    root: str | Path | None = None,
    metadata_folder: str | Path | None = None,
    extra: Sequence[str | Path] = (),
    devices: Sequence[str] = (),
    groups: Sequence[str] = (),
    sensors: Sequence[str] = (),
) -> Card:
    """Check what a user gives, and make a card's files.

    Parameters
    ----------
    arguments : of ``hardcase-edge run``, besides the store
    kernels : shared objects by processor
    identity : files of the device's identity by their paths in its folder
    trust : public key in PEM that must have signed the bundle
    root, metadata_folder : the first root of TUF metadata, and the folder with the rest
    extra : files that the arguments name, such as a sensor's module, which go beside the runtime
    devices, groups, sensors : what the service may open below /dev, as of ``unit``

    Raises
    ------
    HardcaseError
        The bundle is damaged or not signed, or a file cannot be read.
    """
    data = read_bundle_bytes(bundle)
    loaded = load_bundle(bundle, trust=trust, allow_joint=True) if trust else load_bytes(data, allow_joint=True)
    digest = hashlib.sha256(data).hexdigest()
    if loaded.bundle.sha256 != digest:
        raise InputError(f"{bundle} was changed while it was read; flash again")
    files = {"__main__.py": MAIN.encode(), **runtime_files(), **paho_files(), "card/model.hcb": data}
    if signature_path(bundle).exists():
        limit = MAX_SIGNATURES * SIGNATURE_BYTES
        files["card/model.hcb.sig"] = read_bounded(
            signature_path(bundle), limit, "signature", remedy="copy the .sig file again"
        )
    if trust is not None:
        files["card/trust.pub"] = read_bounded(trust, MAX_KEY_BYTES, "public key", remedy="name the fleet's .pub file")
    files |= _metadata(root, metadata_folder, data) | extra_files(extra, files)
    files |= {f"card/kernels/{name}.so": kernel for name, kernel in sorted(kernels.items())}
    files["card/run.toml"] = run_toml(arguments, trust=trust is not None).encode()
    files["card/hardcase-edge.service"] = unit(COMMAND, devices=devices, groups=groups, sensors=sensors).encode()
    zipped = zip_of(dict(sorted(identity.items()))) if identity else b""
    about = {
        "runtime": hardcase_edge.__version__,
        "bundle": digest,
        "name": loaded.manifest.name,
        "run": list(arguments),
        "identity": hashlib.sha256(zipped).hexdigest() if zipped else "",
    }
    return Card(pack_archive(files, about), zipped, digest, loaded.manifest.name, tuple(sorted(kernels)))


def parsed_arguments(arguments: Sequence[str]) -> RunConfig:
    """The settings of ``hardcase-edge run`` on the device, with its store; arguments that ``run`` refuses are refused.

    Raises
    ------
    InputError
        They are not arguments of it, or name a bundle, a store or a key, which are put by flashing.
    """
    if not arguments:
        raise InputError("name how the device runs, such as --run '--sensors thermal: --interval 60'")
    if any(ord(c) < 32 or ord(c) == 127 for a in arguments for c in a):
        raise InputError("--run has a line break or another control character in it; leave it out")
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            config = run_config(["run", *arguments])
        except SystemExit:
            reason = " ".join(errors.getvalue().split()).removeprefix("hardcase-edge: ")
            raise InputError(f"--run: {reason or 'it asks for help'}") from None
    if config.bundle is not None or config.store is not None or config.trust is not None:
        raise InputError("--run names a bundle, a store or a key; flashing puts these itself (--trust of flash)")
    config = changed(config, store=STATE)
    try:
        check_service(config)
    except InputError as error:
        raise InputError(f"--run: {error}") from error
    return config


def run_toml(arguments: Sequence[str], *, trust: bool) -> str:
    """The text of a device's settings: the arguments of ``run``, its store, and the fleet's key if it has one."""
    key = "/etc/hardcase/trust.pub" if trust else None
    return text_of(changed(run_config(["run", *arguments]), store=STATE, trust=key))


def check_device(
    run: RunConfig,
    bundle: str | Path,
    *,
    trust: str | Path | None = None,
    extra: Sequence[str | Path] = (),
    identity: str | Path | None = None,
) -> None:
    """Refuse what keeps a device from starting that has this bundle, these files and this identity, and nothing else.

    The device's folders are a temporary one with links to the files, which the runtime's own checks look at.

    Raises
    ------
    HardcaseError
        The bundle cannot be used, or a file, a module or the identity is not for these arguments.
    """
    loaded = load_bundle(bundle, trust=trust, allow_joint=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        modules, state = root / RUNTIME, root / STORE
        modules.mkdir(parents=True)
        state.mkdir(parents=True)
        (modules / "hardcase_edge").symlink_to(Path(hardcase_edge.__file__).parent)
        for name, path in _checked_extra(extra, ["hardcase_edge"]).items():
            (modules / name).symlink_to(path.absolute())
        if identity is not None:
            (state / "identity").symlink_to(Path(identity).absolute())
        try:
            check_files(run, folder, is_whole=True, remedy=f"give it with --file, which puts it into /{RUNTIME}")
            check_on(run, loaded, root)
        except InputError as error:
            raise InputError(f"--run: {error}") from error


def identity_files(folder: str | Path) -> dict[str, bytes]:
    """The files of an identity or a claim, as ``hardcase ca`` makes them and the device reads them.

    Raises
    ------
    InputError
        The device could not use it, it has ended, or others can read a key.
    """
    return read_files(folder, Clock().now())


def what_it_lacks(
    extra: Sequence[str | Path], root: Path | None, *, is_claim: bool, has_openssl: bool | None
) -> list[str]:
    """What a device needs that flashing does not put on it, in lines.

    Parameters
    ----------
    extra : the files beside the runtime, whose Python is parsed and not imported
    root : of the system there, where it can be read
    is_claim : whether the device makes its own key
    has_openssl : whether the command is there; None: nobody knows
    """
    there = {"hardcase_edge", "paho", *sys.stdlib_module_names, *(Path(p).name.partition(".")[0] for p in extra)}
    notes = []
    for path in map(Path, extra):
        names = sorted(_imports(path) - there) if path.suffix == ".py" else []
        lacking = [name for name in names if root is None or not _is_installed(root, name)]
        if lacking:
            where = "the card may lack" if root is None else f"the system in {root} lacks"
            notes.append(
                f"{path.name} imports {', '.join(lacking)[:200]}, which {where}: the device cannot start without; "
                "install it there, such as apt install python3-numpy, or give its file with --file"
            )
    if is_claim and not has_openssl:
        lacks = "which may be missing there" if has_openssl is None else "which is missing there"
        notes.append(
            f"a claim needs the command openssl, {lacks}: apt install openssl, or flash a certificate "
            "(hardcase ca device)"
        )
    return notes


def _imports(path: Path) -> set[str]:
    """The packages that a module imports wherever it is used; what ``try`` stands around may be missing."""
    try:
        tree = ast.parse(read_bounded(path, MAX_EXTRA_BYTES, "module", remedy="name a small one"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()  # a data file, or a module that is refused where it is looked for
    names, todo = set[str](), list[ast.AST]([tree])
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Try):
            todo += [*node.orelse, *node.finalbody]
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            todo += ast.iter_child_nodes(node)
    return names


def _is_installed(root: Path, name: str) -> bool:
    """Whether a system's Python has a package, in the folders of Debian and of others."""
    folders = [f for usr in ("usr", "usr/local") for f in (root / usr / "lib").glob("python3*/*-packages")]
    return any((f / name).is_dir() or any(f.glob(f"{name}.*")) for f in folders)


def runtime_files() -> dict[str, bytes]:
    """The device's package as it is installed here, without what was compiled for this machine."""
    package = Path(hardcase_edge.__file__).parent
    paths = [p for p in sorted(package.rglob("*")) if p.suffix in RUNTIME_FILES and p.is_file()]
    files = {f"hardcase_edge/{p.relative_to(package).as_posix()}": p.read_bytes() for p in paths}
    version = hardcase_edge.__version__
    about = f"Metadata-Version: 2.1\nName: hardcase-edge\nVersion: {version}\n"
    return {**files, f"hardcase_edge-{version}.dist-info/METADATA": about.encode()}


def paho_files() -> dict[str, bytes]:
    """paho-mqtt as it is installed here: its modules, its metadata and its licence.

    Raises
    ------
    InputError
        It is not installed from a wheel.
    """
    try:
        listed = metadata.distribution("paho-mqtt").files or []
    except metadata.PackageNotFoundError:
        listed = []
    shipped = [f for f in listed if f.suffix in (".py", ".typed") or "licenses" in f.parts or f.name == "METADATA"]
    files = {f.as_posix(): f.locate() for f in shipped if f.parts[0].startswith("paho")}
    if "paho/mqtt/client.py" not in files:
        raise InputError("paho-mqtt is not installed here as a package, so its files cannot be put on a card: "
                         "pip install paho-mqtt")  # fmt: skip
    return {name: Path(str(path)).read_bytes() for name, path in files.items()}


def _checked_extra(paths: Sequence[str | Path], taken: Iterable[str]) -> dict[str, Path]:
    """The files besides the runtime by their names there, none of which may be ``taken``."""
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        if not _EXTRA.fullmatch(path.name):
            raise InputError(f"{path} has a name that cannot be put beside the runtime; rename it")
        if path.name in files or path.stem in {name.partition("/")[0].removesuffix(".py") for name in taken}:
            raise InputError(f"{path} has the name of another file beside the runtime; rename it")
        if not path.is_file():
            raise InputError(f"file {path} cannot be read: it is missing or no file; name a small file")
        files[path.name] = path
    return files


def extra_files(paths: Sequence[str | Path], taken: Iterable[str]) -> dict[str, bytes]:
    """The files besides the runtime by their names there, read and bounded, and none of them a private key.

    Raises
    ------
    InputError
        One cannot be read, is too large, is a private key, or has a name that is taken.
    """
    remedy, files = "name a small file", {}
    for path in _checked_extra(paths, taken).values():
        files[path.name] = read_bounded(path, MAX_EXTRA_BYTES, "file", remedy=remedy)
        if b"PRIVATE KEY" in files[path.name]:
            raise InputError(f"{path} is a private key; put it into the identity's folder (--identity)")
    if sum(map(len, files.values())) > MAX_EXTRA_BYTES:
        raise InputError(f"the files added to the runtime have more than {MAX_EXTRA_BYTES} bytes; leave some out")
    return files


def _metadata(root: str | Path | None, folder: str | Path | None, bundle: bytes) -> dict[str, bytes]:
    """The files of metadata for the card, of which a device that begins with this root takes this bundle."""
    if root is None:
        if folder is not None:
            raise InputError("--metadata needs the first root, which you vouch for: name it with --root")
        return {}
    if folder is None:
        raise InputError("--root needs the metadata that list the bundle: name their folder with --metadata")
    remedy = "copy the repository's metadata again"
    files = {"card/root.json": read_bounded(root, MAX_METADATA_BYTES, "metadata", remedy=remedy)}
    paths = sorted(Path(folder).glob("*.json"))
    if not 1 <= len(paths) <= MAX_METADATA_FILES:
        raise InputError(
            f"{folder} has {len(paths)} files of metadata, not 1 to {MAX_METADATA_FILES}; name another folder"
        )
    for path in paths:
        files[f"card/metadata/{path.name}"] = read_bounded(path, MAX_METADATA_BYTES, "metadata", remedy=remedy)
    _check_listed(files["card/root.json"], Path(folder), bundle)
    return files


def _check_listed(root: bytes, folder: Path, bundle: bytes) -> None:
    """Refuse metadata with which the device's store would not take this bundle."""
    trust, now = first_trust(root), Clock().now()
    new = read_repository(folder, trust.root)
    release_of(updated(trust, new.roots, new.timestamp, new.snapshot, new.targets, now=now), bundle, now=now)
