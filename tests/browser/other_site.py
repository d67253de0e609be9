"""A site of somebody else, on another port: its pages try to act through the browser of an operator who visits them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class OtherSite:
    """`page` is what it shows to whoever comes."""

    def __init__(self) -> None:
        self.page = ""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = site.page.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def address(self, host: str) -> str:
        """Under the name of the site that is attacked it is a neighbour, whose requests carry cookies for it."""
        return f"http://{host}:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def other_site() -> Iterator[OtherSite]:
    site = OtherSite()
    try:
        yield site
    finally:
        site.close()
