"""Requests whose signature or token is missing, wrong, expired or used before: each must be refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from uuid import uuid4

import httpx

from tests.fuzz.glue import MEDIA
from tests.fuzz.hooks import sign
from tests.fuzz.rest import token
from tests.fuzz.served import Served

Headers = dict[str, str]
BODY = b'{"MaxResults": 10}'
_CODES = {
    "unsigned": "MissingAuthenticationTokenException",
    "unknown key": "UnrecognizedClientException",
    "wrong signature": "InvalidSignatureException",
    "other operation": "InvalidSignatureException",
    "other body": "InvalidSignatureException",
    "expired": "InvalidSignatureException",
    "sent again": "InvalidSignatureException",
}


def refused_by_glue(served: Served, count: int, seed: int) -> tuple[str, list[str]]:
    """Send signed requests that are broken in one way each, and right ones; return what was done, and the problems."""
    address, chance, problems = f"http://{served.server.address('glue')}/", random.Random(seed), []
    with httpx.Client(timeout=60) as client:
        for number in range(count):
            kind = (*_CODES, "right")[number % (len(_CODES) + 1)]
            headers, body = _broken(kind, address, chance)
            if kind == "sent again":
                client.post(address, content=body, headers=headers)
            answer = client.post(address, content=body, headers=headers)
            expected = (200, None) if kind == "right" else (400, _CODES[kind])
            if (found := (answer.status_code, answer.json().get("__type"))) != expected:
                problems.append(f"{kind}: {found}, not {expected}")
    return f"{count:,} signatures: {', '.join(_CODES)} and right ones", problems


def _broken(kind: str, address: str, chance: random.Random) -> tuple[Headers, bytes]:
    host = address.split("/")[2]
    given = {"Content-Type": MEDIA, "X-Amz-Target": "AWSGlue.GetDatabases", "Host": host}
    minutes = chance.choice((-600, -6, 6, 600)) if kind == "expired" else 0
    moment = (datetime.now(UTC) + timedelta(minutes=minutes)).replace(tzinfo=None)
    with patch("botocore.auth.get_current_datetime", lambda: moment):
        headers = {**sign("POST", address, given, BODY), "amz-sdk-invocation-id": str(uuid4())}
    proof = headers["Authorization"]
    change: dict[str, Callable[[], Headers]] = {
        "unsigned": lambda: {name: value for name, value in headers.items() if name != "Authorization"},
        "unknown key": lambda: {**headers, "Authorization": proof.replace("=OWNER/", "=NOBODY/")},
        "wrong signature": lambda: {**headers, "Authorization": proof[:-4] + f"{int(proof[-4:], 16) ^ 1:04x}"},
        "other operation": lambda: {**headers, "X-Amz-Target": "AWSGlue.DeleteDatabase"},
    }
    body = b'{"MaxResults": 11}' if kind == "other body" else BODY
    return change.get(kind, lambda: headers)(), body


def refused_by_rest(served: Served, count: int, seed: int) -> tuple[str, list[str]]:
    """Send tokens that are changed in one character each, and none; return what was done, and the problems."""
    address, chance, problems = f"http://{served.server.address('rest')}/v1/namespaces", random.Random(seed), []
    right = token(served)
    with httpx.Client(timeout=60) as client:
        for number in range(count):
            place = chance.randrange(len(right) - 1)
            wrong = f"{right[:place]}{'x' if right[place] != 'x' else 'y'}{right[place + 1 :]}"
            given: Headers = {} if number % 10 == 0 else {"Authorization": f"Bearer {wrong}"}
            answer = client.get(address, headers=given)
            if answer.status_code != 401:
                problems.append(f"the token {given} has the answer {answer.status_code}")
        if client.get(address, headers={"Authorization": f"Bearer {right}"}).status_code != 200:
            problems.append("a right token is refused")
    return f"{count:,} wrong tokens", problems
