// Package line is the host's line to the internet as the process for volumes uses it: one Line for each lease, which
// limits and counts what the volumes of the lease restore and upload.
//
// Invariants:
//   - Together, the connections of a lease send and receive no more than its limits, except while it hurries.
//   - What is counted is what the kernel sent and received, with the headers of packets, and what it sent again. It is
//     in a file that a kill of the process leaves, up to the last second.
//   - Only the line to the internet is limited and counted: not private networks, nor networks that the host is in.
//   - A lease has at most Streams packs on their way, however many volumes it has.
package line

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Streams is how many packs of a lease are on their way at once, in both directions together: so that leases share the
// line about equally, whether they have one volume or many. One volume has three.
const Streams = 6

// Limits are in megabits per second; 0 is no limit.
type Limits struct {
	UpMbps   int `json:"up_mbps,omitempty"`
	DownMbps int `json:"down_mbps,omitempty"`
}

// Moved counts bytes on the line.
type Moved struct {
	Up   int64 `json:"up"`
	Down int64 `json:"down"`
}

func (m Moved) plus(n Moved) Moved { return Moved{m.Up + n.Up, m.Down + n.Down} }

// Config is what a Line needs.
type Config struct {
	File   string // where the count is kept; its folder exists as long as the lease
	Limits Limits
	// OnLine reports whether packets to an address use the line.
	OnLine func(netip.Addr) bool
}

// Line is the line as one lease uses it. It is safe for concurrent use.
type Line struct {
	cfg       Config
	transport *http.Transport
	up, down  *rate.Limiter
	turns     chan struct{}

	mu      sync.Mutex
	hurried map[any]bool // who hurries
	conns   map[*conn]bool
	former  Moved // by connections that are closed, and by earlier processes
	written Moved
	noted   time.Time
}

// Open returns the line of a lease. If what earlier processes have counted cannot be read, it counts from zero.
func Open(cfg Config) *Line {
	l := &Line{cfg: cfg, up: rate.NewLimiter(rate.Inf, 0), down: rate.NewLimiter(rate.Inf, 0),
		turns: make(chan struct{}, Streams), hurried: map[any]bool{}, conns: map[*conn]bool{}}
	if m, err := Read(cfg.File); err == nil {
		l.former, l.written = m, m
	}
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	l.transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: Streams, ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 30 * time.Second,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return l.add(c), nil
		},
	}
	l.limit()
	return l
}

// Client returns a client whose connections are the lease's.
func (l *Line) Client() *http.Client { return &http.Client{Transport: l.transport} }

// Turn waits until one more pack may be on its way. done ends its turn.
func (l *Line) Turn(ctx context.Context) (done func(), err error) {
	select {
	case l.turns <- struct{}{}:
		return func() { <-l.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// SetLimits changes the limits.
func (l *Line) SetLimits(limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Limits != limits {
		l.cfg.Limits = limits
		l.limit()
	}
}

// Hurry lifts the limit of what is sent while any caller hurries: what is not stored within minutes is lost.
func (l *Line) Hurry(who any, hurries bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hurried[who] == hurries {
		return
	}
	if hurries {
		l.hurried[who] = true
	} else {
		delete(l.hurried, who)
	}
	l.limit()
}

// limit passes the limits on. Callers hold l.mu, or are the only ones.
func (l *Line) limit() {
	set := func(r *rate.Limiter, mbps int) {
		if mbps <= 0 {
			r.SetLimit(rate.Inf)
			return
		}
		bytes := mbps * 1e6 / 8
		r.SetBurst(max(4*portion, bytes/10)) // what a tenth of a second has, as timers are late
		r.SetLimit(rate.Limit(bytes))
	}
	up := l.cfg.Limits.UpMbps
	if len(l.hurried) > 0 {
		up = 0
	}
	set(l.up, up)
	set(l.down, l.cfg.Limits.DownMbps)
}

// moved returns what was counted so far. Callers hold l.mu.
func (l *Line) moved() Moved {
	m := l.former
	for c := range l.conns {
		m = m.plus(c.moved())
	}
	return m
}

// noteEvery is how often the count is written.
const noteEvery = time.Second

// Note writes the count if it has grown, once a second at most.
func (l *Line) Note() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.noted) < noteEvery {
		return nil
	}
	return l.write()
}

// Close closes the line and writes the count. Nothing of the lease may use it any more.
func (l *Line) Close() error {
	l.transport.CloseIdleConnections()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write()
}

func (l *Line) write() error {
	l.noted = time.Now()
	m := l.moved()
	if m == l.written {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(l.cfg.File), ".new-*")
	if err != nil {
		return fmt.Errorf("write what volumes have moved: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), l.cfg.File)
	}
	if err != nil {
		return fmt.Errorf("write what volumes have moved: %w", errors.Join(err, os.Remove(f.Name())))
	}
	l.written = m
	return nil
}

// Read returns what a lease's file says: zero if there is none.
func Read(file string) (m Moved, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Moved{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return Moved{}, fmt.Errorf("read what volumes have moved: %w", err)
	}
	return m, nil
}
