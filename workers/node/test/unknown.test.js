// The rounds of jobs of unknown types are those of the Python framework.

import assert from "node:assert/strict";
import { test } from "node:test";

import { durationText, firstSeen, nextRound } from "../dist/unknown.js";

test("rounds, statuses and durations are those of the framework", () => {
  const rounds = [0, 10_000, 50_000, 7_200_000].map((after) => nextRound({ sinceMs: 0, firstMs: 10_000 }, after));
  assert.deepEqual(
    rounds.map((each) => Math.floor(each / 1000)),
    [10, 20, 62, 7575],
  );
  const line =
    "not run: type resize, unknown to the workers of queue pictures since 2026-11-23T00:09:12.345Z (web-1:4711); " +
    "looked for again after 1d2h, later less often; FAILED after 1d\n";
  assert.deepEqual(firstSeen(`something newer\n${line}`), { sinceMs: 1795392552345, firstMs: 93_600_000 });
  assert.equal(firstSeen("attempt 1 of 11: wrong\n"), null);
  const texts = [86_400_000, 5_400_000, 10_000, 250, 0].map(durationText);
  assert.deepEqual(texts, ["1d", "1h30m", "10s", "250ms", "0s"]);
});
