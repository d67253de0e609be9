"""A type of job: thumbnails of photographs, one job per picture and size.

    pinlater-worker --app thumbnails:app --pool process --create-queues     # in this folder
    pinlater-worker --config conf/jobs.toml                                 # the same function, by a file, from the top

A job may come twice (delivery is at least once), so the thumbnail is written beside its place and moved there in one
step.
"""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

from PIL import Image

from pinlater_workers import App

app = App()


@app.job(queue="thumbnails", attempts=3, retry=[0.4, 0.8], time_limit="1m")
def thumbnail(picture: Path, size: int, folder: Path) -> None:
    make_thumbnail(picture, size, folder)


@app.job(queue="thumbnails", attempts=3, retry=[0.4, 0.8], time_limit="1m", encoding="msgpack")
def thumbnail_of(picture: bytes, name: str, size: int, folder: Path) -> None:
    """The same where the photograph itself travels with the job: a body of some MiB, for a tier of the server's."""
    _write_thumbnail(io.BytesIO(picture), name, size, folder)


def make_thumbnail(picture: Path, size: int, folder: Path) -> Path:
    """Write a JPEG that fits into a square of `size` pixels. OSError for a picture that cannot be read."""
    return _write_thumbnail(picture, picture.name, size, folder)


def _write_thumbnail(picture: Path | io.BytesIO, name: str, size: int, folder: Path) -> Path:
    target = folder / f"{name.replace('.', '-')}-{size}.jpg"
    unfinished = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with Image.open(picture) as image:
        image.thumbnail((size, size))
        image.convert("RGB").save(unfinished, "JPEG", quality=88)
    unfinished.replace(target)
    return target
