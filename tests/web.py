"""Free ports, and an HTTP client with cookies and Jupyter's XSRF token, for tests that talk to servers."""

import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack
from http.cookiejar import CookieJar
from typing import Any


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


class Client:
    """One user's session with the servers below one address."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._cookies = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self._cookies)
        )

    def ask(self, path: str, method: str = "GET", form: dict[str, str] | None = None, **body: Any) -> tuple[int, str]:
        """Return the status and the text of a reply; ``form`` is sent as a form, ``body`` as JSON."""
        headers = {"X-XSRFToken": self._xsrf(path), "Content-Type": "application/json"}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            data: bytes | None = urllib.parse.urlencode(form | {"_xsrf": self._xsrf(path)}).encode()
        elif body:
            data = json.dumps(body).encode()
        else:
            data = b"" if method in ("POST", "PUT") else None
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request) as reply:
                return reply.status, reply.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def get(self, path: str) -> Any:
        """Return the JSON at an address; anything but success fails the test."""
        status, text = self.ask(path)
        assert status == 200, (path, status, text[-2000:])
        return json.loads(text)

    def send(self, path: str, method: str = "POST", form: dict[str, str] | None = None, **body: Any) -> Any:
        status, text = self.ask(path, method, form, **body)
        assert status in (200, 201, 202), (path, status, text[-2000:])
        return json.loads(text) if text else None

    def _xsrf(self, path: str) -> str:
        """Return the XSRF cookie with the longest path that matches."""
        found = [cookie for cookie in self._cookies if cookie.name == "_xsrf" and path.startswith(cookie.path)]
        return max(found, key=lambda cookie: len(cookie.path)).value or "" if found else ""
