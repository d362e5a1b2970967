"""OAuth2's access tokens, which clients get for an access key and its secret key.

A token has the access key and the time of its end, signed with the secret key: all processes accept it, none stores it,
and it ends with the key.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import parse_qsl, unquote_plus

from catalog.doors.rest.asking import Answer
from catalog.doors.serving.access import Access, Client, Key
from catalog.errors import CredentialsError

LIFETIME_SECONDS = 3_600
_MARK = "calve-1"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


def token_answer(access: Access, content: bytes, authorization: str | None) -> Answer:
    """Return the answer to a request for a token, or OAuth2's error.

    The grant `client_credentials` and the renewal of a token that is still valid are supported.

    Args:
        content: The form.
        authorization: The header, in which clients may send their credentials (RFC 6749, 2.3.1).
    """
    try:
        form = dict(parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=50))
    except (ValueError, UnicodeDecodeError):
        return _refusal(400, "invalid_request", "the body is not a form; send grant_type and more as a form")
    grant = form.get("grant_type")
    if grant is None:
        return _refusal(400, "invalid_request", "the form has no grant_type; add grant_type=client_credentials")
    is_renewal = grant == _EXCHANGE and form.get("subject_token_type") == _ACCESS_TOKEN and "actor_token" not in form
    if grant != "client_credentials" and not is_renewal:
        return _refusal(
            400, "unsupported_grant_type", f"grant type {grant[:100]!r} is not supported; use client_credentials"
        )
    try:
        if access.anonymous is not None:
            # Requests need no token, but clients with credentials ask for one.
            key = Key("", "", access.anonymous)
        else:
            key = (
                _verified(access, form.get("subject_token", "")) if is_renewal else _key_of(access, form, authorization)
            )
    except CredentialsError as error:
        return _refusal(401, "invalid_client", str(error))
    body = {
        "access_token": _signed(key, int(time.time()) + LIFETIME_SECONDS),
        "token_type": "bearer",
        "expires_in": LIFETIME_SECONDS,
        "issued_token_type": _ACCESS_TOKEN,
        "scope": form.get("scope") or "catalog",
    }
    return Answer(200, body)


def client_of(access: Access, authorization: str | None) -> Client:
    """Return the client of a request.

    Raises:
        CredentialsError: It has no valid token.
    """
    if access.anonymous is not None:
        return access.anonymous
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer":
        raise CredentialsError(
            "the request has no bearer token; configure the client with credential=<access key>:<secret key>"
        )
    return _verified(access, token.strip()).client


def _key_of(access: Access, form: Mapping[str, str], authorization: str | None) -> Key:
    access_key, secret_key = form.get("client_id", ""), form.get("client_secret", "")
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            # Base64's errors, and those of characters that are not ASCII or not UTF-8.
            raise CredentialsError("the Authorization header is not one of HTTP's basic authentication") from None
        access_key, secret_key = unquote_plus(user), unquote_plus(password)
    access.client(access_key, secret_key)
    return access.keys[access_key]


def _signed(key: Key, until: int) -> str:
    claims = json.dumps({"key": key.access_key, "until": until}, separators=(",", ":")).encode()
    return f"{_MARK}.{_encoded(claims)}.{_encoded(_signature(key, claims))}"


def _verified(access: Access, token: str) -> Key:
    """Return the key of a token.

    Raises:
        CredentialsError: It is not one of this catalog, its key is gone, or it has expired.
    """
    refusal = CredentialsError("the bearer token is not valid; get a new one with the client's credentials")
    try:
        mark, encoded, signature = token.split(".")
        claims = _decoded(encoded)
        values = json.loads(claims)
        key, until = access.keys.get(values["key"]), values["until"]
        given = _decoded(signature)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise refusal from None
    if mark != _MARK or key is None or not hmac.compare_digest(given, _signature(key, claims)):
        raise refusal
    if until < time.time():
        raise CredentialsError("the bearer token has expired; get a new one with the client's credentials")
    return key


def _signature(key: Key, claims: bytes) -> bytes:
    return hmac.digest(key.secret_key.encode(), _MARK.encode() + claims, sha256)


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _refusal(status: int, kind: str, message: str) -> Answer:
    return Answer(status, {"error": kind, "error_description": message})
