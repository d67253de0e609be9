"""Requests to the HTTP interface, and what is expected of the answers."""

from __future__ import annotations

from typing import Any

import httpx

PASSWORD = "open sesame"
AS_ADMIN = {"X-Admin-Password": PASSWORD}


class Caller:
    """One program that calls."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def done(self, verb: str, path: str, body: Any = None, *, status: int | None = None, **headers: str) -> Any:
        """The answer to a request that succeeds; None for none."""
        response = self.send(verb, path, body, **headers)
        assert response.is_success, response.text
        assert status is None or response.status_code == status
        if response.status_code == 204:
            assert response.content == b""
            return None
        assert response.headers["Content-Type"] == "application/json"
        return response.json()

    def refused(self, verb: str, path: str, body: Any = None, **headers: str) -> tuple[int, str, str | None]:
        """The status, the reason and the field of one that fails."""
        response = self.send(verb, path, body, **headers)
        problem = problem_of(response)
        return response.status_code, problem["reason"], problem.get("field")

    def send(self, verb: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, bytes):
            named.setdefault("Content-Type", "application/json")
            return self.client.request(verb, path, content=body, headers=named)
        return self.client.request(verb, path, json=body, headers=named)


def problem_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["Content-Type"] == "application/problem+json", response.text
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    assert problem["title"]
    assert problem["detail"]
    return problem
