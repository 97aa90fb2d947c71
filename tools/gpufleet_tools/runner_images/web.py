"""HTTP requests with a time limit for the whole response, and errors of one line."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import ipaddress
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

ANSWER_LIMIT = 16 * 2**20
"""Maximum size of a response that is read as a whole, in bytes."""


SILENCE = 30.0
"""Seconds that a server may take between two parts of a response; a whole layer may take longer."""


class LookupFailed(Exception):
    """A look-up failed. `str()` is one line."""


class TooSlow(LookupFailed):
    """A response did not come in time."""

    def __init__(self, fault: str, advice: str) -> None:
        super().__init__(f"{fault}; {advice}")
        self.fault = fault
        """The message without the advice, which names an option of `gpufleet pins`."""


class Refused(LookupFailed):
    """A response with an error status."""

    def __init__(self, url: str, status: int, headers: Mapping[str, str], reason: str) -> None:
        super().__init__(f"{url}: status {status} {reason}")
        self.status = status
        self.headers = headers


@dataclass(frozen=True)
class Answer:
    """A response that was read as a whole."""

    url: str
    """Address after redirects."""
    headers: Mapping[str, str]
    """Headers by names in lower case."""
    body: bytes
    """Content."""


class Stream:
    """Content of a response, read with a deadline, so that a slow response fails too."""

    def __init__(self, response: http.client.HTTPResponse, url: str, deadline: float) -> None:
        self._response, self._url, self._deadline = response, url, deadline
        self.bytes_read = 0
        length = response.headers.get("Content-Length", "")
        self.length = int(length) if length.isdecimal() else None

    def read(self, size: int = 2**16) -> bytes:
        """Return the next bytes; none at the end of a complete response. Raises LookupFailed."""
        if time.monotonic() > self._deadline:
            raise TooSlow(f"{self._url}: took too long", "raise --seconds")
        with _in_one_line(self._url):
            content = self._response.read1(size)
        self.bytes_read += len(content)
        if not content and size and self.length is not None and self.bytes_read < self.length:
            raise LookupFailed(f"{self._url}: ended after {self.bytes_read} of {self.length} bytes; try again")
        return content


@contextlib.contextmanager
def opened(url: str, seconds: float, headers: Mapping[str, str] | None = None) -> Iterator[tuple[Stream, Answer]]:
    """Yield the content of a response, and the response without it. Raises LookupFailed."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise LookupFailed(f"{url}: does not begin with https:// or http://")
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, headers={"User-Agent": "gpufleet", **(headers or {})})
    with _in_one_line(url), contextlib.closing(_opener(url).open(request, timeout=min(seconds, SILENCE))) as response:
        yield Stream(response, url, deadline), Answer(response.url, _lower(response.headers), b"")


def get(url: str, seconds: float, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a complete response. Raises LookupFailed."""
    with opened(url, seconds, headers) as (stream, answer):
        content = bytearray()
        while more := stream.read():
            content += more
            if len(content) > ANSWER_LIMIT:
                raise LookupFailed(f"{url}: the response is larger than {ANSWER_LIMIT >> 20} MiB; check the address")
        return Answer(answer.url, answer.headers, bytes(content))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirect handler that removes the credentials of the first host: registries store layers on other hosts."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if old.scheme == "https" and new.scheme != "https":
            raise LookupFailed(f"{req.full_url}: redirects to {new.scheme}://{new.netloc}, which is not encrypted")
        if redirected is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            redirected.remove_header("Authorization")
        return redirected


def _opener(url: str) -> urllib.request.OpenerDirector:
    # Servers on this machine are not behind the environment's proxy.
    local = is_loopback(urllib.parse.urlsplit(url).hostname or "")
    return urllib.request.build_opener(_Redirects, *([urllib.request.ProxyHandler({})] if local else []))


@contextlib.contextmanager
def _in_one_line(url: str) -> Iterator[None]:
    """Convert every error of a request into a LookupFailed of one line."""
    try:
        yield
    except urllib.error.HTTPError as error:
        headers = _lower(error.headers)
        error.close()
        if (until := _limited_until(error.code, headers)) is not None:
            raise LookupFailed(f"{url}: the rate limit is exceeded{until}; wait, or set GITHUB_TOKEN") from None
        raise Refused(url, error.code, headers, error.reason) from None
    except TimeoutError:
        raise TooSlow(f"{url}: no response in time", "raise --seconds, or try again") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise TooSlow(f"{url}: no response in time", "raise --seconds, or try again") from None
        raise LookupFailed(f"{url}: cannot be reached: {error.reason}") from None
    except http.client.IncompleteRead:
        raise LookupFailed(f"{url}: the response is incomplete; try again") from None
    except (http.client.HTTPException, OSError) as error:
        raise LookupFailed(f"{url}: the connection failed: {error or type(error).__name__}") from None


def _limited_until(status: int, headers: Mapping[str, str]) -> str | None:
    """Return ` until TIME` for the response of a rate limit, an empty text without a time; None for others."""
    limited = status == 429 or (status == 403 and headers.get("x-ratelimit-remaining") == "0")
    if not limited:
        return None
    reset = headers.get("x-ratelimit-reset", "")
    if not reset.isdecimal():
        return ""
    return f" until {datetime.datetime.fromtimestamp(int(reset), datetime.UTC):%Y-%m-%d %H:%M} UTC"


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
