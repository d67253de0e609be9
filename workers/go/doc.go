// Package pinlater enqueues jobs and runs them: a producer and a worker for PinLater servers.
//
// A [Client] enqueues jobs, alone or many at once, looks them up, waits for their results and cancels them. A [Worker]
// takes jobs from several queues at once and gives each to the [Handler] of its name.
//
// Bodies are those of the Python framework (docs/workers-bodies.md): a job that Python enqueued runs here, and the other
// way round. Delivery is at least once, so a job may run a second time after a crash.
package pinlater
