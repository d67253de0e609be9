package pinlater

import "time"

// Figures of workers/pinlater_workers/worker/prefetch.py.
const (
	mostAtHand = 1_000
	ofLast     = 128
)

type queueTimes struct {
	ended   int
	mean    time.Duration
	without bool
}

// prefetchPlan says how many jobs of each queue to ask for beyond the free slots: as many as the slots begin in half of
// the longest wait, by what the last jobs of the queue took. A queue begins with none, has never more at hand than jobs
// of it have ended here, and begins anew when some had to be handed back. Under the worker's lock.
type prefetchPlan struct {
	slotTime time.Duration
	queues   map[string]*queueTimes
	planned  int
	refillAt int
}

func newPrefetchPlan(queues map[string]int, slots int, longest time.Duration) *prefetchPlan {
	plan := &prefetchPlan{slotTime: time.Duration(slots) * longest / 2, queues: map[string]*queueTimes{}}
	for queue := range queues {
		plan.queues[queue] = &queueTimes{without: longest <= 0}
	}
	return plan
}

// took: a job with a single attempt would lose it with this worker, without having begun.
func (p *prefetchPlan) took(job *Job) {
	if of := p.queues[job.Queue]; of != nil && job.AttemptsAllowed <= 1 {
		of.without = true
	}
}

func (p *prefetchPlan) ended(queue string, took time.Duration) {
	of := p.queues[queue]
	if of == nil {
		return
	}
	known := of.ended
	if known > ofLast {
		known = ofLast
	}
	of.mean += (took - of.mean) / time.Duration(known+1)
	of.ended++
}

func (p *prefetchPlan) handedBack(queue string) {
	if of := p.queues[queue]; of != nil {
		of.ended = 0
	}
}

// came: with fewer jobs than half of what was asked for there are no more now, until none is at hand.
func (p *prefetchPlan) came(jobs, limit int) {
	if jobs < limit+p.planned/2 {
		p.refillAt = 0
	}
}

func (p *prefetchPlan) wantsMore(waiting int) bool { return waiting <= p.refillAt }

// next is what to ask for, with these jobs at hand: of each queue as if it were alone, as a server gives of it what the
// queue's part of the limit is.
func (p *prefetchPlan) next(atHand []*Job) map[string]int {
	left := p.slotTime
	for _, job := range atHand {
		if of := p.queues[job.Queue]; of != nil {
			left -= of.mean
		}
	}
	wanted, most := map[string]int{}, 0
	for queue, of := range p.queues {
		amount := mostAtHand - len(atHand)
		if of.ended < amount {
			amount = of.ended
		}
		if of.mean > 0 && int(left/of.mean) < amount {
			amount = int(left / of.mean)
		}
		if amount > 0 && left > 0 && !of.without {
			wanted[queue] = amount
			if amount > most {
				most = amount
			}
		}
	}
	p.planned, p.refillAt = most, (len(atHand)+most)/2
	return wanted
}
