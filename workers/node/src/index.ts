/** Producer and worker for PinLater, over HTTP and JSON. */

export type { Handler, HandlerOptions, RawHandler, WorkerHooks, WorkerOptions } from "./worker.ts";
export { Worker } from "./worker.ts";
export type { EndedJob, Enqueued, NewJob, ProducerOptions, WaitOptions } from "./producer.ts";
export { Producer } from "./producer.ts";
export type { Job, JobContext, RawJob, StopWord } from "./claim.ts";
export type { ConnectionOptions } from "./connection.ts";
export type { OutcomeWord } from "./outcome.ts";
export { Fail, JobStopped, PinLaterError, RetryAfter, Snooze } from "./errors.ts";
export type { RetryOptions, RetryPolicy } from "./retry.ts";
export { constant, exponential, never, standard } from "./retry.ts";
export { VERSION } from "./version.ts";
