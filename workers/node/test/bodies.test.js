// Bodies, results and retry policies, without a server.

import assert from "node:assert/strict";
import { test } from "node:test";

import { constant, exponential, never, standard } from "pinlater";

import { bytesOf, rawBody, readBody, readResult, withSnoozes, writeBody, writeResult } from "../dist/body.js";

const LINE = "PINLATER/1 application/json\n";

test("a body is a first line and a map, without what is empty", () => {
  assert.equal(writeBody({ name: "send" }), `${LINE}{"job":"send"}`);
  assert.equal(
    writeBody({ name: "a", args: [1], kwargs: { b: "ä" } }),
    `${LINE}{"job":"a","args":[1],"kwargs":{"b":"ä"}}`,
  );
});

test("a body is read as any language writes it", () => {
  const empty = { args: [], kwargs: {}, headers: {}, snoozes: 0, attempts: 0 };
  const read = (first, map) => readBody(first + JSON.stringify(map), "text");
  assert.deepEqual(read(LINE, { job: "a", args: null, later: 1 }), { ...empty, name: "a" });
  const parameters = "PINLATER/1  application/JSON; charset=utf-8\r\n";
  assert.deepEqual(read(parameters, { job: "a", kwargs: { b: 1 }, snoozes: 2 }), {
    ...empty,
    name: "a",
    kwargs: { b: 1 },
    snoozes: 2,
  });
  assert.equal(readBody("plain", "text"), null);
  assert.equal(readBody("/w==", "base64"), null);
  assert.equal(read("PINLATER/2 application/json\n", { job: "a" }).name, "PINLATER/2 application/json");
  assert.equal(
    readBody(btoa("PINLATER/1 application/msgpack\n\x81\xa3job\xa1a"), "base64").name,
    "PINLATER/1 application/msgpack",
  );
  for (const rest of ["{", "[]", "null", '{"args": []}', '{"job": 1}']) {
    assert.throws(() => readBody(LINE + rest, "text"), { name: "Fail", message: /^BodyInvalid/ });
  }
  assert.throws(() => readBody(btoa(`${LINE}{"job":"\xff"}`), "base64"), { name: "Fail" });
});

test("a snooze changes nothing but its count, also of numbers that this language cannot hold", () => {
  const body = `${LINE}{"job":"a","args":[12345678901234567890,1.0]}`;
  const once = withSnoozes(body, 1);
  assert.equal(once, `${LINE}{"job":"a","args":[12345678901234567890,1.0],"snoozes":1}`);
  assert.equal(withSnoozes(once, 2), once.replace(":1}", ":2}"));
  assert.equal(readBody(withSnoozes(`${LINE}{"snoozes":3,"job":"a"}\n`, 4), "text").snoozes, 4);
});

test("raw bodies keep all bytes", () => {
  const bytes = Uint8Array.from({ length: 256 * 400 }, (_, at) => at % 256);
  const { body, body_encoding: encoding } = rawBody(bytes);
  assert.deepEqual(bytesOf(body, encoding), bytes);
  assert.deepEqual(rawBody("ä\u0000"), { body: "ä\u0000", body_encoding: "text" });
  assert.deepEqual(bytesOf("ä", "text"), Uint8Array.of(0xc3, 0xa4));
});

test("a result is kept where its job or its type says so", () => {
  const asked = { headers: { "pinlater-result": "1" } };
  assert.equal(writeResult(asked, { a: 1 }, false), `${LINE}{"a":1}`);
  assert.equal(writeResult(asked, undefined, false), `${LINE}null`);
  assert.equal(writeResult({ headers: { "pinlater-result": "0" } }, 1, true), null);
  assert.equal(writeResult({ headers: {} }, 1, true), `${LINE}1`);
  assert.equal(writeResult({ headers: {} }, 1n, false), null);
  assert.throws(() => writeResult(asked, 1n, false), { name: "Fail", message: /^ResultInvalid/ });
  assert.equal(writeResult({ headers: { "pinlater-item": "7" } }, [1], false), "[1]");
  assert.deepEqual(readResult(`${LINE}[1]`, "text"), [1]);
  assert.equal(readResult("plain", "text"), "plain");
  assert.deepEqual(readResult("/w==", "base64"), Uint8Array.of(255));
  assert.equal(readResult(null, null), undefined);
});

test("the default policy is that of the Python framework", () => {
  const policy = standard({ jitter: 0 });
  const seconds = Array.from({ length: 10 }, (_, at) => policy.delayMs(at + 1, new Error()) / 1000);
  assert.deepEqual(seconds, [10, 20, 30, 40, 50, 100, 200, 400, 800, 1600]);
  assert.equal(policy.retries, 10);
  assert.equal(policy.delayMs(40, new Error()), 3_600_000);
});

test("policies have their delays, caps and jitter", () => {
  assert.deepEqual(
    [1, 2, 3].map((at) => exponential(100, { factor: 3, jitter: 0, capMs: 500 }).delayMs(at)),
    [100, 300, 500],
  );
  const list = constant([1, 5], { jitter: 0 });
  assert.deepEqual([list.retries, ...[1, 2, 3].map((at) => list.delayMs(at))], [2, 1, 5, 5]);
  assert.equal(never.retries, 0);
  for (let at = 0; at < 100; at++) {
    const delay = standard().delayMs(1);
    assert.ok(delay >= 9_000 && delay <= 11_000, String(delay));
  }
});
