package container

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	pingEvery = 2 * time.Second
	pingLimit = 5 * time.Second
	// hungAfter is after how many unanswered pings a daemon that accepts connections counts as away.
	hungAfter = 2
)

// newPinger returns an HTTP client that opens a new connection for every request. A daemon that is stopping closes its
// socket before it stops containers but still answers on open connections, so only a new connection shows that it is
// not stopping.
func newPinger(dial func(context.Context) (net.Conn, error)) *http.Client {
	return &http.Client{Timeout: pingLimit, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
}

// beat pings the daemon and records the answer. changed reports whether the daemon has stopped or resumed answering.
func (e *Engine) beat(ctx context.Context) (changed bool, err error) {
	sent := time.Now()
	refused := false
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return false, err
	}
	res, err := e.pinger.Do(req)
	switch {
	case err == nil:
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			err = fmt.Errorf("the daemon answers a ping with %s", res.Status)
		}
	case ctx.Err() != nil:
		return false, ctx.Err()
	default:
		refused = Down(err)
	}
	if err == nil {
		started, known := e.daemonStarted()
		return e.watch.answer(sent, time.Now(), started, known), nil
	}
	return e.watch.silence(sent, refused, err.Error()), err
}

// Away returns since when and why the daemon does not answer; ok is false while it does.
func (e *Engine) Away() (since time.Time, why string, ok bool) {
	if e == nil {
		return since, "", false
	}
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	return e.watch.since, e.watch.why, !e.watch.since.IsZero()
}

// outages records when the daemon did not answer this agent. A stopping daemon closes its socket before it stops
// containers, and a starting one kills containers that it finds running. So the daemon caused an unrequested exit if
// the exit falls between the last answered ping before an outage and the first one after it.
//
// With live restore the daemon does neither: containers keep running without it, and their exits are their own.
type outages struct {
	mu       sync.Mutex
	spans    []span    // the last few
	live     bool      // live restore is on
	answered time.Time // send time of the last answered ping
	silent   int       // unanswered pings since then
	since    time.Time // start of the present outage; zero: there is none
	why      string
}

// span is an outage. An outage in which the daemon was only slow, and neither refused connections nor was restarted,
// ends no containers: a renter's program may have slowed the daemon.
type span struct {
	from, to time.Time // to is zero while it lasts
	stopped  bool
}

// survived records whether containers continue without the daemon (live restore).
func (o *outages) survived(live bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live = live
}

func (o *outages) harmless() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.live
}

// outageSlack is how far the daemon's time and the agent's time of one event may differ.
const outageSlack = 3 * time.Second

// answer records an answered ping. started is when the answering daemon was started, if known is true.
func (o *outages) answer(sent, now, started time.Time, known bool) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered, o.silent = sent, 0
	if o.since.IsZero() {
		return false
	}
	last := &o.spans[len(o.spans)-1]
	last.to = now
	last.stopped = last.stopped || known && started.After(last.from)
	o.since, o.why = time.Time{}, ""
	return true
}

// silence records a ping that was not answered. refused means that the connection was refused.
func (o *outages) silence(sent time.Time, refused bool, why string) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent++
	if o.since.IsZero() && (refused || o.silent >= hungAfter) {
		o.since = o.answered
		if o.since.IsZero() {
			o.since = sent
		}
		o.spans = append(o.spans, span{from: o.since})
		o.spans = o.spans[max(0, len(o.spans)-16):]
		changed = true
	}
	if !o.since.IsZero() {
		o.why = why
		last := &o.spans[len(o.spans)-1]
		last.stopped = last.stopped || refused
	}
	return changed
}

// answeredAfter reports whether a ping was answered that was sent after t.
func (o *outages) answeredAfter(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answered.After(t)
}

func (o *outages) covers(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		if s.stopped && t.After(s.from.Add(-outageSlack)) && (s.to.IsZero() || t.Before(s.to.Add(outageSlack))) {
			return true
		}
	}
	return false
}

// Interrupted reports whether a container's end coincides with the daemon's own: then the host caused it, whatever the
// exit code is (a program that handles TERM chooses its own). It returns an error while the daemon does not answer,
// because the cause is unknown until then.
func (e *Engine) Interrupted(ctx context.Context, c Container) (bool, error) {
	if c.State != Exited || c.FinishedAt.IsZero() || e.watch.harmless() {
		return false, nil
	}
	if !e.watch.covers(c.FinishedAt) && !e.watch.answeredAfter(c.FinishedAt) {
		if _, err := e.beat(ctx); err != nil {
			return false, unavailable(err, "ask the daemon whether it ends")
		}
	}
	if e.watch.covers(c.FinishedAt) {
		return true, nil
	}
	// If the agent was not running during the outage, the daemon's start time shows it.
	started, ok := e.daemonStarted()
	return ok && unwatched(c, started, e.born), nil
}

// unwatched reports whether a container must be treated as stopped by its daemon. daemon is when the present daemon was
// started, agent when this process was. It is true if the container ended just before the daemon started, or at a time
// at which neither the present daemon nor this process ran. In both cases there is no proof that it exited by itself.
// So an operator gains nothing by stopping the agent before the daemon.
func unwatched(c Container, daemon, agent time.Time) bool {
	if !c.StartedAt.Before(daemon) || !c.FinishedAt.Before(daemon.Add(outageSlack)) {
		return false
	}
	return c.FinishedAt.After(daemon.Add(-shutdownTime)) || c.FinishedAt.Before(agent)
}

// shutdownTime is how long before a daemon's start an exit still counts as caused by its predecessor: the daemon's own
// limit for stopping containers is 15 s, and a restart takes a few seconds more.
const shutdownTime = 30 * time.Second
