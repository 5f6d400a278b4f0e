# SPDX-License-Identifier: Apache-2.0
"""Keys and signatures: a device trusts what its key signed, and nothing else."""

from __future__ import annotations

import argparse
import json
import os
import random
import stat
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from hardcase.verbs import keygen
from hardcase_edge.bundle import signature
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.signature import (
    SIGNATURE_BYTES,
    check_signature,
    make_keys,
    public_key_of,
    sign,
    signature_path,
)
from hardcase_edge.errors import InputError, SignatureError
from hardcase_export.bundle import export_bundle
from tests.helpers.export.builds import make_build


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return make_build(tmp_path_factory.mktemp("keys") / "build")


@pytest.fixture
def keys(tmp_path):
    make("--out", str(tmp_path / "ours"))
    return tmp_path / "ours.key", tmp_path / "ours.pub"


@pytest.fixture
def signed(build, tmp_path, keys):
    export_bundle(build, tmp_path / "model.hcb", max_loss=0.01, key=keys[0])
    return tmp_path / "model.hcb"


def clean_environment():
    """This process's search path, without what site packages load at a start."""
    return {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}


def make(*argv):
    parser = argparse.ArgumentParser()
    keygen.arguments(parser)
    return keygen.run(parser.parse_args(argv))


def test_a_pair_signs_and_checks(keys):
    secret, shared = (path.read_bytes() for path in keys)
    check_signature(b"some bytes", sign(b"some bytes", secret), shared)


def test_only_its_owner_reads_the_private_key(keys):
    assert stat.S_IMODE(os.stat(keys[0]).st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_private_key_that_others_can_reach_signs_nothing(build, tmp_path, keys, mode):
    keys[0].chmod(mode)
    with pytest.raises(InputError, match=r"ours.key can be read by other users; keep it to yourself: chmod 600 /"):
        export_bundle(build, tmp_path / "model.hcb", max_loss=0.01, key=keys[0])
    assert not (tmp_path / "model.hcb").exists()
    keys[0].chmod(0o400)
    assert export_bundle(build, tmp_path / "model.hcb", max_loss=0.01, key=keys[0]).is_signed


@pytest.mark.parametrize("ending", ["key", "pub"])
def test_an_existing_key_is_never_overwritten_and_nothing_else_is_left(tmp_path, ending):
    (tmp_path / f"ours.{ending}").write_text("precious")
    with pytest.raises(InputError, match="a key is never overwritten"):
        make("--out", str(tmp_path / "ours"))
    assert [p.name for p in tmp_path.iterdir()] == [f"ours.{ending}"]
    assert (tmp_path / f"ours.{ending}").read_text() == "precious"


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        make("--out", str(tmp_path / "no" / "ours"))


def test_the_report_names_both_files(tmp_path, capsys):
    assert make("--out", str(tmp_path / "ours"), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "private": str(tmp_path / "ours.key"),
        "public": str(tmp_path / "ours.pub"),
    }


# ---------------------------------------------------------------- what a device with a key does


def test_a_signed_bundle_is_loaded(signed, keys):
    assert load_bundle(signed, trust=keys[1]).manifest.name == "three blobs"


@pytest.mark.parametrize(("of", "at"), [(Path, 200), *((signature_path, k) for k in (0, 31, 32, SIGNATURE_BYTES - 1))])
def test_a_flipped_bit_in_the_bundle_or_its_signature_is_refused(signed, keys, of, at):
    raw = bytearray(of(signed).read_bytes())
    raw[at] ^= 1
    of(signed).write_bytes(raw)
    with pytest.raises(SignatureError):
        load_bundle(signed, trust=keys[1])


def test_one_of_several_signatures_suffices_and_more_than_eight_are_refused(signed, keys):
    path = signature_path(signed)
    right, other = path.read_bytes(), bytes(SIGNATURE_BYTES)
    for content in (right + other, other * 7 + right):
        path.write_bytes(content)
        assert load_bundle(signed, trust=keys[1]).manifest.name == "three blobs"
    for content in (other * 8, other * 8 + right, right + b"x"):
        path.write_bytes(content)
        with pytest.raises(SignatureError):
            load_bundle(signed, trust=keys[1])


def test_an_export_after_interrupted_ones_leaves_its_own_signature_alone(build, signed, keys):
    path = signature_path(signed)
    path.write_bytes(bytes(SIGNATURE_BYTES) * 7 + path.read_bytes())
    export_bundle(build, signed, max_loss=0.01, key=keys[0])
    assert len(path.read_bytes()) == SIGNATURE_BYTES
    assert load_bundle(signed, trust=keys[1]).manifest.name == "three blobs"


def test_a_private_key_whose_public_key_is_missing_gets_it_again(tmp_path, keys):
    public = keys[1].read_bytes()
    private = keys[0].read_bytes()
    keys[1].unlink()  # as a run leaves it that is killed between the two
    make("--out", str(tmp_path / "ours"))
    assert (keys[0].read_bytes(), keys[1].read_bytes()) == (private, public)


@pytest.mark.parametrize(
    ("size", "said"),
    [*((n, "bytes") for n in (0, SIGNATURE_BYTES - 1, SIGNATURE_BYTES + 1, 100_000)), (None, "no sig")],
)
def test_a_missing_signature_or_one_of_the_wrong_length_is_refused_where_a_key_is_trusted(signed, keys, size, said):
    signature_path(signed).unlink() if size is None else signature_path(signed).write_bytes(b"x" * size)
    load_bundle(signed)
    with pytest.raises(SignatureError, match=said):
        load_bundle(signed, trust=keys[1])


@pytest.mark.parametrize("has_openssl", [True, False])
def test_a_signature_is_checked_alike_with_and_without_cryptography(signed, keys, monkeypatch, has_openssl):
    if not has_openssl:
        for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
            monkeypatch.setitem(sys.modules, name, None)
    checks = []
    real = signature.is_signed
    monkeypatch.setattr(signature, "is_signed", lambda *a, **k: checks.append(1) or real(*a, **k))
    assert load_bundle(signed, trust=keys[1]).manifest.name == "three blobs"
    assert bool(checks) is not has_openssl
    data = bytearray(signed.read_bytes())
    data[-1] ^= 1
    signed.write_bytes(data)
    with pytest.raises(SignatureError, match="not signed by the trusted key"):
        load_bundle(signed, trust=keys[1])


def test_a_device_with_a_key_loads_no_package_for_it(signed, keys):
    code = (
        "import sys; from hardcase_edge.bundle.load import load_bundle; "
        f"load_bundle({str(signed)!r}, trust={str(keys[1])!r}); "
        "print({'cryptography', 'ssl', 'hashlib', 'base64', 'pathlib'} & set(sys.modules))"
    )
    made = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=clean_environment())
    assert (made.stdout, made.stderr) == ("set()\n", "")


