"""Extensions of schemathesis: Glue's media type and signatures, and the server errors that a protocol expects."""

from __future__ import annotations

import json
import os
import time
from typing import Any
from urllib.parse import urldefrag
from uuid import uuid4

import requests
import schemathesis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from requests.auth import AuthBase
from schemathesis.checks import not_a_server_error

from tests.fuzz.glue import MEDIA
from tests.fuzz.served import ACCESS_KEY, SECRET_KEY

CREDENTIALS = Credentials(ACCESS_KEY, SECRET_KEY)
_RUNNING = b"a request with this idempotency key is still running"
_SECONDS = 10.0


def sign(method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """Return headers with a signature."""
    request = AWSRequest(method, urldefrag(url).url, data=body, headers=headers)
    SigV4Auth(CREDENTIALS, "glue", "eu-west-1").add_auth(request)
    return dict(request.headers.items())


class Signature(AuthBase):
    """Signs a request just before it is sent."""

    def __call__(self, request: Any) -> Any:
        """Add the signature."""
        body = request.body or b""
        data = body.encode() if isinstance(body, str) else body
        names = {name: value for name, value in request.headers.items() if name.lower() in ("x-amz-target", "host")}
        given = {name: value.decode("latin-1") if isinstance(value, bytes) else value for name, value in names.items()}
        # Equal requests of one second have equal signatures.
        request.headers["amz-sdk-invocation-id"] = str(uuid4())
        request.headers.update(sign(request.method, request.url, given, data))
        return request


@schemathesis.serializer(MEDIA)
def serialize(context: Any, value: Any) -> dict[str, Any]:
    """Return the body of a request."""
    return {"data": value if isinstance(value, bytes) else json.dumps(value).encode()}


@schemathesis.deserializer(MEDIA)
def deserialize(context: Any, response: Any) -> Any:
    """Return the value of an answer."""
    return json.loads(response.content)


@schemathesis.check
def no_unexpected_server_error(context: Any, response: Any, case: Any) -> bool | None:
    """Fail on a server error, except the answer to a request whose equal, with the same idempotency key, is running.

    Workers send equal requests at the same time now and then. The key must be free again when the first has ended.
    """
    until, latest = time.monotonic() + _SECONDS, response
    while latest.status_code == 503 and _RUNNING in latest.content and time.monotonic() < until:
        time.sleep(0.5)
        latest = requests.Session().send(response.request, timeout=60)
    return None if latest is not response and latest.status_code < 500 else not_a_server_error(context, response, case)


if os.environ.get("FUZZED_DOOR") == "glue":
    schemathesis.auth.set_from_requests(Signature())
