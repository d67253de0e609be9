"""One producer process of a benchmark, as a team would write it: `python -m tests.bench.producer --help`.

Says `ready`, waits for a line on standard input, enqueues its jobs, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.bench.worker_process import make_app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--type", choices=("thread", "async"), required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--at-once", type=int, default=1000, help="jobs in one call of enqueue_many [1000]")
    options = parser.parse_args()
    app = make_app(options.server)
    job = app.job_types[options.type]
    app.client.queue_names()
    print("ready", flush=True)
    sys.stdin.readline()
    began_s, cpu_began = time.monotonic(), time.process_time()
    for start in range(0, options.jobs, options.at_once):
        job.enqueue_many([(number,) for number in range(start, min(start + options.at_once, options.jobs))])
    result = {"jobs": options.jobs, "began_s": began_s, "ended_s": time.monotonic()}
    print(json.dumps(result | {"cpu": time.process_time() - cpu_began}), flush=True)
    app.close()


if __name__ == "__main__":
    main()
