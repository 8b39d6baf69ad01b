package update

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Config configures an Updater. All fields are required unless noted otherwise.
type Config struct {
	Tree    Tree
	Managed bool // whether a launcher has started this agent, from the tree
	State   string
	Version string // version of this agent
	Keys    []ed25519.PublicKey
	Next    http.RoundTripper // makes the connections
	Allow   []string          // host:port of a source that may use plain HTTP; empty: none
	// Examine returns what the doctor of a program finds bad on this host, one word for each check.
	Examine   func(ctx context.Context, program string) ([]string, error)
	Probation time.Duration // how long everything must be healthy before a new version has proven itself; 0 = 1 min
	Log       *slog.Logger

	retry time.Duration // interval of download attempts; 0 = 10 min
}

// Report is one exchange with the server.
type Report struct {
	Committed bool // the server has accepted the statuses
	Full      bool // the statuses of everything that runs here
	Leases    []agentapi.LeaseStatus
	Order     *agentapi.UpdateOrder
}

// Updater follows the server's update orders within a running agent, and proves the agent while it is on trial.
type Updater struct {
	cfg   Config
	store store
	trial *trial // this process runs the version of this trial

	news chan struct{}
	over chan struct{} // closed when the agent must end for its successor or the launcher

	mu     sync.Mutex
	last   Report
	status agentapi.UpdateStatus
	well   time.Time // since when every report was healthy; zero: the last one was not
	fit    bool      // the doctor finds nothing bad that it did not find before
}

// New reads the stored state. It starts nothing.
func New(cfg Config) (*Updater, error) {
	if cfg.Probation == 0 {
		cfg.Probation = time.Minute
	}
	if cfg.retry == 0 {
		cfg.retry = 10 * time.Minute
	}
	u := &Updater{cfg: cfg, store: storeIn(cfg.State), news: make(chan struct{}, 1), over: make(chan struct{})}
	if !cfg.Managed {
		u.status = agentapi.UpdateStatus{
			State:  agentapi.UpdateUnmanaged,
			Detail: "the agent was not started by its launcher, or not from where the install script puts it",
		}
		return u, nil
	}
	m, err := u.store.load()
	if err != nil {
		return nil, fmt.Errorf("load the state of updates: %w", err)
	}
	u.status = m.Last
	if t := m.Trial; t != nil && t.Version == cfg.Version {
		u.trial = t
		u.status = agentapi.UpdateStatus{State: agentapi.UpdateTrial, Version: t.Version, Try: t.Try}
	}
	return u, nil
}

// Status returns what the agent reports to the server.
func (u *Updater) Status() agentapi.UpdateStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status
}

// Over is closed when this agent must end, leaving renters' workloads running, so that the launcher continues.
func (u *Updater) Over() <-chan struct{} { return u.over }

// Reported records an exchange with the server. It does not block.
func (u *Updater) Reported(r Report) {
	u.mu.Lock()
	u.last = r
	u.mu.Unlock()
	select {
	case u.news <- struct{}{}:
	default:
	}
}

// Run works until ctx ends or the agent must end.
func (u *Updater) Run(ctx context.Context) {
	if !u.cfg.Managed {
		return
	}
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.news:
		case <-again:
		}
		again = nil
		u.mu.Lock()
		r := u.last
		u.mu.Unlock()
		if u.trial != nil {
			if u.judge(ctx, r) {
				return
			}
			again = time.After(u.cfg.Probation / 4)
			continue
		}
		done, err := u.follow(ctx, r)
		if done {
			close(u.over)
			return
		}
		if err != nil && ctx.Err() == nil {
			u.report(agentapi.UpdateWaiting, r.Order, err.Error())
			u.cfg.Log.Warn("the agent's new version cannot be had yet", "version", r.Order.Version, "err", err)
			u.drain(ctx, *r.Order)
			again = time.After(u.cfg.retry)
		}
	}
}

// drain waits for the pause after an order failed. A report with another order, or with none, ends the pause. The order
// is an argument because the server may have withdrawn it in the meantime.
func (u *Updater) drain(ctx context.Context, failed agentapi.UpdateOrder) {
	t := time.NewTimer(u.cfg.retry)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-u.news:
			u.mu.Lock()
			order := u.last.Order
			u.mu.Unlock()
			if order == nil || *order != failed {
				return // another order
			}
		}
	}
}

func (u *Updater) report(state agentapi.UpdateState, o *agentapi.UpdateOrder, detail string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status = agentapi.UpdateStatus{State: state, Version: o.Version, Try: o.Try, Detail: clip(detail, 500)}
}

