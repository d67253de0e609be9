package pinlater

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTheDefaultPolicyIsThatOfTheFramework(t *testing.T) {
	policy := DefaultRetry()
	var delays []time.Duration
	for attempt := 1; attempt <= 11; attempt++ {
		delays = append(delays, policy.Delay(attempt, nil)/time.Second)
		if after := policy.after(attempt, 0, nil); (after < 0) != (attempt > 10) {
			t.Errorf("after attempt %d: %v", attempt, after)
		}
	}
	for i, want := range []time.Duration{10, 20, 30, 40, 50, 100, 200, 400, 800, 1600} {
		if delays[i] != want {
			t.Errorf("delay %d is %d s, not %d", i, delays[i], want)
		}
	}
	if after := ExponentialRetry(time.Second).Delay(50, nil); after != time.Hour {
		t.Error(after)
	}
	if after := policy.after(11, 12, nil); after < 0 {
		t.Error("more attempts than the policy has retries: ", after)
	}
}

func TestBodiesAreReadAsThePageSays(t *testing.T) {
	tests := []struct{ body, job, err string }{
		{"PINLATER/1 application/json\n{\"job\": \"a\", \"args\": null, \"kwargs\": null, \"more\": 1}", "a", ""},
		{"PINLATER/1  application/JSON; charset=utf-8\r\n{\"job\": \"a\"}", "a", ""},
		{"PINLATER/2 anything\nat all", "PINLATER/2", ""},
		{"PINLATER/1 application/msgpack\n\x81", "PINLATER/1 application/msgpack", ""},
		{"plain", "", ""},
		{"", "", ""},
		{"PINLATER/1 text/plain\n", "", "begins with"},
		{"PINLATER/0 application/json\n{}", "", "begins with"},
		{"PINLATER/1 application/json\n{", "", "cannot be read"},
		{"PINLATER/1 application/json\n{\"job\": \"\xff\"}", "", "not UTF-8"},
		{"PINLATER/1 application/json\n{\"job\": \"a\", \"kwargs\": []}", "", "not allowed"},
		{"PINLATER/1 application/json\n{\"job\": \"a\", \"snoozes\": -1}", "", "not allowed"},
	}
	for _, each := range tests {
		found, err := readEnvelope([]byte(each.body))
		if (err != nil) != (each.err != "") || err != nil && !strings.Contains(err.Error(), each.err) {
			t.Errorf("%q: %v", each.body, err)
		}
		if (found != nil) != (each.job != "") || found != nil && found.Job != each.job {
			t.Errorf("%q: %v", each.body, found)
		}
	}
}

func TestRoundsOfUnknownJobsAreThoseOfTheFramework(t *testing.T) {
	for after, want := range map[int64]int64{0: 10, 10_000: 20, 50_000: 62, 7_200_000: 7575} {
		if got := nextRound(0, 10_000, after) / 1000; got != want {
			t.Errorf("after %d ms: %d s, not %d", after, got, want)
		}
	}
	line := "not run: type resize, unknown to the workers of queue pictures since 2026-11-23T00:09:12.345Z (web-1:4711); " +
		"looked for again after 1d2h, later less often; FAILED after 1d\n"
	since, first, ok := firstSeen("something newer\n" + line)
	if !ok || since != 1795392552345 || first != 26*time.Hour.Milliseconds() {
		t.Error(since, first, ok)
	}
	for text, d := range map[string]time.Duration{
		"1d": 24 * time.Hour, "1h30m": 90 * time.Minute, "10s": 10 * time.Second, "250ms": 250 * time.Millisecond, "0s": 0,
	} {
		if durationText(d) != text {
			t.Errorf("%v is %s, not %s", d, durationText(d), text)
		}
	}
}

func TestPrefetchFollowsHowLongJobsTake(t *testing.T) {
	plan := newPrefetchPlan(map[string]int{"a": 1, "b": 1}, 10, 50*time.Millisecond)
	if wanted := plan.next(nil); len(wanted) != 0 {
		t.Error("before any job has ended: ", wanted)
	}
	for i := 0; i < 100; i++ {
		plan.ended("a", time.Millisecond)
	}
	if wanted := plan.next(nil); wanted["a"] != 100 || wanted["b"] != 0 {
		t.Error(wanted)
	}
	plan.ended("a", time.Millisecond)
	for i := 0; i < 1000; i++ {
		plan.ended("a", time.Millisecond)
	}
	if wanted := plan.next([]*Job{{Queue: "a"}}); wanted["a"] != 249 {
		t.Error(wanted)
	}
	plan.handedBack("a")
	if wanted := plan.next(nil); len(wanted) != 0 {
		t.Error("after some had to be handed back: ", wanted)
	}
	plan.took(&Job{Queue: "b", AttemptsAllowed: 1})
	plan.ended("b", time.Millisecond)
	if wanted := plan.next(nil); len(wanted) != 0 {
		t.Error("of a queue whose jobs have a single attempt: ", wanted)
	}
}

func TestWhatMayBeSentAgain(t *testing.T) {
	tests := []struct {
		reason          string
		code            int64
		alone, repeated bool
	}{
		{"OVERLOADED", 500, true, true},
		{"NOTHING_STORED", 502, true, true},
		{"OUTCOME_UNKNOWN", 502, false, true},
		{"SHARD_CONNECTION_FAILED", 502, false, true},
		{"ENQUEUE_REJECTED", 430, false, false},
		{"QUEUE_PAUSED", 429, false, false},
		{"DEQUEUE_RATE_LIMITED", 429, true, true},
	}
	for _, each := range tests {
		refused := &Error{Reason: each.reason, Retryable: true}
		if err := refused.code.Scan(each.code); err != nil {
			t.Fatal(err)
		}
		if refused.maySendAgain(false) != each.alone || refused.maySendAgain(true) != each.repeated {
			t.Error(each)
		}
	}
	if !errors.Is(&Error{Reason: "QUEUE_NOT_FOUND", Message: "a"}, ErrQueueNotFound) || errors.Is(ErrDuplicate, ErrQueueNotFound) {
		t.Error("errors are compared by their reasons")
	}
}

func TestAFailureOfAnUnknownJobIsSentUntilItIsAnswered(t *testing.T) {
	failed := &result{job: &Job{Queue: "a", Descriptor: "a:s1:p1:1"}, outcome: OutcomeFailed, permanent: true}
	sent := &batch{queue: "a", requeue: true, results: []*result{failed, handBack(&Job{Queue: "a"})}}
	// nobody is asked, as what becomes of both is decided
	ended, err := (&Worker{}).decideUnknown(context.Background(), sent)
	if err != nil || len(ended.results) != 1 || ended.results[0] != failed {
		t.Error(ended, err)
	}
}
