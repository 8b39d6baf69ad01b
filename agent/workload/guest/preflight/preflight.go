// Package preflight measures the overlay before a job starts on it: it sends real data through a ring of all ranks and
// checks the result of every round, measures round trips to every rank and, in small clusters, the bandwidth of every
// pair.
//
// Invariants: figures are measured, never derived; a rank that does not answer is named; when it returns, nothing
// listens any more. All ranks run it at the same time; each waits for the others no longer than the request says. The
// overlay authenticates: a peer is the rank that has its address. All ranks repeat a measurement that was broken off
// because a rank's host had trouble.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// Port is where every rank's guest listens during the preflight.
const Port = 29400

const (
	defaultBytes = 8 << 20
	defaultJoin  = 60 * time.Second
	defaultTotal = 120 * time.Second
	maxBytes     = 16 << 20 // a guest has 64 MB in total
	pairsUpTo    = 32       // nodes
	maxBroken    = 6        // measurements in a row
	settle       = 150 * time.Millisecond
)

// Run measures and returns the figures. It does not fail: Detail says what went wrong.
func Run(ctx context.Context, q guest.PreflightRequest) agentapi.Preflight {
	if err := check(&q); err != nil {
		return agentapi.Preflight{Detail: err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(q.TotalMS)*time.Millisecond, errTooLong)
	defer cancel()
	p, _, err := measure(ctx, q)
	return judge(ctx, q, p, err)
}

// Keep measures and passes on the result; it repeats a measurement that was broken off, at most maxBroken times. Once
// there is a good result (with measured, from the beginning), it measures again whenever another rank asks for it,
// until ctx ends: that rank's result was lost with its guest, or only that rank saw the last round break. After a bad
// result it returns.
func Keep(ctx context.Context, q guest.PreflightRequest, measured bool, report func(agentapi.Preflight)) {
	if err := check(&q); err != nil {
		report(agentapi.Preflight{Detail: err.Error()})
		return
	}
	for broken := 0; ctx.Err() == nil; {
		if !measured {
			p, again := once(ctx, q)
			if again && broken < maxBroken {
				// Wait until all ranks have seen it break: a rank that still holds its connections would break the next
				// measurement, too. There is no bound on how long that takes.
				pause(ctx, settle<<broken)
				broken++
				continue
			}
			if report(p); !p.OK {
				return
			}
		}
		measured = false
		if len(q.Addresses) == 1 || awaitCall(ctx, q) != nil {
			return
		}
	}
}

// once measures; again reports that the measurement was broken off, which by itself says nothing about the network.
func once(ctx context.Context, q guest.PreflightRequest) (p agentapi.Preflight, again bool) {
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(q.TotalMS)*time.Millisecond, errTooLong)
	defer cancel()
	m, joined, err := measure(limited, q)
	again = err != nil && joined && limited.Err() == nil && !errors.Is(err, errWrong)
	return judge(limited, q, m, err), again
}

var (
	errTooLong = errors.New("the preflight took too long")
	errWrong   = errors.New("wrong")
)

// judge sets in p whether a measurement counts.
func judge(ctx context.Context, q guest.PreflightRequest, m measured, err error) agentapi.Preflight {
	p := m.Preflight
	switch {
	case err != nil && ctx.Err() != nil && context.Cause(ctx) != ctx.Err():
		p.Detail = fmt.Sprintf("%v: %v", context.Cause(ctx), err)
	case err != nil:
		p.Detail = err.Error()
	case q.MinGbps > 0 && len(q.Addresses) > 1:
		p.Detail = verdict(p.BusbwGbps, m.slow, q.MinGbps)
		p.OK = p.Detail == ""
	default:
		p.OK = true
	}
	return p
}

// measured is the result of one rank, and the slowest pair of all.
type measured struct {
	agentapi.Preflight
	slow pair
}

// verdict says why the network is not what was requested, or returns "". Every rank gets the same verdict.
func verdict(busbw float64, slow pair, min float64) string {
	switch {
	case slow.gbps > 0 && (slow.gbps < min || busbw < min):
		return fmt.Sprintf("the slowest pair is from rank %d to rank %d with %s Gbit/s, the ring of all reached %s; %s "+
			"were asked for",
			slow.from, slow.to, figure(slow.gbps), figure(busbw), figure(min))
	case busbw < min:
		return fmt.Sprintf("the ring reached %s Gbit/s, %s were asked for", figure(busbw), figure(min))
	}
	return ""
}

// figure formats a rate for people: a slow one is not shown as 0.00.
func figure(gbps float64) string {
	if gbps < 0.1 {
		return strconv.FormatFloat(gbps, 'g', 2, 64)
	}
	return strconv.FormatFloat(gbps, 'f', 2, 64)
}

// check fills in the defaults.
func check(q *guest.PreflightRequest) error {
	if q.Rank < 0 || q.Rank >= len(q.Addresses) {
		return fmt.Errorf("rank %d of %d nodes", q.Rank, len(q.Addresses))
	}
	for r, a := range q.Addresses {
		if a == "" {
			return fmt.Errorf("rank %d has no address", r)
		}
	}
	if q.Bytes == 0 {
		q.Bytes = defaultBytes
	}
	if q.Bytes < int64(4*len(q.Addresses)) || q.Bytes > maxBytes {
		return fmt.Errorf("%d bytes cannot be all-reduced here", q.Bytes)
	}
	if q.JoinMS == 0 {
		q.JoinMS = defaultJoin.Milliseconds()
	}
	if q.TotalMS == 0 {
		q.TotalMS = defaultTotal.Milliseconds()
	}
	return nil
}

// measure runs the steps in order; each needs the one before. joined reports whether all ranks were connected.
func measure(ctx context.Context, q guest.PreflightRequest) (p measured, joined bool, err error) {
	n := len(q.Addresses)
	if n == 1 {
		p.RTTMicros = []float64{0}
		return p, true, nil
	}
	m, err := join(ctx, q)
	if err != nil {
		return p, false, err
	}
	defer m.close()
	if p.RTTMicros, err = m.roundTrips(); err != nil {
		return p, true, err
	}
	r, err := m.allReduces(ctx, q.Bytes)
	if err != nil {
		return p, true, err
	}
	p.Bytes, p.Seconds, p.BusbwGbps = r.bytes, r.seconds, r.busbw(n)
	p.Streams = 1 + len(m.ring.more)
	if n <= pairsUpTo {
		size := pairBytes(r.bytes, q.Bytes)
		if r.scaled {
			size = pairBytesAt(p.BusbwGbps, n)
		}
		if p.PairGbps, err = m.pairs(size); err != nil {
			return p, true, err
		}
		if p.slow, err = m.slowestPair(p.PairGbps); err != nil {
			return p, true, err
		}
	}
	return p, true, m.ring.agree() // no rank leaves before all have measured
}

// gbps converts bytes in a time to gigabits per second.
func gbps(bytes int64, seconds float64) float64 { return float64(bytes) * 8 / seconds / 1e9 }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
