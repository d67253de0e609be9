"""PinLater's worker framework: functions that run later, on any server that speaks PinLater.

app = App(servers=["127.0.0.1:9010"])

@app.job(queue="thumbnails")
def thumbnail(path: str, size: int) -> None: ...

thumbnail.enqueue("a.jpg", size=200)
"""

from pinlater_workers.app import App
from pinlater_workers.errors import ConfigurationError

__all__ = ["App", "ConfigurationError"]
