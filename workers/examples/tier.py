"""The demonstration's photographs as bodies, through a tier of the server's: a folder, unless a URL is given.

A photograph smaller than those that people send is made as large: 300 KB at least.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from processes import OUTPUT, ExampleFailed
from thumbnails import thumbnail_of

from pinlater import Client, JobFilter, JobState
from pinlater_workers import JobHandle

LEAST_BYTES, MOST_BYTES = 300_000, 5_000_000
GONE_WITHIN_S = 30.0


def tier_options(url: str) -> Sequence[str]:
    """What a server needs for bodies of up to 5 MB in a tier."""
    settings = OUTPUT / "queues.toml"
    settings.write_text('[defaults]\nmax_body = "8MiB"\n')
    return (
        *("--bodies", url or (OUTPUT / "tier").as_uri()),
        *("--max-body", "8MiB", "--max-frame", "32MiB", "--queue-file", str(settings)),
    )


def enqueue_bodies(picture: Path, sizes: Iterable[int], folder: Path) -> list[JobHandle[Any]]:
    """A job per size, each with the whole photograph."""
    data = _as_large(picture)
    return thumbnail_of.enqueue_many([(data, picture.name, size, folder) for size in sizes])


def _as_large(picture: Path) -> bytes:
    data, factor = picture.read_bytes(), 2
    try:
        while len(data) < LEAST_BYTES:
            with Image.open(picture) as image:
                larger = image.convert("RGB").resize((image.width * factor, image.height * factor))
            written = io.BytesIO()
            larger.save(written, "PNG")
            data, factor = written.getvalue(), factor + 1
    except OSError:
        return data  # it is broken: its worker will say so
    if len(data) > MOST_BYTES:
        raise ExampleFailed(f"{picture.name} has {len(data):,} bytes; the demonstration sends up to {MOST_BYTES:,}")
    return data


def show_tier(client: Client, queue: str) -> None:
    """What lies in the tier, and that nothing is left there when the jobs are gone."""
    (tier,) = client.get_body_tiers().tiers
    held, size = tier.bodies or 0, tier.bytes or 0
    print(f"\nThe tier {tier.url} holds {held} photographs of these jobs, {size / 2**20:,.1f} MiB.")
    if held:
        print(
            f"Half of them took {tier.put_p50_ms:g} ms or less to be put, and {tier.get_p50_ms or 0:g} ms to be read."
        )
    for state in (JobState.SUCCEEDED, JobState.FAILED):
        while client.delete_jobs(JobFilter(queue, state, priority=1)):
            pass
    until_s = time.monotonic() + GONE_WITHIN_S
    while (left := client.get_body_tiers().tiers[0].bodies) != 0:
        if time.monotonic() > until_s:
            raise ExampleFailed(f"{left} objects are left in the tier")
        time.sleep(0.2)
    print("The jobs are deleted, and the tier is empty again.", flush=True)
