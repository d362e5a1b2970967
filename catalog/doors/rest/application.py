"""The web application of Iceberg's REST catalog.

Paths are matched as they were sent, because names may contain encoded slashes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from hashlib import sha256
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from catalog.catalog import Catalog
from catalog.doors.rest.asking import Answer, Asking, parse
from catalog.doors.rest.errors import error_answer, error_body
from catalog.doors.rest.routes import ROUTES, Route
from catalog.doors.rest.tables import headers_of
from catalog.doors.rest.tokens import client_of, token_answer
from catalog.doors.serving.access import WITHOUT_CREDENTIALS, Access, Client, Role
from catalog.doors.serving.bodies import prove
from catalog.doors.serving.threads import RequestThreads
from catalog.engine_tables.answers import LIFETIME_MINUTES, GivenAnswer, GivenAnswers
from catalog.errors import CatalogError, InvalidRequestError, OperationConflictError
from catalog.files.object_stores import endpoint, region

PREFIX = "calve"
"""The part of all paths that clients learn from `/v1/config`; paths without it work, too."""

_KEY = "idempotency-key"
_RETRY_SECONDS = "1"
_STATUS = "calve.status"
"""Where the server around the application looks for the name of an error."""

_Scope = MutableMapping[str, Any]
_Application = Callable[[_Scope, Any, Any], Awaitable[None]]


def application(catalog: Catalog, access: Access = WITHOUT_CREDENTIALS) -> FastAPI:
    """Return the application, whose handlers use many threads."""
    app = FastAPI(title="Iceberg REST catalog", openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(_SentPaths)
    app.router.redirect_slashes = False

    async def configuration(request: Request) -> Response:
        return await _answer(request, lambda asking: _configuration(), None)

    async def token(request: Request) -> Response:
        authorization = request.headers.get("authorization")
        return _response(token_answer(access, await request.body(), authorization))

    threads = RequestThreads()

    async def _answer(request: Request, handler: Callable[[Asking], Answer], route: Route | None) -> Response:
        try:
            client = _admitted(access, request, route)
        except CatalogError as error:
            return _response(_refused(error, request, route))
        content = await request.body()
        answering = partial(_answered, catalog, client, request, content, handler, route)
        return _response(await threads.run(answering))

    app.add_api_route("/v1/config", configuration, methods=["GET"], name="config")
    app.add_api_route("/v1/oauth/tokens", token, methods=["POST"], name="token")
    for start in ("/v1", f"/v1/{PREFIX}"):
        for route in ROUTES:
            endpoint = partial(_answer, handler=route.handler, route=route)
            app.add_api_route(
                f"{start}{route.path}", _taking_request(endpoint), methods=[route.method], name=route.handler.__name__
            )

    @app.exception_handler(HTTPException)
    async def not_found(_request: Request, error: HTTPException) -> Response:
        kinds = {404: "NotFoundException", 405: "UnsupportedOperationException"}
        kind = kinds.get(error.status_code, "BadRequestException")
        message = f"{error.detail}; GET /v1/config lists the requests that this catalog answers"
        return _response(Answer(error.status_code, error_body(error.status_code, kind, message)))

    return app


def _taking_request(endpoint: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await endpoint(request)

    return answer


def _admitted(access: Access, request: Request, route: Route | None) -> Client:
    """Return the client of a request, which its headers tell before its body is received.

    Raises:
        CredentialsError, AccessDeniedError: It has no valid token, or may not send the request.
    """
    client = client_of(access, request.headers.get("authorization"))
    prove(request.scope, client)
    role = Role.READER if route is None else route.role
    client.require(role, f"send {request.method} {request.scope['path']}"[:200])
    return client


def _answered(
    catalog: Catalog,
    client: Client,
    request: Request,
    content: bytes,
    handler: Callable[[Asking], Answer],
    route: Route | None,
) -> Answer:
    """Return the answer to a request, which may be an error."""
    try:
        asking = Asking(
            catalog, client, request.path_params, dict(request.query_params), dict(request.headers), content
        )
        if route is not None and route.is_change and (key := request.headers.get(_KEY)) is not None:
            return _Repeatable(catalog, asking, request, key).answer(route)
        return handler(asking)
    except CatalogError as error:
        return _refused(error, request, route)


def _refused(error: CatalogError, request: Request, route: Route | None) -> Answer:
    answer = error_answer(error, is_view=route is not None and route.is_view)
    request.scope[_STATUS] = (answer.body or {})["error"]["type"]
    return answer


class _Repeatable:
    """A request with an idempotency key."""

    def __init__(self, catalog: Catalog, asking: Asking, request: Request, key: str) -> None:
        try:
            UUID(key)
        except ValueError:
            raise InvalidRequestError(f"the header Idempotency-Key is {key[:100]!r}; send a UUID") from None
        self._answers = GivenAnswers(catalog.storage)
        self._asking = asking
        self._key = f"rest/{asking.client.name[:180]}/{key.lower()}"
        target = f"{request.method} {request.scope['path']}?{request.scope['query_string'].decode('latin-1')}\n"
        self._digest = sha256(target.encode() + asking.content).digest()

    def answer(self, route: Route) -> Answer:
        """Return the answer that was given before, or a new one, which is kept if it is final."""
        try:
            claim = self._answers.claim(self._key, self._digest)
        except OperationConflictError as error:
            # No conflict: after one, a client deletes the files of its commit, which the other request may be making.
            body = error_body(503, "ServiceUnavailableException", str(error))
            return Answer(503, body, {"Retry-After": _RETRY_SECONDS})
        if isinstance(claim, GivenAnswer):
            stored = None if claim.body is None else parse(claim.body.encode())
            return Answer(claim.status, stored, {} if route.is_view else headers_of(stored or {}))
        is_stored = False

        def finalise(connection: Any, answer: Answer) -> None:
            nonlocal is_stored
            self._answers.store(connection, claim, GivenAnswer(answer.status, answer.text))
            is_stored = True

        asking = Asking(**{**vars(self._asking), "finalise": finalise})
        try:
            answer = route.handler(asking)
        except BaseException as error:
            refusal = error_answer(error, is_view=route.is_view) if isinstance(error, CatalogError) else None
            if refusal is None or refusal.status >= 500 or refusal.status in (401, 403, 429):
                self._answers.release(claim)
            else:
                self._answers.finish(claim, GivenAnswer(refusal.status, refusal.text))
            raise
        if not is_stored:
            self._answers.finish(claim, GivenAnswer(answer.status, answer.text))
        return answer


def _configuration() -> Answer:
    """Answer getConfig. There is one warehouse, so its name in the query makes no difference."""
    defaults = {"token-exchange-enabled": "false"}
    if url := endpoint():
        defaults |= {"s3.endpoint": url, "s3.path-style-access": "true"}
    if name := region():
        defaults |= {"s3.region": name, "client.region": name}
    return Answer(
        body={
            "defaults": defaults,
            "overrides": {"prefix": PREFIX},
            "endpoints": [route.endpoint for route in ROUTES],
            "idempotency-key-lifetime": f"PT{LIFETIME_MINUTES}M",
        }
    )


def _response(answer: Answer) -> Response:
    return Response(answer.text, answer.status, dict(answer.headers), "application/json" if answer.body else None)


class _SentPaths:
    """Gives the application each path as it was sent: `%2F` in a name is no slash between names."""

    def __init__(self, app: _Application) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        await self._app(scope, receive, send)
