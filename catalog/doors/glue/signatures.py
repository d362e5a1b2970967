"""AWS Signature Version 4 of requests: who has signed them, when, and whether they have been sent before.

Source: "Create a signed AWS API request" in the IAM User Guide; the names of errors are those of AWS's services.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from catalog.doors.glue.failures import GlueError
from catalog.doors.serving.access import Access, Client
from catalog.doors.serving.seen import SKEW_SECONDS, TWIN_SECONDS, SeenSignatures

SERVICE = "glue"

_ALGORITHM = "AWS4-HMAC-SHA256"
_TERMINATOR = "aws4_request"
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SPACES = re.compile(rb" +")
_MAXIMUM_HEADER = 8_192
_BODY_HASH = b"x-amz-content-sha256"
_HASH = re.compile("[0-9a-f]{64}")
EQUAL_REQUEST = "ThrottlingException"
"""The error of a change that equals another one of the same second; AWS's SDKs sign a throttled request again."""
_ATTEMPT = (b"amz-sdk-invocation-id", b"amz-sdk-request")
"""The headers in which AWS's SDKs distinguish equal requests; most SDKs do not sign them."""


@dataclass(frozen=True)
class SignedRequest:
    """An HTTP request as it was sent, which a signature covers together with the hash of its body.

    Attributes:
        path, query: As in the request line, still encoded.
        headers: Names in lower case, with repeated ones in their order.
    """

    method: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]

    def header(self, name: bytes) -> bytes | None:
        """Return the first header of a name."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True)
class _Authorization:
    """The parts of the header `Authorization`."""

    access_key: str
    date: str
    region: str
    signed_headers: tuple[str, ...]
    signature: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{SERVICE}/{_TERMINATOR}"


class Signatures:
    """Verifies the signatures of requests; thread-safe.

    A request that is sent again is refused by all processes of the server, for as long as its time is valid.
    """

    def __init__(
        self,
        access: Access,
        seen: SeenSignatures,
        clock: Callable[[], float] = time.time,
        *,
        is_reading: Callable[[bytes], bool] = lambda _target: False,
    ) -> None:
        """Set the clients and their keys.

        Args:
            seen: What the processes of the server share.
            clock: Returns seconds since 1970 UTC.
            is_reading: Whether a request changes nothing, given its header `X-Amz-Target`.
        """
        self._access = access
        self._seen = seen
        self._clock = clock
        self._is_reading = is_reading

    def check(self, request: SignedRequest) -> Signed:
        """Check what the headers of a request tell, before its body is received.

        Raises:
            GlueError: It is unsigned, incompletely or wrongly signed, by an unknown key, for another time, or was sent
                before.
        """
        if self._access.anonymous is not None:
            return Signed(self._access.anonymous, lambda _body: None)
        authorization = _read_authorization(request)
        moment = _read_time(request, authorization)
        _require_signed(request, authorization)
        self._require_current(moment)
        key = self._access.keys.get(authorization.access_key)
        if key is None or request.header(b"x-amz-security-token") is not None:
            # Keys of the server are permanent; a session token is of other credentials.
            raise GlueError("UnrecognizedClientException", "The security token included in the request is invalid.")

        def require_signature(body_hash: str) -> None:
            expected = _signature(request, authorization, moment, key.secret_key, body_hash)
            if not hmac.compare_digest(expected, authorization.signature):
                raise _invalid(
                    "The request signature we calculated does not match the signature you provided. Check your AWS "
                    "Secret Access Key and signing method."
                )
            self._require_new(request, authorization, moment)

        declared = request.header(_BODY_HASH)
        if declared is None:
            return Signed(None, lambda body: require_signature(_sha256(body)), key.client)
        body_hash = declared.decode("latin-1")
        if not _HASH.fullmatch(body_hash):
            raise _invalid("The value of x-amz-content-sha256 is not 64 hexadecimal digits in lower case.")
        require_signature(body_hash)
        return Signed(key.client, lambda body: _require_hash(body, body_hash))

    def _require_current(self, moment: str) -> None:
        signed_at, now = _seconds(moment), self._clock()
        if abs(now - signed_at) > SKEW_SECONDS:
            shown = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
            problem = "expired" if signed_at < now else "not yet current"
            side = "earlier" if signed_at < now else "later"
            raise _invalid(
                f"Signature {problem}: {moment} is more than {SKEW_SECONDS // 60} minutes {side} than {shown}; set the "
                "client's clock"
            )

    def _require_new(self, request: SignedRequest, authorization: _Authorization, moment: str) -> None:
        is_reading = self._is_reading(request.header(b"x-amz-target") or b"")
        # Whoever sends a request again could give it other values of headers that are not signed.
        names = [name for name in _ATTEMPT if is_reading or name.decode() in authorization.signed_headers]
        attempt, now = [request.header(name) or b"" for name in names], self._clock()
        if self._seen.add(bytes.fromhex(authorization.signature), b"\n".join(attempt), now):
            return
        if not is_reading and abs(now - _seconds(moment)) <= TWIN_SECONDS:
            raise GlueError(
                EQUAL_REQUEST, f"An equal request was sent before, at {moment}; sign it again in another second"
            )
        raise _invalid(
            f"This request was sent before, at {moment}; sign it again (equal requests of one second that only read "
            "need different values of the header amz-sdk-invocation-id, which AWS's SDKs send)"
        )


class Signed:
    """A request whose headers are right.

    Attributes:
        client: The client, if the headers prove it; None if only the body shows whether the signature is right.
    """

    def __init__(
        self, client: Client | None, require_body: Callable[[bytes], None], supposed: Client | None = None
    ) -> None:
        """Keep the check of the body, and the client if it holds."""
        self.client = client
        self._require_body = require_body
        self._supposed = supposed

    def verified(self, body: bytes) -> Client:
        """Return the client that has signed the request with this body.

        Raises:
            GlueError: The signature is not right for it, or the request was sent before.
        """
        self._require_body(body)
        client = self.client or self._supposed
        assert client is not None
        return client


def _invalid(message: str) -> GlueError:
    return GlueError("InvalidSignatureException", message)


def _incomplete(message: str) -> GlueError:
    return GlueError("IncompleteSignatureException", message)


def _read_authorization(request: SignedRequest) -> _Authorization:
    values = [value for name, value in request.headers if name == b"authorization"]
    if not values:
        raise GlueError("MissingAuthenticationTokenException", "Missing Authentication Token")
    if len(values) > 1 or len(values[0]) > _MAXIMUM_HEADER:
        raise _incomplete("The request needs exactly one Authorization header.")
    algorithm, _, rest = values[0].decode("latin-1").strip().partition(" ")
    if algorithm != _ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': {algorithm[:40]!r}; use {_ALGORITHM}.")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    for name in ("Credential", "Signature", "SignedHeaders"):
        if not parts.get(name):
            raise _incomplete(f"Authorization header requires {name!r} parameter.")
    credential = parts["Credential"].split("/")
    if len(credential) != 5:
        raise _incomplete("Credential must have 5 parts separated by '/': key, date, region, service, aws4_request.")
    access_key, date, region, service, terminator = credential
    if service != SERVICE:
        raise _invalid(f"Credential should be scoped to correct service: {SERVICE!r}.")
    if terminator != _TERMINATOR:
        raise _invalid(f"Credential should be scoped with a valid terminator: {_TERMINATOR!r}.")
    if not _HASH.fullmatch(parts["Signature"]):
        raise _incomplete("Signature must be 64 hexadecimal digits in lower case.")
    return _Authorization(access_key, date, region, tuple(parts["SignedHeaders"].split(";")), parts["Signature"])


def _read_time(request: SignedRequest, authorization: _Authorization) -> str:
    moment = (request.header(b"x-amz-date") or b"").decode("latin-1")
    if not _TIME.fullmatch(moment):
        raise _incomplete(f"Date must be in the header X-Amz-Date, in the form YYYYMMDDTHHMMSSZ, not {moment[:40]!r}.")
    try:
        _seconds(moment)
    except ValueError:
        raise _incomplete(f"X-Amz-Date {moment!r} is no time.") from None
    if authorization.date != moment[:8]:
        raise _invalid(
            f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: "
            f"{authorization.date[:20]!r} != {moment[:8]!r}."
        )
    return moment


def _seconds(moment: str) -> float:
    return datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _require_signed(request: SignedRequest, authorization: _Authorization) -> None:
    """Check that the signature covers the host and every header of AWS."""
    names = authorization.signed_headers
    if list(names) != sorted(set(names)):
        raise _incomplete("SignedHeaders must be sorted, in lower case and without duplicates.")
    sent = {name.decode("latin-1") for name, _ in request.headers}
    required = {"host", *(name for name in sent if name.startswith("x-amz-"))}
    if missing := sorted(required.difference(names)):
        raise _invalid(f"{missing[0]!r} must be a 'SignedHeader' in the AWS Authorization.")
    if absent := sorted(set(names) - sent):
        raise _invalid(f"The signed header {absent[0][:40]!r} is not in the request.")


def _require_hash(body: bytes, expected: str) -> None:
    if not hmac.compare_digest(_sha256(body), expected):
        raise _invalid("The value of x-amz-content-sha256 is not the hash of the body.")


def _signature(
    request: SignedRequest, authorization: _Authorization, moment: str, secret_key: str, body_hash: str
) -> str:
    canonical = _canonical_request(request, authorization.signed_headers, body_hash)
    text = "\n".join((_ALGORITHM, moment, authorization.scope, hashlib.sha256(canonical).hexdigest()))
    key = _signing_key(secret_key, authorization.date, authorization.region)
    return hmac.digest(key, text.encode("latin-1", "replace"), "sha256").hex()


@lru_cache(maxsize=256)
def _signing_key(secret_key: str, date: str, region: str) -> bytes:
    key = b"AWS4" + secret_key.encode()
    for part in (date, region, SERVICE, _TERMINATOR):
        key = hmac.digest(key, part.encode("latin-1", "replace"), "sha256")
    return key


def _canonical_request(request: SignedRequest, signed_headers: Iterable[str], body_hash: str) -> bytes:
    lines = [
        request.method.encode("latin-1"),
        _encoded(request.path or b"/", safe="/"),
        _canonical_query(request.query),
    ]
    for name in signed_headers:
        key = name.encode("latin-1")
        values = [_SPACES.sub(b" ", value.strip()) for header, value in request.headers if header == key]
        lines.append(key + b":" + b",".join(values))
    lines += [b"", ";".join(signed_headers).encode("latin-1"), body_hash.encode()]
    return b"\n".join(lines)


def _canonical_query(query: bytes) -> bytes:
    pairs = [(part.partition(b"=")[0], part.partition(b"=")[2]) for part in query.split(b"&") if part]
    encoded = sorted((_encoded(unquote_to_bytes(name)), _encoded(unquote_to_bytes(value))) for name, value in pairs)
    return b"&".join(name + b"=" + value for name, value in encoded)


def _encoded(raw: bytes, safe: str = "") -> bytes:
    return quote(raw, safe=f"{safe}-_.~").encode()


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
