// Package lazy mounts volumes of leases that are read on demand, by processes that package fusemount keeps. The
// processes read the store with requests that the control plane signs, which they get from here.
//
// What always holds:
//   - The key of a volume is in memory only, here and in its process, which gets it through a pipe.
//   - All processes of a run's mount read one snapshot: that of the run's session.
//   - The session lives as long as the mount, so that the store keeps what may still be read.
package lazy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/storage/fusemount"
	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

const (
	answerTime  = 5 * time.Second // for a request of a process, with the control plane's answer
	closeTime   = 3 * time.Second
	retryFirst  = 500 * time.Millisecond
	retryLast   = 30 * time.Second
	lookEvery   = time.Second
	reportLeast = 10 * time.Minute // however little changes: it keeps the session alive
	// maxRequest limits what a process may send.
	maxRequest = 64 << 10
	// DefaultPatience is how long a read waits for a store that does not answer.
	DefaultPatience = 2 * time.Minute
)

// Config is what the mounts of a host need.
type Config struct {
	Dir     string // of all mounts; not below a folder that is removed recursively
	Program string // muster-mount
	// Server passes a request about a volume to the control plane.
	Server   func(context.Context, agentapi.VolumeRequest) (agentapi.VolumeReply, error)
	Env      []string                                   // of the processes: the host's proxy
	Confine  func(ref agentapi.LeaseRef, pid int) error // see fusemount.Config
	Patience time.Duration                              // of reads; 0 is DefaultPatience
	Log      *slog.Logger
	Changed  func() // is called when a State has changed; nil: nothing is
}

// Mounts are the lazy mounts of a host. Safe for concurrent use.
type Mounts struct {
	*fusemount.Mounts
	cfg Config

	mu   sync.Mutex
	runs map[key]*session
}

type key struct {
	ref    agentapi.LeaseRef
	volume string
}

// Wanted is a volume that should be mounted.
type Wanted struct {
	Ref   agentapi.LeaseRef
	Mount agentapi.LazyMount // with its key, if it is known
	Cache string             // a folder of the run's own
	PID   int                // of the workload's first process; 0: none runs
	Ended bool               // nothing of the workload runs any more
}

// State is how a volume's mount is.
type State struct {
	Ready bool // it is mounted, in the workload's container too if one runs
	// Refused is why it cannot be mounted, by the control plane's word; Problem is why it is not mounted yet. For people.
	Refused string
	Problem string
	ByHost  bool   // the problem is this host's own
	Reading string // why reads wait or fail; "" = they do not
	Starts  int    // how often the process was started by this agent
}

// New returns the lazy mounts of a host. Nothing is mounted until Want.
func New(cfg Config) *Mounts {
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	return &Mounts{cfg: cfg, runs: map[key]*session{}, Mounts: fusemount.New(fusemount.Config{
		Dir: cfg.Dir, Program: cfg.Program, Env: cfg.Env, Confine: cfg.Confine, Log: cfg.Log, Changed: cfg.Changed,
	})}
}

// session is that of one mount.
type session struct {
	m      *Mounts
	ctx    context.Context
	cancel context.CancelFunc
	over   sync.WaitGroup
	ref    agentapi.LeaseRef
	volume string

	mu      sync.Mutex
	wanted  Wanted
	id      string // "" until it is open
	base    *agentapi.Snapshot
	refused string
	problem string
}

// Want mounts a volume and keeps it mounted until Detach. It may be called again with another PID; one without a key
// keeps the one that is known.
func (m *Mounts) Want(w Wanted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{w.Ref, w.Mount.Volume}
	s := m.runs[k]
	if s == nil {
		s = &session{m: m, ref: w.Ref, volume: w.Mount.Volume, wanted: w}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		m.runs[k] = s
		s.over.Go(s.run)
	}
	s.want(w)
}

// State returns how a volume of a run is mounted.
func (m *Mounts) State(ref agentapi.LeaseRef, volume string) State {
	m.mu.Lock()
	s := m.runs[key{ref, volume}]
	m.mu.Unlock()
	if s == nil {
		return State{}
	}
	s.mu.Lock()
	refused, problem := s.refused, s.problem
	s.mu.Unlock()
	x := m.Mounts.State(ref, volume)
	out := State{Ready: x.Ready, Refused: x.Refused, Problem: x.Problem, ByHost: x.ByHost, Reading: x.Process.Reading,
		Starts: x.Starts}
	if refused != "" && !x.Ready {
		out.Refused = refused
	}
	if problem != "" && !x.Ready {
		out.Problem, out.ByHost = problem, false
	}
	return out
}

// Detach ends the mounts of a run, and their sessions.
func (m *Mounts) Detach(ctx context.Context, ref agentapi.LeaseRef) error {
	for _, s := range m.take(func(k key) bool { return k.ref == ref }) {
		s.stop()
		s.close(ctx)
	}
	return m.Mounts.Detach(ctx, ref)
}

// Close stops to look after the mounts, which stay for the next agent.
func (m *Mounts) Close() {
	for _, s := range m.take(func(key) bool { return true }) {
		s.stop()
	}
	m.Mounts.Close()
}

func (m *Mounts) take(which func(key) bool) (out []*session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, s := range m.runs {
		if which(k) {
			out = append(out, s)
			delete(m.runs, k)
		}
	}
	return out
}

func (s *session) stop() {
	s.cancel()
	s.over.Wait()
}

// want notes what is wanted now, and passes it on as far as it is known.
func (s *session) want(w Wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(w.Mount.Key) == 0 {
		w.Mount.Key = s.wanted.Mount.Key
	}
	s.wanted = w
	s.pass()
}

