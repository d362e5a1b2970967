"""The ASGI application that wraps that of each HTTP front door, and which the server runs.

It gives each request an id, keeps the limits, adds security headers, counts and logs, answers `/health` and `/metrics`,
and answers errors that the application did not expect without a traceback.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address

from catalog.doors.serving.access import Access
from catalog.doors.serving.bodies import CLIENT, Body, ClientVanished, Message, Receive, Scope, UnknownBodies
from catalog.doors.serving.context import Serving
from catalog.doors.serving.health import health
from catalog.doors.serving.limits import Rates
from catalog.doors.serving.logs import log_failure, log_request, request_id
from catalog.errors import AccessDeniedError, CatalogError
from catalog.errors.doors import CredentialsError, RequestTooLargeError, SlowRequestError, TooManyRequestsError

Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OPERATION, REQUEST_ID, STATUS = "calve.operation", "calve.request_id", "calve.status"
"""Keys of a request's scope: an application may set the first one, and the name of an error as its status."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_KINDS = {
    CredentialsError: 401,
    AccessDeniedError: 403,
    RequestTooLargeError: 413,
    SlowRequestError: 408,
    TooManyRequestsError: 429,
}
_TEXT = b"text/plain; charset=utf-8"
_BODILESS = ("GET", "HEAD")

ErrorBody = Callable[[int, str, str], tuple[bytes, Mapping[str, str]]]
"""A protocol's answer for an HTTP status, the name of an error and its message: the body, and more headers."""


def plain_error(status: int, kind: str, message: str) -> tuple[bytes, Mapping[str, str]]:
    """Return an error as Iceberg's REST protocol has it."""
    return json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode(), {}


