"""The HTTP application of the Glue door."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from catalog.doors.entries import Entries
from catalog.doors.glue.builds import IndexBuilds
from catalog.doors.glue.calls import Call, Door
from catalog.doors.glue.failures import MAXIMUM_MESSAGE, GlueError, glue_error, is_internal
from catalog.doors.glue.operations import OPERATIONS
from catalog.doors.glue.shapes import TARGET_PREFIX, find_operation, read_request
from catalog.doors.glue.signatures import EQUAL_REQUEST, Signatures, Signed, SignedRequest
from catalog.doors.serving.access import Role
from catalog.doors.serving.bodies import prove
from catalog.doors.serving.context import Serving
from catalog.doors.serving.http import OPERATION, REQUEST_ID, STATUS
from catalog.doors.serving.threads import RequestThreads
from catalog.errors import InvalidConfigurationError

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/x-amz-json-1.1"

CATALOG_ID, DEFAULT_CATALOG_ID = "CALVE_GLUE_CATALOG_ID", "123456789012"
"""Setting: the id of the catalog, in place of the number of an AWS account."""

BUILD_LIMIT, DEFAULT_BUILD_LIMIT = "CALVE_GLUE_BUILD_PARTITIONS", 1_000_000
"""Setting: the number of partitions up to which the server builds an index itself."""


def application(serving: Serving, clock: Callable[[], float] = time.time) -> FastAPI:
    """Return the application of the Glue door, to be wrapped in `catalog.doors.serving.http.Wrapped`.

    Signatures of requests are checked unless the server allows anonymous clients.

    Args:
        clock: Returns seconds since 1970 UTC, for signatures.

    Raises:
        InvalidConfigurationError: A setting is invalid.
    """
    catalog = serving.catalog
    builds = IndexBuilds(catalog, _build_limit())
    catalog_id = os.environ.get(CATALOG_ID) or DEFAULT_CATALOG_ID
    door = Door(catalog, Entries(catalog), builds, serving.metrics, catalog_id)
    signatures = Signatures(serving.access, serving.seen, clock, is_reading=_is_reading)
    threads = RequestThreads()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(builds.close)

    served = FastAPI(title="Glue", openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)

    @served.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path[:100]}: Glue's operations are POST /, named by X-Amz-Target"
        return _refusal(GlueError("UnknownOperationException", message, error.status_code), request)

    @served.post("/")
    async def answer(request: Request) -> Response:
        response = await _answered(request)
        if request.scope.get(STATUS) == EQUAL_REQUEST:
            # AWS's SDKs send it again at once, and then sign it in another second.
            await asyncio.sleep(1.0)
        return response

    async def _answered(request: Request) -> Response:
        try:
            signed = _check_headers(signatures, request)
        except GlueError as error:
            return _refusal(error, request)
        body = await request.body()
        return await threads.run(partial(_answer, door, signed, request, body))

    return served


def _build_limit() -> int:
    text = os.environ.get(BUILD_LIMIT) or str(DEFAULT_BUILD_LIMIT)
    if not (text.isascii() and text.isdigit()):
        raise InvalidConfigurationError(f"{BUILD_LIMIT} is {text!r}; give a number of partitions, 0 or more")
    return int(text)


def _is_reading(target: bytes) -> bool:
    operation = OPERATIONS.get(target.decode("latin-1").removeprefix(TARGET_PREFIX))
    return operation is not None and operation.role is Role.READER


def _check_headers(signatures: Signatures, request: Request) -> Signed:
    scope = request.scope
    headers = [(name.lower(), value) for name, value in scope["headers"]]
    request_line = request.method, scope.get("raw_path") or b"/", scope["query_string"]
    signed = signatures.check(SignedRequest(*request_line, headers))
    if signed.client is not None:
        prove(scope, signed.client)
    return signed


def _answer(door: Door, signed: Signed, request: Request, body: bytes) -> Response:
    try:
        return _response(200, _run(door, signed, request, body), request)
    except Exception as error:
        failure = glue_error(error)
        if is_internal(failure):
            log.error("%s failed", request.scope.get(OPERATION, "request"), exc_info=error)
        return _refusal(failure, request)


def _run(door: Door, signed: Signed, request: Request, body: bytes) -> bytes:
    scope = request.scope
    client = signed.verified(body)
    prove(scope, client)
    target = request.headers.get("x-amz-target", "")
    if not target.startswith(TARGET_PREFIX):
        raise GlueError("UnknownOperationException", f"the header X-Amz-Target is {target[:100]!r}, not AWSGlue.…")
    model = find_operation(target.removeprefix(TARGET_PREFIX))
    scope[OPERATION] = model.name
    operation = OPERATIONS.get(model.name)
    if operation is None:
        raise GlueError("UnknownOperationException", f"this catalog does not offer the operation {model.name}")
    # Before the body is parsed, which takes many times its size in memory.
    client.require(operation.role, f"call {model.name}")
    call = Call(door, client, model.name, read_request(model, body))
    call.require_catalog()
    answer = operation.run(call)
    return (answer if isinstance(answer, str) else json.dumps(answer, separators=(",", ":"))).encode()


def error_body(status: int, kind: str, message: str) -> tuple[bytes, Mapping[str, str]]:
    """Return the answer to a request that is refused outside the application: the body, and headers.

    Args:
        kind: The name of the error in `catalog.errors`, or of Glue.
    """
    code = _OUTSIDE.get(kind, kind)
    content = {"__type": code, "Message": message[:MAXIMUM_MESSAGE], "message": message[:MAXIMUM_MESSAGE]}
    return json.dumps(content).encode(), {"content-type": CONTENT_TYPE, "x-amzn-errortype": code}


_OUTSIDE = {
    "AccessDeniedError": "AccessDeniedException",
    "CredentialsError": "UnrecognizedClientException",
    "RequestTooLargeError": "InvalidInputException",
    "SlowRequestError": "OperationTimeoutException",
    "CommitStateUnknownException": "OperationTimeoutException",
    "TooManyRequestsError": "ThrottlingException",
}


def _refusal(failure: GlueError, request: Request) -> Response:
    request.scope[STATUS] = failure.code
    body, headers = error_body(failure.status, failure.code, str(failure))
    return _response(failure.status, body, request, headers)


def _response(status: int, body: bytes, request: Request, headers: Mapping[str, str] | None = None) -> Response:
    identifier = str(request.scope.get(REQUEST_ID) or uuid4())
    kind = {"content-type": CONTENT_TYPE}
    return Response(body, status, {**kind, **(headers or {}), "x-amzn-requestid": identifier})