// judge checks whether this process, the version on trial, has proven itself. done reports that it has.
func (u *Updater) judge(ctx context.Context, r Report) (done bool) {
	why := unproven(u.trial, r)
	if why == "" && !u.fit {
		bad, err := u.cfg.Examine(ctx, u.cfg.Tree.Program(u.cfg.Version))
		if w := worse(bad, u.trial.Bad); err != nil {
			why = "the doctor cannot be asked: " + err.Error()
		} else if len(w) > 0 {
			why = "the doctor finds bad what was not before: " + strings.Join(w, ", ")
		}
		u.fit = why == ""
	}
	now := time.Now()
	switch {
	case why != "":
		u.well = time.Time{}
	case u.well.IsZero():
		u.well = now
	}
	u.mu.Lock()
	u.status.Detail = clip(why, 500)
	u.mu.Unlock()
	if err := u.store.lacks(u.trial, why); err != nil {
		u.cfg.Log.Warn("cannot note how the trial goes", "err", err)
	}
	if why != "" || now.Sub(u.well) < u.cfg.Probation {
		return false
	}
	if err := u.store.prove(proof{u.trial.Version, u.trial.Try}); err != nil {
		u.cfg.Log.Error("cannot note that this version has proven itself", "err", err)
		return false
	}
	return true // the launcher ends this process and makes its version current
}

// follow does what an order asks for, up to the launcher's part. done reports that the agent must hand over now.
func (u *Updater) follow(ctx context.Context, r Report) (done bool, err error) {
	o := r.Order
	if o == nil || o.Version == u.cfg.Version || u.finished(*o) {
		return false, nil
	}
	if why := newer(o.Version, u.cfg.Version); why != "" {
		return false, u.refuse(*o, why)
	}
	u.report(agentapi.UpdateFetching, o, "")
	u.cfg.Log.Info("fetching another version of the agent", "version", o.Version, "source", o.Source)
	allow := map[string]bool{}
	for _, a := range u.cfg.Allow {
		allow[a] = true
	}
	from := source{
		client: &http.Client{Transport: encrypted{allow, u.cfg.Next}, Timeout: time.Hour},
		keys:   u.cfg.Keys,
		arch:   runtime.GOARCH,
	}
	if err := u.cfg.Tree.add(o.Version, func(dir string) error {
		return from.fetch(ctx, o.Source, o.Version, dir)
	}); err != nil {
		return false, err
	}
	before, why, err := u.examine(ctx, o.Version)
	if err != nil {
		return false, err
	}
	if why != "" {
		return false, u.refuse(*o, why)
	}
	t := &trial{Version: o.Version, Try: o.Try, From: u.cfg.Version, Bad: before, Good: []agentapi.LeaseRef{}}
	u.mu.Lock()
	for _, st := range u.last.Leases { // the newest report: the download took a while
		if st.Good {
			t.Good = append(t.Good, st.LeaseRef)
		}
	}
	u.mu.Unlock()
	m, err := u.store.load()
	if err != nil {
		return false, err
	}
	m.Trial = t
	if err := u.store.save(m); err != nil {
		return false, err
	}
	u.cfg.Log.Info("handing over to another version of the agent; what runs for renters goes on", "version", o.Version)
	return true, nil
}

// examine runs the new version's doctor before the handover: it must start on this host, and must find nothing bad that
// this version's doctor does not find.
func (u *Updater) examine(ctx context.Context, version string) (before []string, why string, err error) {
	program := u.cfg.Tree.Program(version)
	short, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out []byte
	err = whileBusy(func() (err error) {
		out, err = exec.CommandContext(short, program, "version").CombinedOutput()
		return err
	})
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if err != nil {
		return nil, fmt.Sprintf("it does not start on this machine: %v: %s", err, clip(strings.TrimSpace(string(out)), 200)),
			nil
	}
	if !strings.HasPrefix(string(out), "muster-agent "+version+" ") {
		return nil, "it says it is another version: " + clip(strings.TrimSpace(string(out)), 100), nil
	}
	if before, err = u.cfg.Examine(ctx, u.cfg.Tree.Program(u.cfg.Version)); err != nil {
		return nil, "", fmt.Errorf("the doctor cannot be asked: %w", err)
	}
	now, err := u.cfg.Examine(ctx, program)
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if err != nil {
		return nil, fmt.Sprintf("its doctor fails: %v", err), nil
	}
	if w := worse(now, before); len(w) > 0 {
		return nil, "its doctor finds bad what this version's does not: " + strings.Join(w, ", "), nil
	}
	return before, "", nil
}

// finished reports whether an order was completed before.
func (u *Updater) finished(o agentapi.UpdateOrder) bool {
	s := u.Status()
	return s.Version == o.Version && s.Try == o.Try &&
		(s.State == agentapi.UpdateRefused || s.State == agentapi.UpdateRolledBack)
}

// refuse ends an order for good.
func (u *Updater) refuse(o agentapi.UpdateOrder, why string) error {
	u.cfg.Log.Error("the agent's new version is refused", "version", o.Version, "why", why)
	m, err := u.store.load()
	if err != nil {
		return err
	}
	m.Last = agentapi.UpdateStatus{State: agentapi.UpdateRefused, Version: o.Version, Try: o.Try, Detail: clip(why, 500)}
	m.At = time.Now().UTC()
	if err := errors.Join(u.store.save(m), u.cfg.Tree.prune(u.cfg.Version, m.Previous)); err != nil {
		return err
	}
	u.report(agentapi.UpdateRefused, &o, why)
	return nil
}