class Wrapped:
    """An application with the limits, logs and metrics of a front door."""

    def __init__(
        self, application: Application | None, door: str, serving: Serving, error_body: ErrorBody = plain_error
    ) -> None:
        """Wrap an application.

        Args:
            application: None for a server of `/health` and `/metrics` only.
            door: Its name in logs and metrics.
            error_body: How the protocol writes errors that occur before or outside the application.
        """
        self._application = application
        self._door = door
        self._serving = serving
        self._error_body = error_body
        self._rates = Rates(serving.limits.requests_per_second, door, serving.rates)
        self._unknown = UnknownBodies(serving.limits.unknown_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan" and self._application is not None:
            await self._application(scope, receive, send)
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        body = Body(scope, headers, receive, self._serving.limits, self._unknown)
        exchange = _Exchange(scope, headers, body, send, has_tls=self._serving.tls is not None)
        try:
            await self._answer_in_time(exchange)
        except CatalogError as error:
            status = next((code for kind, code in _KINDS.items() if isinstance(error, kind)), 400)
            await self._refuse(exchange, status, type(error).__name__, str(error))
        except ClientVanished:
            exchange.status, exchange.is_withheld = "vanished", False
        except Exception:
            log_failure(self._door, exchange.operation, exchange.identifier)
            exchange.is_withheld = True
        finally:
            if exchange.is_withheld:
                message = f"unexpected error; the server's log has it with the request id {exchange.identifier}"
                await self._refuse(exchange, 500, "InternalServiceException", message)
            body.close()
            self._record(exchange)

    async def _answer_in_time(self, exchange: _Exchange) -> None:
        seconds = self._serving.limits.request_seconds
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                await self._answer(exchange)
        except TimeoutError:
            # The application's own time-outs, for instance of a storage, are unexpected errors.
            if not deadline.expired():
                raise
            message = (
                f"no answer within {seconds:g} seconds; the request was interrupted, and what it changes may have been "
                "changed or not: look before you send it again"
            )
            await self._refuse(exchange, 504, "CommitStateUnknownException", message)

    async def _answer(self, exchange: _Exchange) -> None:
        scope = exchange.scope
        address = (scope.get("client") or ("", 0))[0]
        self._rates.take(address)
        if self._serving.access.anonymous is not None:
            _require_no_browser(exchange.headers)
        if scope["path"] in ("/health", "/metrics") and scope["method"] in _BODILESS:
            await self._answer_about_server(exchange)
            return
        if self._application is None:
            await self._refuse(exchange, 404, "NotFoundException", "this server answers /health and /metrics only")
            return
        await self._application(scope, exchange.body, exchange.send)

    async def _answer_about_server(self, exchange: _Exchange) -> None:
        exchange.operation = exchange.scope["path"].removeprefix("/")
        if exchange.scope["path"] == "/health":
            report = await asyncio.to_thread(health, self._serving.catalog)
            body = json.dumps(report.as_json()).encode()
            await exchange.respond(200 if report.is_healthy else 503, body, "application/json")
            return
        _require_reader(self._serving.access, exchange.headers)
        text = await asyncio.to_thread(self._serving.metrics.text)
        await exchange.respond(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def _refuse(self, exchange: _Exchange, status: int, kind: str, message: str) -> None:
        exchange.status, exchange.is_withheld = kind, False
        if exchange.is_started:
            # The answer has begun and cannot become another; the client sees that it is cut.
            raise ConnectionAbortedError
        body, headers = self._error_body(status, kind, message)
        await exchange.respond(status, body, "application/json", headers)

    def _record(self, exchange: _Exchange) -> None:
        seconds = time.perf_counter() - exchange.since
        operation, status = exchange.operation, exchange.status
        self._serving.metrics.request(self._door, operation, status, seconds)
        client = exchange.scope.get(CLIENT)
        log_request(
            self._door,
            operation,
            status,
            seconds,
            client="" if client is None else client.name,
            address=(exchange.scope.get("client") or ("", 0))[0],
            identifier=exchange.identifier,
        )


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, headers: Mapping[bytes, bytes], body: Body, send: Send, *, has_tls: bool) -> None:
        self.scope = scope
        self.headers = headers
        self.body = body
        self.identifier = request_id(self.headers.get(b"x-request-id", b"").decode("latin-1"))
        self.scope[REQUEST_ID] = self.identifier
        self.since = time.perf_counter()
        self.is_started = False
        self.is_withheld = False
        self._code = 0
        self._send = send
        self._has_tls = has_tls

    @property
    def operation(self) -> str:
        """The operation of the protocol; a name that the server knows."""
        route = self.scope.get("route")
        name = self.scope.get(OPERATION) or getattr(route, "name", None)
        return str(name or "unknown")

    @operation.setter
    def operation(self, name: str) -> None:
        self.scope[OPERATION] = name

    @property
    def status(self) -> str:
        """`ok`, the name of an error, or the HTTP status."""
        if name := self.scope.get(STATUS):
            return str(name)
        return "ok" if 200 <= self._code < 400 else str(self._code)

    @status.setter
    def status(self, name: str) -> None:
        self.scope[STATUS] = name

    async def send(self, message: Message) -> None:
        """Send a part of the answer, its headers with those of all answers."""
        if message["type"] == "http.response.start":
            # Starlette answers an unexpected error by itself, not in the protocol, and raises it afterwards.
            self.is_withheld = message["status"] == 500 and (b"content-type", _TEXT) in message.get("headers", ())
        if self.is_withheld:
            return
        if message["type"] == "http.response.start":
            await self.body.skip()
            self.is_started = True
            self._code = message["status"]
            own = {name.lower() for name, _ in message.get("headers", ())}
            added = [*_HEADERS, (b"x-request-id", self.identifier.encode()), (b"cache-control", b"no-store")]
            if self._has_tls:
                added.append((b"strict-transport-security", b"max-age=31536000"))
            headers = [*message.get("headers", ()), *(pair for pair in added if pair[0] not in own)]
            message = {**message, "headers": headers}
        await self._send(message)

    async def respond(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer; `headers` may have another content type."""
        given = {"content-type": kind, **{name.lower(): text for name, text in (headers or {}).items()}}
        given["content-length"] = str(len(body))
        pairs = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in given.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": b"" if self.scope["method"] == "HEAD" else body})


def _require_no_browser(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what a page of the web may send to this machine through its user's browser.

    Raises:
        AccessDeniedError: The request is a browser's, or for a host name that is not this machine's.
    """
    if b"origin" in headers or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise AccessDeniedError("requests of web pages are refused while no credentials are set")
    host = headers.get(b"host", b"localhost").decode("latin-1")
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    if name.lower() != "localhost" and not _is_loopback(name):
        raise AccessDeniedError(
            f"host {host[:100]!r} is not this machine; while no credentials are set, use 127.0.0.1 or localhost"
        )


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _require_reader(access: Access, headers: Mapping[bytes, bytes]) -> None:
    """Check the credentials of a reader of the metrics: HTTP's basic ones, access key and secret key.

    Raises:
        CredentialsError: They are missing or wrong.
    """
    if access.anonymous is not None:
        return
    scheme, _, encoded = headers.get(b"authorization", b"").partition(b" ")
    try:
        user, _, password = b64decode(encoded if scheme.lower() == b"basic" else b"", validate=True).partition(b":")
        access.client(user.decode(), password.decode())
    except (Base64Error, UnicodeDecodeError):
        raise CredentialsError("the Authorization header is not one of HTTP's basic authentication") from None
