"""The jobs of the worker in compose.yaml; `python jobs.py` there stores three. Put yours in its place."""

from __future__ import annotations

from pinlater_workers import App

app = App()  # its server is in PINLATER_SERVER


@app.job(queue="greetings", attempts=3)
def greet(name: str) -> None:
    print(f"Hello {name}!", flush=True)


if __name__ == "__main__":
    app.client.create_queue("greetings")  # changes nothing where it is there
    for name in ("Ada", "Grace", "Barbara"):
        greet.enqueue(name)
