"""Who may use the front doors: the file of keys, and the roles of clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.doors.serving.access import ANONYMOUS, Access, Client, Key, Role
from catalog.doors.serving.keys import read_access
from catalog.errors import AccessDeniedError, CredentialsError, InvalidConfigurationError

SECRET = "a-secret-of-more-than-16"

FILE = f"""
clients:
  spark: {{role: writer, access_key: SPARK, secret_key: {SECRET}}}
  trino: {{role: reader, certificate: trino.example}}
"""


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys.yaml"
    path.write_text(FILE)
    path.chmod(0o600)
    monkeypatch.setenv("CALVE_DOOR_KEYS", str(path))
    return path


def test_without_a_file_of_keys_everybody_on_this_machine_is_owner() -> None:
    assert read_access().anonymous == ANONYMOUS
    assert not read_access().keys


@pytest.mark.usefixtures("keys")
def test_clients_are_known_by_keys_or_by_certificate() -> None:
    access = read_access()
    assert access.anonymous is None
    assert access.keys == {"SPARK": Key("SPARK", SECRET, Client("spark", Role.WRITER))}
    assert access.client("SPARK", SECRET) == Client("spark", Role.WRITER)
    assert access.client_of_certificate("trino.example") == Client("trino", Role.READER)


@pytest.mark.parametrize(("access_key", "secret_key"), [("SPARK", "wrong"), ("SPARK", ""), ("OTHER", SECRET), ("", "")])
def test_wrong_keys_are_refused(access_key: str, secret_key: str) -> None:
    access = Access({"SPARK": Key("SPARK", SECRET, ANONYMOUS)})
    with pytest.raises(CredentialsError, match="no client has this access key and this secret key"):
        access.client(access_key, secret_key)
    with pytest.raises(CredentialsError, match="no client has a certificate of 'spark'"):
        access.client_of_certificate("spark")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_read_or_change_is_refused(keys: Path, mode: int) -> None:
    keys.chmod(mode)
    with pytest.raises(InvalidConfigurationError, match=rf"other users may .*its mode is {mode:o}.*chmod 600"):
        read_access()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs `clients:`"),
        ("clients: {}", "needs `clients:`"),
        ("keys: {}", "needs `clients:`"),
        ("clients: {a: {role: reader}}", "a has neither access_key nor certificate"),
        ("clients: {a: {role: root, certificate: a}}", "role of client a is 'root', expected reader, writer, owner"),
        ("clients: {a: {role: [], certificate: a}}", r"role of client a is \[\], expected reader"),
        ("clients: {a: {role: reader, certificate: 7}}", "certificate of client a is not the common name"),
        ("clients: {a: reader}", "client a needs a mapping"),
        ("clients: {a: {role: reader, access_key: x y}}", "access_key of client a is 'x y'"),
        (
            "clients: {a: {role: reader, access_key: 0123456789abcdef/+, secret_key: SPARK}}",
            "access_key of client a is not up to 128 letters.* not shown .* were the two exchanged",
        ),
        ("clients: {a: {role: reader, access_key: A, secret_key: short}}", "secret_key of client a needs 16 to 256"),
        (
            "clients: {a: &k {role: reader, access_key: A, secret_key: 0123456789abcdef}, b: *k}",
            "two clients have the access_key 'A'",
        ),
        ("clients: {a: &k {role: reader, certificate: A}, b: *k}", "two clients have the certificate 'A'"),
        ("clients: {", "is not YAML"),
        ("clients: {a: " + "[" * 5000, "is not YAML"),
    ],
)
def test_a_wrong_file_is_refused_without_showing_a_secret(keys: Path, text: str, message: str) -> None:
    keys.write_text(text)
    with pytest.raises(InvalidConfigurationError, match=message) as refused:
        read_access()
    assert "short" not in str(refused.value)
    assert "0123456789abcdef" not in str(refused.value)


def test_a_missing_file_is_refused(keys: Path) -> None:
    keys.unlink()
    with pytest.raises(InvalidConfigurationError, match="cannot be read: No such file"):
        read_access()


def test_roles_include_those_below() -> None:
    Client("spark", Role.WRITER).require(Role.READER, "read")
    with pytest.raises(AccessDeniedError, match=r"spark has the role writer and may not drop table a\.b; .* owner may"):
        Client("spark", Role.WRITER).require(Role.OWNER, "drop table a.b")
