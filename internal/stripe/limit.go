package stripe

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Stripe allows 100 reads and 100 writes a second in live mode and 25 of each in test mode, for all replicas together.
const (
	liveRate = 40 // calls per second of one client
	testRate = 10
)

// Bounds of the pause after Stripe answered 429.
const (
	firstBackOff = time.Second // doubles with each further one
	maxBackOff   = 30 * time.Second
)

// errBackOff is the answer to calls that are not made because Stripe limits our rate at present.
var errBackOff = errors.New("stripe limits the rate of calls: none is made at present")

// CodeBackOff is the code of the Error of a call that was not made because Stripe limits the rate of calls. Its outcome
// is Later.
const CodeBackOff = "rate_limit"

// IsBackOff reports whether a call failed only because Stripe limits the rate of calls.
func IsBackOff(err error) bool {
	e := As(err)
	return e != nil && e.Code == CodeBackOff
}

// limiter is the transport of all calls of a client: a token bucket, and a pause for all of them when Stripe answers
// 429.
type limiter struct {
	next    http.RoundTripper
	bucket  *rate.Limiter // nil: no limit
	backOff time.Duration // the first one; 0: none

	mu    sync.Mutex
	until time.Time // no call is made before
	pause time.Duration
}

func newLimiter(cfg Config) *limiter {
	l := &limiter{next: http.DefaultTransport, backOff: cfg.BackOff}
	perSecond := cfg.Rate
	if cfg.URL == "" {
		if l.backOff == 0 {
			l.backOff = firstBackOff
		}
		if perSecond == 0 {
			perSecond = testRate
			if strings.Contains(cfg.Key, "_live_") {
				perSecond = liveRate
			}
		}
	}
	if perSecond > 0 {
		l.bucket = rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
	}
	return l
}

// wait is how long no call is made.
func (l *limiter) wait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.until))
}

func (l *limiter) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.bucket != nil {
		if err := l.bucket.Wait(r.Context()); err != nil {
			return nil, err
		}
	}
	if l.wait() > 0 { // after the bucket: others may have met a 429 meanwhile
		return nil, errBackOff
	}
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusTooManyRequests {
		l.mu.Lock()
		l.pause = 0
		l.mu.Unlock()
		return resp, nil
	}
	if l.backOff > 0 && !lockTimeout(resp) {
		l.mu.Lock()
		l.pause = min(maxBackOff, max(l.backOff, 2*l.pause))
		l.until = time.Now().Add(l.pause)
		l.mu.Unlock()
	}
	return resp, nil
}

// lockTimeout reports whether a 429 is about one object that another call holds, not about the rate. The body can be
// read again.
func lockTimeout(resp *http.Response) bool {
	const enough = 64 << 10
	b, err := io.ReadAll(io.LimitReader(resp.Body, enough))
	_ = resp.Body.Close() // it was read
	resp.Body = io.NopCloser(bytes.NewReader(b))
	var body struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	return err == nil && json.Unmarshal(b, &body) == nil && body.Error.Code == "lock_timeout"
}

// BackingOff is how long no call is made because Stripe limits the rate of calls; 0: calls are made. Background work
// that would only meet the same answer waits that long.
func (c *Client) BackingOff() time.Duration { return c.limit.wait() }
