"""One producer process of a benchmark, as a team would write it: `python -m tests.bench.producer --help`.

Says `ready`, waits for a line on standard input, enqueues its jobs, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from pinlater import Job
from tests.bench.worker_process import QUEUE, make_app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--type", choices=("thread", "async"), required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--at-once", type=int, default=1000, help="jobs in one call of enqueue_many [1000]")
    parser.add_argument("--plain", action="store_true", help="by the enqueue of the client, with a body made before")
    options = parser.parse_args()
    app = make_app(options.server)
    job, client = app.job_types[options.type], app.client
    client.queue_names()
    body = job.body(0)
    print("ready", flush=True)
    sys.stdin.readline()
    began_s, cpu_began = time.monotonic(), time.process_time()
    for start in range(0, options.jobs, options.at_once):
        numbers = range(start, min(start + options.at_once, options.jobs))
        if options.plain:
            client.enqueue(QUEUE, [Job(body, attempts_allowed=5) for _ in numbers])
        else:
            job.enqueue_many([(number,) for number in numbers])
    result = {"jobs": options.jobs, "began_s": began_s, "ended_s": time.monotonic()}
    print(json.dumps(result | {"cpu": time.process_time() - cpu_began}), flush=True)
    app.close()


if __name__ == "__main__":
    main()
