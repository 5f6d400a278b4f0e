# SPDX-License-Identifier: Apache-2.0
"""Identity folders that are damaged, foreign or open to others; and openssl, which makes keys that nobody else sees."""

from __future__ import annotations

import stat
import time

import pytest

from hardcase_cloud.rollout.enrolment.certificates import read_request as read_asked
from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder
from hardcase_edge import __version__
from hardcase_edge.base.clock import Clock
from hardcase_edge.cli import main
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.identity import keys
from hardcase_edge.fleet.identity.der import from_pem, read_certificate, read_request
from hardcase_edge.fleet.identity.folder import Identities
from hardcase_edge.fleet.identity.keeper import Keeper
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.running.connecting import keeper_of, own_facts
from hardcase_edge.settings.config import RunConfig, changed
from tests.helpers.cloud.certificates import Authority
from tests.helpers.edge.device import EASY, make_bundle_bytes, write_replay


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return AuthorityFolder.init(tmp_path_factory.mktemp("a") / "authority", "test", int(time.time()))


@pytest.fixture
def folder(authority, tmp_path, request):
    name = f"pi-{abs(hash(request.node.name))}"
    authority.device(name, tmp_path / "identity", now=int(time.time()))
    return tmp_path / "identity"


def renewed(authority: AuthorityFolder, folder) -> Identities:
    """With a second identity, which no broker has accepted."""
    identities = Identities(folder)
    current = identities.current()
    opened = identities.begin(current.facts.name, current.ca)
    asked = read_asked(opened.request)
    answer = authority.exchange(asked.name, asked.name, asked.key, now=int(time.time()))
    identities.finish(opened.number, answer)
    return identities


def test_a_key_is_made_on_the_device_for_its_owner_only_and_the_request_is_for_its_name(folder):
    identities = Identities(folder)
    opened = identities.begin("pi-1", identities.current().ca)
    key = folder / "0002" / "key.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert read_request(opened.request)[0] == "pi-1"
    assert identities.begin("pi-1", identities.current().ca) == opened
    assert identities.begin("pi-10", identities.current().ca) != opened


def test_a_new_identity_waits_until_it_is_accepted(authority, folder):
    identities = renewed(authority, folder)
    assert (identities.current().number, identities.pending().number) == (1, 2)
    identities.accept(identities.pending())
    assert (identities.current().number, identities.pending()) == (2, None)


def test_a_certificate_of_another_authority_is_not_written(authority, folder, tmp_path):
    other = AuthorityFolder.init(tmp_path / "other", "test", int(time.time()))
    other.device("pi-1", tmp_path / "foreign", now=int(time.time()))
    identities = Identities(folder)
    opened = identities.begin("pi-1", identities.current().ca)
    foreign = from_pem((tmp_path / "foreign" / "0001" / "cert.pem").read_bytes())
    assert read_certificate(foreign).name == "pi-1"
    with pytest.raises(InputError, match="openssl verify failed"):
        identities.finish(opened.number, foreign)
    assert identities.begin("pi-1", identities.current().ca) == opened


def test_an_expired_certificate_and_one_of_the_future_are_still_the_authoritys(authority, tmp_path):
    for k, now in enumerate((1_000_000_000, 2_000_000_000)):
        authority.device(f"pi-time-{k}", tmp_path / str(k), now=now)
        place = tmp_path / str(k) / "0001"
        keys.check_issued((place / "cert.pem").read_bytes(), place / "ca.pem")


@pytest.mark.parametrize("damaged", ["current", "0002/cert.pem"])
def test_any_damaged_byte_of_pointer_or_certificate_leaves_an_identity_to_try(authority, folder, damaged):
    identities = renewed(authority, folder)
    identities.accept(identities.pending())
    path, data = folder / damaged, (folder / damaged).read_bytes()
    for at in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :])
        assert identities.current() or identities.pending()


def test_a_damaged_key_leaves_another_identity_to_try_and_the_next_renewal_to_come(authority, folder):
    identities = renewed(authority, folder)
    key = folder / "0002" / "key.pem"
    key.write_bytes(key.read_bytes().replace(b"M", b"N", 1))
    assert identities.pending() is None, "it would be tried for ever"
    assert identities.held().step(identities.current().facts.ends) == "renew"
    assert identities.begin(identities.current().facts.name, identities.current().ca).number == 3
    whole = renewed(authority, folder)
    whole.accept(whole.pending())
    assert whole.current().number == 3
    (folder / "0003" / "key.pem").write_bytes(b"")
    held = Identities(folder).held()
    assert (held.current, held.pending.number) == (None, 1), "the one before serves until it ends"


def test_without_openssl_it_is_said_how_to_get_it(folder, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="sudo apt install openssl"):
        Identities(folder).begin("pi-1", Identities(folder).current().ca)


def run(tmp_path, capfd, *words: str) -> tuple[int, str]:
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    replay = write_replay(tmp_path / "r.csv", [EASY])
    command = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", "--broker", "mqtts://127.0.0.1:1"]
    return main([*command, *words]), capfd.readouterr().err


def test_what_cannot_be_used_ends_the_run_with_one_line(folder, tmp_path, capfd):
    (folder / "0001" / "key.pem").chmod(0o644)
    assert run(tmp_path, capfd, "--identity", str(folder)) == (
        2,
        f"hardcase-edge: device's key {folder}/0001/key.pem can be read by other users; keep it to yourself: "
        f"chmod 600 {folder}/0001/key.pem\n",
    )
    (folder / "0001" / "key.pem").chmod(0o600)
    status, said = run(tmp_path, capfd, "--identity", str(folder), "--device-id", "another")
    assert (status, said.count("\n")) == (2, 1)
    assert "--device-id is another, but the certificate is for pi-" in said
    status, said = run(tmp_path, capfd, "--identity", str(tmp_path / "none"))
    assert (status, said.count("\n")) == (2, 1)
    assert "has no identity; put one there" in said
    status, said = run(tmp_path, capfd, "--identity", str(folder), "--cert", "c", "--key", "k")
    assert status == 2
    assert "--identity and --cert both name a certificate" in said


def test_the_identity_of_a_store_is_taken_unless_another_is_named(folder, tmp_path):
    folder.rename(tmp_path / "store-identity")
    (tmp_path / "store").mkdir()
    config = RunConfig(store=str(tmp_path / "store"), broker="mqtts://broker.example")
    assert keeper_of(config, Clock()) is None
    (tmp_path / "store-identity").rename(tmp_path / "store" / "identity")
    assert keeper_of(config, Clock()).device_id.startswith("pi-")
    assert keeper_of(changed(config, cert="own.pem"), Clock()) is None


def test_a_device_takes_its_name_from_its_certificate(folder):
    keeper = Keeper(folder, "mqtts://broker.example", fallback_id="host", clock=Clock())
    assert keeper.device_id == Identities(folder).current().facts.name
    assert keeper.ca == folder / "0001" / "ca.pem"


def test_a_device_says_when_its_certificate_ends_as_far_as_it_can_be_read(tmp_path):
    authority = Authority(tmp_path / "ca")
    cert = authority.issue("pi-1", purpose="client", days=3)
    own = {"ca": authority.ca, "cert": cert, "key": cert.with_suffix(".key")}
    link = Link(LinkConfig.to_broker("mqtts://127.0.0.1:1", "pi-1", **own), None, None)
    facts = own_facts(link)
    assert facts["runtime"] == __version__
    assert abs(facts["certificate"]["ends"] - time.time() - 3 * 86_400) < 60
    cert.write_text("no certificate")
    assert own_facts(link) == {"runtime": __version__}
