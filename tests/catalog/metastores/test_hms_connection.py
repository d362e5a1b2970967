"""Hive Metastores with TLS and with Kerberos: connections, and refusals with one-line errors and without hangs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from catalog.errors import InvalidConfigurationError, SourceClientMissingError, SourceUnavailableError
from catalog.metastores.address import SourceAddress
from catalog.metastores.hms import HiveMetastore
from standalone.hive_metastore import HiveMetastoreServer
from standalone.postgres import HOST, free_port
from tests.support.certificates import PASSWORD, Authority, signed

# Starts JVMs.
pytestmark = pytest.mark.spark


def databases(address: str) -> list[str]:
    with HiveMetastore(SourceAddress.parse(address)[0]) as source:
        return source.databases()


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.found(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def serve(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., HiveMetastoreServer]]:
    """A function that returns a metastore with a keystore, which is not started."""

    def make(keystore: Path) -> HiveMetastoreServer:
        settings = {
            "hive.metastore.use.SSL": "true",
            "hive.metastore.keystore.path": str(keystore),
            "hive.metastore.keystore.password": PASSWORD,
        }
        return HiveMetastoreServer(tmp_path_factory.mktemp("metastore"), settings=settings, options="tls=true")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALVE_HMS_CA", str(authority.pem))
        yield make


@pytest.fixture(scope="module")
def tls_server(authority: Authority, serve: Callable[..., HiveMetastoreServer]) -> Iterator[HiveMetastoreServer]:
    with serve(authority.keystore(HOST)) as server:
        yield server


def refused(address: str) -> str:
    """Return the one-line error of a connection to an untrusted metastore."""
    with pytest.raises(SourceUnavailableError) as refusal:
        databases(address)
    text = str(refusal.value)
    assert "\n" not in text
    assert "Traceback" not in text
    return text


@pytest.mark.long
def test_a_metastore_is_asked_by_tls(tls_server: HiveMetastoreServer) -> None:
    assert databases(tls_server.source()) == ["default"]


@pytest.mark.long
def test_a_server_of_another_authority_is_refused(
    tls_server: HiveMetastoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_HMS_CA", str(Authority.found(tmp_path, "another").pem))
    assert "self-signed certificate in certificate chain" in refused(tls_server.source())
    monkeypatch.delenv("CALVE_HMS_CA")
    assert "self-signed certificate in certificate chain" in refused(tls_server.source())


@pytest.mark.long
def test_a_server_of_another_name_is_refused(tls_server: HiveMetastoreServer) -> None:
    text = refused(tls_server.source().replace(HOST, "localhost"))
    assert "certificate is not valid for 'localhost'" in text


@pytest.mark.long
def test_an_expired_certificate_is_refused(authority: Authority, serve: Callable[..., HiveMetastoreServer]) -> None:
    server = serve(authority.keystore(HOST, lifetime=timedelta(days=-1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_is_ready", lambda: "certificate has expired" in _failure(server.source()))
        with server:
            assert "certificate has expired" in refused(server.source())


def _failure(address: str) -> str:
    try:
        databases(address)
    except SourceUnavailableError as error:
        return str(error)
    return ""


@pytest.mark.long
def test_a_plain_client_of_a_server_with_tls_is_told_so(tls_server: HiveMetastoreServer) -> None:
    assert "without TLS is running there, or change" in refused(tls_server.source().partition("?")[0])


def test_a_server_without_tls_does_not_hold_a_client_with_tls(
    hive_metastore: HiveMetastoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.metastores.hms_connection.OPENING_SECONDS", 1)
    assert "check that a metastore with TLS and" in refused(f"{hive_metastore.source()}?tls=true")


def test_files_that_cannot_be_used_are_named_by_their_variable(
    tls_server: HiveMetastoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for variable, path in (("CALVE_HMS_CA", broken), ("CALVE_HMS_CERTIFICATE", tmp_path / "missing.pem")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(path))
            with pytest.raises(InvalidConfigurationError, match=f"{variable} is .*{path.name}"):
                databases(tls_server.source())


def test_a_client_shows_its_own_certificate(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hive's server asks for none, so that a server of OpenSSL stands in for a gateway in front of it."""
    import ssl
    import threading

    own = ec.generate_private_key(ec.SECP256R1())
    pem = authority.folder / "client.pem"
    pem.write_bytes(
        own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + signed(HOST, own, authority, timedelta(days=1)).public_bytes(Encoding.PEM)
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.pem)
    context.load_cert_chain(pem)
    context.verify_mode = ssl.CERT_REQUIRED
    shown: list[object] = []
    with socket.create_server((HOST, 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as client:
                shown.append(client.getpeercert())

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setenv("CALVE_HMS_CA", str(authority.pem))
        monkeypatch.setenv("CALVE_HMS_CERTIFICATE", str(pem))
        refused(f"hms://{HOST}:{listener.getsockname()[1]}?tls=true")
        thread.join(30)
    assert len(shown) == 1
    assert shown[0]


# --- Kerberos -------------------------------------------------------------------------------------------------------

REALM = "TEST.LOCAL"
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"

with_kerberos = pytest.mark.skipif(
    not all(shutil.which(tool, path=_PATH) for tool in _TOOLS)
    or not all(importlib.util.find_spec(name) for name in ("kerberos", "puresasl")),
    reason="MIT Kerberos (krb5-kdc, krb5-admin-server, krb5-user), or kerberos and pure-sasl, are not installed",
)


class Realm:
    """A context manager that runs a Kerberos realm with a key distribution centre on a free port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "krb5.conf"
        port = free_port()
        self.config.write_text(
            f"[libdefaults]\ndefault_realm={REALM}\ndns_lookup_kdc=false\ndns_lookup_realm=false\nrdns=false\n"
            f"dns_canonicalize_hostname=false\n[realms]\n{REALM}={{\n kdc={HOST}:{port}\n}}\n"
        )
        kdc = folder / "kdc.conf"
        kdc.write_text(
            f"[kdcdefaults]\nkdc_listen={HOST}:{port}\nkdc_tcp_listen={HOST}:{port}\n[realms]\n{REALM}={{\n"
            f" database_name={folder}/principal\n key_stash_file={folder}/stash\n acl_file={folder}/acl\n}}\n"
        )
        self._environment = os.environ | {
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(kdc),
            "KRB5CCNAME": str(self.tickets),
        }
        self._port = port

    @property
    def tickets(self) -> Path:
        return self._folder / "tickets"

    def __enter__(self) -> Realm:
        self._run("kdb5_util", "create", "-s", "-P", PASSWORD, "-r", REALM)
        self._server = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM], env=self._environment, cwd=self._folder, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.wait(30)

    def keytab(self, principal: str) -> Path:
        path = self._folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def log_in(self, principal: str, keytab: Path) -> None:
        """Get a ticket as soon as the server responds."""
        self._run("kinit", "-k", "-t", str(keytab), principal)

    def _run(self, *command: str) -> None:
        # `kinit` asks a server that has just started again and again by itself, over UDP.
        subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("realm")) as realm, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(realm.config))
        patch.setenv("KRB5CCNAME", str(realm.tickets))
        realm.log_in("etl", realm.keytab("etl"))
        yield realm


@pytest.fixture(scope="module", params=["auth", "auth-conf"])
def kerberos_server(
    realm: Realm, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiveMetastoreServer]:
    settings = {
        "hadoop.security.authentication": "kerberos",
        "hadoop.rpc.protection": {"auth": "authentication", "auth-conf": "privacy"}[request.param],
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": f"hive/{HOST}@{REALM}",
        "hive.metastore.kerberos.keytab.file": str(realm.keytab(f"hive/{HOST}")),
    }
    folder = tmp_path_factory.mktemp("metastore")
    java_options = [f"-Djava.security.krb5.conf={realm.config}"]
    with HiveMetastoreServer(folder, settings=settings, options="kerberos=hive", java_options=java_options) as server:
        yield server


@with_kerberos
def test_a_metastore_is_asked_by_kerberos(kerberos_server: HiveMetastoreServer) -> None:
    assert databases(kerberos_server.source()) == ["default"]
    assert databases(f"{kerberos_server.source()}/{HOST}") == ["default"]


@with_kerberos
def test_nobody_is_let_in_without_a_ticket(
    kerberos_server: HiveMetastoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "none"))
    assert "get a ticket with kinit" in refused(kerberos_server.source())


@with_kerberos
def test_a_service_that_the_realm_does_not_know_is_refused(kerberos_server: HiveMetastoreServer) -> None:
    assert "not found in Kerberos database" in refused(f"{kerberos_server.source()[:-4]}nobody")


@with_kerberos
def test_a_client_without_kerberos_is_told_so(kerberos_server: HiveMetastoreServer) -> None:
    assert "without Kerberos and without TLS is running there, or change" in refused(
        kerberos_server.source().partition("?")[0]
    )


@with_kerberos
def test_a_server_without_kerberos_does_not_hold_a_client(
    realm: Realm, hive_metastore: HiveMetastoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.metastores.hms_connection.OPENING_SECONDS", 1)
    assert "check that a metastore with Kerberos" in refused(f"{hive_metastore.source()}?kerberos=hive")


def test_packages_of_kerberos_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kerberos", None)
    with pytest.raises(SourceClientMissingError, match="install the packages pure-sasl and kerberos"):
        databases(f"hms://{HOST}:1?kerberos=hive")