@pytest.mark.parametrize("work", [make_keys, lambda: sign(b"", b"")], ids=["make", "sign"])
def test_without_cryptography_keys_and_signatures_are_one_clear_line(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(InputError, match="cryptography package is missing"):
        work()


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", InputError, "not a PEM public key"),
        (b"not a key", InputError, "not a PEM public key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", InputError, "not a PEM public key"),
        (make_keys()[1], SignatureError, "not signed by the trusted key"),
    ],
    ids=["empty", "text", "short", "another"],
)
def test_a_trusted_key_that_is_none_or_another_is_one_line(signed, tmp_path, content, error, said):
    (tmp_path / "odd.pub").write_bytes(content)
    with pytest.raises(error, match=said):
        load_bundle(signed, trust=tmp_path / "odd.pub")


def pem(body, label=b"PUBLIC KEY"):
    return b"-----BEGIN " + label + b"-----\n" + body + b"\n-----END " + label + b"-----\n"


def test_a_public_key_has_one_form_only(keys):
    good = keys[1].read_bytes()
    body = good.splitlines()[1]
    key = public_key_of(good)
    raw = b64decode(body)
    assert (raw[-32:], len(raw)) == (key, 44)
    for same in (good, good[:-1], good.replace(b"\n", b"\r\n"), pem(body[:20] + b"\n" + body[20:])):
        assert public_key_of(same) == key
    not_a_point = (2).to_bytes(32, "little")
    above_p = (2**255 - 18).to_bytes(32, "little")  # the neutral point, as y + p
    for wrong in (
        b"x" + good, good + b"x", b"\n" + good, good + good, good + b"\n", pem(body[:-4]), pem(body + b"AAAA"),
        pem(body.replace(b"=", b"")), pem(body + b" "), pem(b"!" + body), pem(body, b"PRIVATE KEY"), pem(b""),
        pem(b64encode(b"\0" + raw[1:])), pem(b64encode(raw + b"\0")), pem(b64encode(raw[:-1])),
        pem(b64encode(raw[:12] + not_a_point)), pem(b64encode(raw[:12] + above_p)),
    ):  # fmt: skip
        with pytest.raises(InputError, match="trusted key is") as refusal:
            public_key_of(wrong)
        assert "\n" not in str(refusal.value)


def test_whatever_public_key_is_read_openssl_reads_alike():
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    rng, read = random.Random(5), 0
    good = make_keys()[1]
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 3)):
            data[rng.randrange(27, 90)] = rng.choice(b"ABab01+/=\n")
        try:
            key = public_key_of(bytes(data))
        except InputError:
            continue
        read += 1
        assert load_pem_public_key(bytes(data)).public_bytes_raw() == key
    assert read > 20


def test_keys_are_not_taken_for_one_another(signed, keys):
    with pytest.raises(InputError, match="public key"):
        load_bundle(signed, trust=keys[0])
    with pytest.raises(InputError, match="private key"):
        sign(b"some bytes", keys[1].read_bytes())


def test_a_key_of_another_kind_is_named():
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(InputError, match="Ed25519"):
        sign(b"", private)
    with pytest.raises(InputError, match="Ed25519"):
        check_signature(b"", b"x" * SIGNATURE_BYTES, public)
