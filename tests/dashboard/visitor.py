"""A browser at the dashboard, as far as HTTP goes: it keeps cookies and sends the forms that pages have."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

import httpx

FORM = re.compile(r'<form class="panel" method="post" action="([^"]+)"')
CSRF = re.compile(r'name="csrf" value="([^"]+)"')
OF_A_BROWSER = {"Sec-Fetch-Site": "same-origin"}


class Visitor:
    """One browser with one session."""

    def __init__(self, address: str) -> None:
        self.client = httpx.Client(
            base_url=address,
            timeout=300,
            trust_env=False,
            headers={"Accept": "text/html"},
            limits=httpx.Limits(max_keepalive_connections=0),  # so that nothing is left open behind a test
        )

    def open(self, *, password: str = "", token: str = "", source: str = "anna@laptop") -> Visitor:
        """Opens the dashboard by a one-time link."""
        response = self.client.get(self.link(password=password, token=token, source=source))
        assert response.status_code == 200, response.text
        return self

    def link(self, *, password: str = "", token: str = "", source: str = "anna@laptop") -> str:
        headers = {"X-PinLater-Source": source}
        headers |= {"Authorization": f"Bearer {token}"} if token else {"X-Admin-Password": password}
        with httpx.Client(base_url=self.client.base_url, timeout=60, trust_env=False) as program:
            response = program.post("/dashboard/links", headers=headers)
        assert response.status_code == 201, response.text
        assert response.json()["valid_s"] == 300
        return str(response.json()["path"])

    def get(self, path: str, *, status: int = 200, **headers: str) -> httpx.Response:
        response = self.client.get(path, headers={name.replace("_", "-"): each for name, each in headers.items()})
        assert response.status_code == status, (response.status_code, response.text[:500])
        return response

    def text(self, path: str, *, status: int = 200) -> str:
        """A page as people read it: without tags, with single spaces."""
        return text_of(self.get(path, status=status).text)

    def send(self, path: str, form: Mapping[str, str], **headers: str) -> httpx.Response:
        """A form, as a browser sends it."""
        named = {name.replace("_", "-"): each for name, each in headers.items()}
        return self.client.post(path, data=dict(form), headers={**OF_A_BROWSER, **named})

    def shown(self, path: str, form: Mapping[str, str]) -> str:
        """The page that a form leads to which was not taken, or not yet."""
        response = self.send(path, form)
        assert response.status_code == 303, response.text
        return self.get(response.headers["Location"]).text

    def press(self, page: str, action: str, **form: str) -> str:
        """Sends a form that a page has; what the page behind it tells, as people read it."""
        shown = self.get(page).text
        assert action in FORM.findall(shown), f"{page} has no form for {action}"
        response = self.send(action, {"csrf": csrf_of(shown), **form})
        assert response.status_code == 303, response.text
        return self.text(response.headers["Location"])

    def actions(self, page: str) -> set[str]:
        """The changes that a page offers."""
        return set(FORM.findall(self.get(page).text))


def csrf_of(page: str) -> str:
    found = CSRF.search(page)
    assert found is not None
    return found[1]


def text_of(page: str) -> str:
    body = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", body))).strip()
