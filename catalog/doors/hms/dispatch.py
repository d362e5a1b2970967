"""Reading a call, making it, and writing its answer."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TException, TMessageType
from thrift.transport.TTransport import TTransportException

from catalog.doors.hms.calls import Call, calls
from catalog.doors.hms.encoding import EncodedList
from catalog.doors.hms.exceptions import MissingArgumentException, as_exception, closes_connection, of_declared
from catalog.doors.hms.transport import MessageTransport
from catalog.doors.serving.access import Client
from catalog.doors.serving.limits import Rates
from catalog.doors.serving.logs import log_failure, log_request, request_id
from catalog.doors.serving.metrics import Metrics
from catalog.errors import CatalogError

DOOR = "hms"
"""The name of this door in logs and metrics."""


_REQUESTS = frozenset({"cr", "database", "db", "ids", "req", "request", "rqst", "stats_obj", "tbl", "txns"})
"""Names of the arguments without which a call says nothing."""


class Dispatcher:
    """Answers the calls of one connection."""

    def __init__(self, handler: Any, client: Client, address: str, rates: Rates, metrics: Metrics) -> None:
        """Use the handler of the connection, whose methods have the names of the calls."""
        self._handler = handler
        self._client = client
        self._address = address
        self._rates = rates
        self._metrics = metrics

    def answer(self, transport: MessageTransport) -> None:
        """Read one call, make it, and send its answer.

        Raises:
            Exception: The bytes are no call, or the connection is broken; it must be closed.
        """
        protocol = transport.protocol
        name, kind, sequence = protocol.readMessageBegin()
        if kind not in (TMessageType.CALL, TMessageType.ONEWAY):
            raise TProtocolException(TProtocolException.INVALID_DATA, f"message type {kind} is no call")
        call = calls().get(name)
        started, identifier = perf_counter(), request_id()
        transport.receive_arguments()
        outcome: Any = self._refusal(call, name)
        arguments = None
        if call is not None and outcome is None:
            arguments = call.arguments()
            arguments.read(protocol)
        transport.pass_arguments()
        protocol.readMessageEnd()
        if call is not None and arguments is not None:
            outcome = self._outcome(call, arguments, identifier)
        status = type(outcome).__name__ if isinstance(outcome, TException) else "ok"
        try:
            if kind == TMessageType.CALL and (call is None or call.result is not None):
                _write(protocol, name, sequence, call, outcome)
        finally:
            # A client that has gone must not leave the rest of its answer to the next one.
            transport.discard()
            self._count("unknown" if call is None else name, status, perf_counter() - started, identifier)

    def _refusal(self, call: Call | None, name: str) -> TException | None:
        """Return the answer to an unknown call, or one that the client may not make; it needs no arguments."""
        if call is None:
            return TApplicationException(TApplicationException.UNKNOWN_METHOD, f"unknown call {name[:100]!r}")
        try:
            self._rates.take(self._address)
            self._client.require(call.role, f"call {call.name}")
        except CatalogError as error:
            return as_exception(error, tuple(call.exceptions))
        return None

    def _outcome(self, call: Call, arguments: Any, identifier: str) -> Any:
        """Return the value of a call, or the exception that its answer has."""
        declared = tuple(call.exceptions)
        try:
            given = [getattr(arguments, field) for field in call.fields]
            for field, value in zip(call.fields, given, strict=True):
                if value is None and field in _REQUESTS:
                    raise MissingArgumentException(f"argument {field}")
            method: Callable[..., Any] = getattr(self._handler, call.name)
            return method(*given)
        except MissingArgumentException as error:
            if closes_connection(call.name, error.what) and not self._handler.is_of_release_4:
                raise TTransportException(TTransportException.UNKNOWN, error.message) from None
            return of_declared(error.message, declared)
        except CatalogError as error:
            return as_exception(error, declared)
        except TApplicationException as error:
            return error
        except TException as error:
            if type(error) in declared:
                return error
            return of_declared(str(getattr(error, "message", "")), declared)
        except Exception:
            log_failure(DOOR, call.name, identifier)
            return of_declared(f"internal error; the server's log has it under request {identifier}", declared)

    def _count(self, name: str, status: str, seconds: float, identifier: str) -> None:
        self._metrics.request(DOOR, name, status, seconds)
        log_request(DOOR, name, status, seconds, client=self._client.name, address=self._address, identifier=identifier)


def _write(protocol: Any, name: str, sequence: int, call: Call | None, outcome: Any) -> None:
    kind, answer = TMessageType.REPLY, outcome
    if isinstance(outcome, TApplicationException) or call is None or call.result is None:
        kind = TMessageType.EXCEPTION
    else:
        answer = call.result()
        if isinstance(outcome, TException):
            setattr(answer, call.exceptions[type(outcome)], outcome)
        elif call.has_value:
            answer.success = outcome
    protocol.writeMessageBegin(name, kind, sequence)
    if isinstance(outcome, EncodedList):
        for piece in outcome.as_result():
            protocol.trans.write(piece)
    else:
        answer.write(protocol)
    protocol.writeMessageEnd()
    protocol.trans.flush()
