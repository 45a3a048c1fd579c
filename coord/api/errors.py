"""Errors as JSON: code, message with value and remedy, and whether it may have happened."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from coord.api.keys import NODE
from coord.codec import UnencodableMessage
from coord.model.channel import Result
from coord.model.rejections import EXPLANATIONS, Rejection
from coord.node.node import NodeStopped
from coord.node.reads import ReadUnavailable
from coord.store.ports import StorageCorrupt

log = structlog.get_logger()

_STATUS_OF_REJECTION = {
    Rejection.WRONG_CLUSTER: 409,
    Rejection.NOT_CONFIGURED: 503,
    Rejection.UNKNOWN_EVENT: 400,
    Rejection.INVALID: 400,
    Rejection.OUT_OF_RANGE: 400,
    Rejection.DUPLICATE_NAME: 400,
    Rejection.UNKNOWN_SWITCH: 400,
    Rejection.CYCLE: 400,
    Rejection.UNKNOWN_HOST: 404,
    Rejection.UNKNOWN_DOMAIN: 404,
    Rejection.UNKNOWN_MAINTENANCE: 404,
    Rejection.UNKNOWN_JOB: 404,
    Rejection.UNKNOWN_QUEUE: 404,
    Rejection.UNKNOWN_ROLE: 404,
    Rejection.UNKNOWN_TASK: 404,
    Rejection.UNKNOWN_CHECKPOINT: 404,
}
"""409 for all others: the state is against it."""

_REFUSALS = {
    "busy": (429, "this server has as many undecided requests as it takes; retry after the delay"),
    "read_only": (503, "the disk is full and nothing can be written; make room, it then heals"),
    "too_large": (
        413,
        "the event is larger than the limit of {event_bytes} bytes; make it smaller",
    ),
    "not_allowed": (403, "only the servers themselves record such an event"),
    "timeout": (503, "no leader took the request in time; it did not happen, retry"),
    "stopping": (503, "this server is stopping; ask another"),
}


class ApiError(Exception):
    """Becomes the answer. `extra` goes into the error object."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        may_have_happened: bool = False,
        retry_after_ms: int = 0,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.may_have_happened = may_have_happened
        self.retry_after_ms = retry_after_ms
        self.extra = extra or {}


def check(result: Result, subject: str, limit_bytes: int) -> None:
    """Raise what the result of a submission means, unless it took effect. `subject` names the
    thing that was asked, for the message."""
    if result.outcome == "unknown":
        raise ApiError(
            504,
            "unknown",
            f"{subject}: no outcome within the time allowed ({result.reason}); it may have "
            "happened. Repeat it with the same Idempotency-Key, or look at the state first",
            may_have_happened=True,
        )
    if result.outcome != "committed":
        status, text = _REFUSALS.get(result.reason, (503, f"not done ({result.reason}); retry"))
        raise ApiError(
            status,
            result.reason,
            f"{subject}: {text.format(event_bytes=limit_bytes)}",
            retry_after_ms=result.retry_after_ms,
        )
    if result.rejection:
        rejection = Rejection(result.rejection)
        raise ApiError(
            _STATUS_OF_REJECTION.get(rejection, 409),
            result.rejection,
            f"{subject}: {EXPLANATIONS[rejection]}",
            extra={"index": result.index},
        )


def error_response(request: web.Request, error: ApiError) -> web.Response:
    node = request.app[NODE]
    body = {
        "error": {
            "code": error.code,
            "message": str(error),
            "may_have_happened": error.may_have_happened,
            "leader": node.leader_api(),
            "retry_after_ms": error.retry_after_ms,
            **error.extra,
        },
        "applied_index": node.state.meta.applied_index,
    }
    response = web.Response(
        status=error.status, body=msgspec.json.encode(body), content_type="application/json"
    )
    if error.retry_after_ms:
        response.headers["Retry-After"] = str(max(1, -(-error.retry_after_ms // 1_000)))
    return response


_BEGUN: web.RequestKey[web.StreamResponse] = web.RequestKey("begun", web.StreamResponse)
"""The answer to a request, once its head is leaving."""


async def note_begun(request: web.Request, response: web.StreamResponse) -> None:
    """For `on_response_prepare`."""
    request[_BEGUN] = response


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Nothing leaves as HTML or as a stack trace.

    An answer that has begun can no longer become an error: its connection is broken, so that nobody
    takes the part for the whole, or an error for more of it.
    """
    response = await _answer_or_error(request, handler)
    begun: web.StreamResponse | None = request.get(_BEGUN)
    if begun is None or begun is response:
        return response
    if request.transport is not None:
        request.transport.abort()
    return begun


async def _answer_or_error(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return error_response(request, error)
    except ReadUnavailable as error:
        return error_response(request, ApiError(503, "no_leader", str(error), retry_after_ms=200))
    except StorageCorrupt as error:
        log.error("storage_corrupt", path=request.path, error=str(error))
        said = f"{error}. Meanwhile ask another server"
        return error_response(request, ApiError(503, "storage_corrupt", said))
    except NodeStopped as error:
        return error_response(request, ApiError(503, "stopping", str(error)))
    except UnencodableMessage as error:
        return error_response(request, ApiError(400, "invalid", str(error)))
    except web.HTTPRequestEntityTooLarge:
        limit_bytes = request.app[NODE].config.limits.job_bytes
        message = f"the body is larger than the limit of {limit_bytes} bytes; make it smaller"
        return error_response(request, ApiError(413, "too_large", message))
    except web.HTTPException as error:
        return error_response(request, _of_http(request, error))
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:
        log.exception("request_failed", method=request.method, path=request.path)
        return error_response(
            request,
            ApiError(
                500,
                "internal",
                f"{request.method} {request.path} met a defect of this server "
                f"({type(error).__name__}); its log has the details",
                may_have_happened=request.method != "GET",
            ),
        )


def _of_http(request: web.Request, error: web.HTTPException) -> ApiError:
    if error.status == 404:
        return ApiError(
            404, "unknown_path", f"no such path: {request.path}; the paths begin with /v1"
        )
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return ApiError(
            405, "method_not_allowed", f"{request.path} takes {allowed}, not {request.method}"
        )
    return ApiError(error.status, "http", error.reason)