// pass passes on what is wanted: with what the process needs to know once the session is open and the key is known.
// Callers hold s.mu.
func (s *session) pass() {
	w := s.wanted
	out := fusemount.Wanted{Ref: w.Ref, ID: w.Mount.Volume, PID: w.PID, Ended: w.Ended, Version: 1}
	if requests, err := s.m.Requests(w.Ref, w.Mount.Volume); err == nil && s.id != "" && len(w.Mount.Key) > 0 {
		v := &wire.Volume{Key: w.Mount.Key, Packs: requests, PatienceMS: s.m.cfg.Patience.Milliseconds()}
		if s.base != nil {
			root := wire.Place(s.base.Root)
			v.Root, v.PackSet = &root, s.base.Packs
		}
		out.Config = &wire.Config{Cache: w.Cache, CacheBytes: w.Mount.CacheBytes, Volume: v}
	}
	s.m.Mounts.Want(out)
}

// run opens the session, and answers the process and reports until it is stopped.
func (s *session) run() {
	if !s.open() {
		return
	}
	s.over.Go(s.answer)
	reported, last := "", time.Now()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(lookEvery):
		}
		x := s.m.State(s.ref, s.volume)
		if x.Reading == reported && time.Since(last) < reportLeast {
			continue
		}
		_, err := s.call(s.ctx, agentapi.VolumeRequest{Op: agentapi.VolumeReports,
			Report: &agentapi.VolumeReport{Problem: x.Reading}})
		if err != nil { // it is sent again
			continue
		}
		reported, last = x.Reading, time.Now()
		s.m.cfg.Changed()
	}
}

// open opens the session, again and again until it succeeds or is refused.
func (s *session) open() bool {
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		reply, err := s.call(s.ctx, agentapi.VolumeRequest{Op: agentapi.VolumeOpen,
			Open: &agentapi.OpenVolume{Mode: agentapi.MountRO}})
		if err == nil && (reply.Open == nil || reply.Open.Base == nil && reply.Open.HeadSeq != 0) {
			err = errors.New("the control plane answers an open with something else")
		}
		s.mu.Lock()
		switch {
		case err == nil:
			s.id, s.base, s.problem = reply.Open.Session, reply.Open.Base, ""
			s.pass()
		case refusal(err) != "":
			s.refused = refusal(err)
		default:
			s.problem = "the control plane does not answer yet"
			s.m.cfg.Log.Warn("a volume cannot be opened and is tried again", "lease", s.ref, "volume", s.volume, "err", err)
		}
		refused := s.refused
		s.mu.Unlock()
		if err == nil || refused != "" {
			s.m.cfg.Changed()
			return err == nil
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return false
		}
	}
}

// refusal returns the message of an error that no retry helps; "" = one may.
func refusal(err error) string {
	var e *agentapi.VolumeError
	if errors.As(err, &e) && e.Code != agentapi.VolumeAway {
		return e.Message
	}
	return ""
}

// call sends one request.
func (s *session) call(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	s.mu.Lock()
	q.LeaseRef, q.Volume, q.Session = s.ref, s.volume, s.id
	s.mu.Unlock()
	reply, err := s.m.cfg.Server(ctx, q)
	switch {
	case err != nil:
	case reply.AckError != "":
		err = fmt.Errorf("%s of a volume: %s", q.Op, reply.AckError)
	case reply.Error != nil:
		err = reply.Error
	}
	return reply, err
}

// close ends the session. If it is not answered, the server ends it with the lease.
func (s *session) close(ctx context.Context) {
	if s.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	_, err := s.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeClose, Close: &agentapi.CloseVolume{}})
	if err != nil {
		s.m.cfg.Log.Info("a volume's session is left to its lease's end", "lease", s.ref, "err", err)
	}
}

// answer answers requests of the process for signed requests, until the session is stopped.
func (s *session) answer() {
	for s.ctx.Err() == nil {
		l, err := s.listen()
		if err != nil {
			s.m.cfg.Log.Warn("a volume's process cannot be answered", "lease", s.ref, "err", err)
			select {
			case <-time.After(lookEvery):
			case <-s.ctx.Done():
			}
			continue
		}
		stop := context.AfterFunc(s.ctx, func() { l.Close() })
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				break
			}
			s.over.Go(func() { s.serve(c) })
		}
		stop()
		l.Close()
	}
}

func (s *session) listen() (*net.UnixListener, error) {
	path, err := s.m.Requests(s.ref, s.volume)
	if err != nil {
		return nil, err
	}
	return unixsock.Listen(path, 0o600)
}

func (s *session) serve(c *net.UnixConn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerTime))
	var q wire.PacksRequest
	if json.NewDecoder(io.LimitReader(c, maxRequest)).Decode(&q) != nil || len(q.Packs) == 0 ||
		len(q.Packs) > agentapi.MaxReads {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, answerTime)
	defer cancel()
	var out wire.PacksReply
	reply, err := s.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeRead,
		Read: &agentapi.ReadPacks{Packs: q.Packs}})
	switch why := refusal(err); {
	case why != "":
		out.Error, out.Final = why, true
	case err != nil:
		out.Error = "the control plane does not answer"
	case reply.Read == nil:
		out.Error = "the control plane answers a read with something else"
	default:
		for _, u := range reply.Read.Packs {
			out.Packs = append(out.Packs, wire.Pack{N: u.N, Method: u.Method, URL: u.URL, Header: u.Header,
				UntilMS: u.UntilMS, Bytes: u.Bytes})
		}
	}
	_ = json.NewEncoder(c).Encode(out) // the process retries
}
