package peers

import (
	"context"
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/musterhq/muster/agent/net/netns"
)

// Limits of what a rank sends.
const (
	atOnce      = 4   // answers
	maxWaiting  = 128 // requests that are accepted and wait for their turn
	maxConns    = 256
	headersIn   = 2 * time.Second
	maxHeader   = 4 << 10
	idleFor     = 15 * time.Second
	sendPart    = 256 << 10
	partIn      = 10 * time.Second // for each part to be taken
	clockMayErr = 1                // minutes that the clocks of two hosts may differ
)

// A Server answers the other ranks of one run, and requests packs of them, for all volumes of the run.
type Server struct {
	log    *slog.Logger
	client *http.Client
	times  times
	slots  chan struct{} // answers at once
	queue  chan struct{} // accepted requests

	mu      sync.Mutex
	cluster Cluster
	groups  map[string]*Group
	http    *http.Server
	closed  bool
}

// NewServer listens at this rank's address. If that fails, for example because another program uses the port, this rank
// sends nothing, and still requests packs from the others.
func NewServer(c Cluster, log *slog.Logger) *Server {
	s := &Server{log: log, times: defaultTimes(), slots: make(chan struct{}, atOnce),
		queue: make(chan struct{}, maxWaiting), groups: map[string]*Group{}}
	s.client = &http.Client{
		Transport: &http.Transport{
			DialContext: s.dial, DisableCompression: true, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: idleFor / 2,
			MaxResponseHeaderBytes: maxHeader,
		},
		// A hostile program at a peer's port must not redirect requests to other addresses.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.Update(c)
	return s
}

// Update sets the cluster's ranks and addresses. The server listens elsewhere only if this rank's address changes or
// the overlay moves to another namespace, as after the death of a guest; this cuts off answers that are under way.
func (s *Server) Update(c Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	stays := s.http != nil && s.cluster.NetNS == c.NetNS && s.cluster.own() == c.own()
	s.cluster = c
	if stays {
		return
	}
	if s.http != nil {
		s.http.Close() // at once: it may have the port that is needed
	}
	s.client.CloseIdleConnections()
	l, err := listen(c)
	if err != nil {
		s.log.Warn("packs of volumes cannot be sent to the other ranks, which read the store instead", "err", err)
		l = nil
	}
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: headersIn, IdleTimeout: idleFor,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if l != nil {
		h := s.http
		go func() {
			if err := h.Serve(netutil.LimitListener(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
				s.log.Warn("packs of volumes are no longer sent to the other ranks", "err", err)
			}
		}()
	}
}

func listen(c Cluster) (l net.Listener, err error) {
	addr, ok := c.of(c.Rank)
	if !ok {
		return nil, errors.New("this rank has no address")
	}
	err = c.inside(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// inside runs f in the namespace that has the overlay.
func (c Cluster) inside(f func() error) error {
	if c.NetNS == "" {
		return f()
	}
	ns, err := os.Open(c.NetNS)
	if err != nil {
		return fmt.Errorf("the cluster's network is away: %w", err)
	}
	defer ns.Close()
	return netns.Inside(ns, f)
}

func (s *Server) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = s.now().inside(func() (err error) {
		d := net.Dialer{Timeout: s.times.accept}
		conn, err = d.DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

func (s *Server) now() Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

// Close ends the server.
func (s *Server) Close() {
	s.mu.Lock()
	h := s.http
	s.http, s.closed = nil, true
	s.mu.Unlock()
	if h != nil {
		h.Close()
	}
	s.client.CloseIdleConnections()
}

func (s *Server) leave(g *Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[g.volume] == g {
		delete(s.groups, g.volume)
	}
}

// Idle reports whether no volume is served any more.
func (s *Server) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.groups) == 0
}

// serve answers GET /c/VOLUME/PACK.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // a body is neither read nor waited for
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		http.Error(w, "a request has no body", http.StatusBadRequest)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/c/")
	volume, number, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 1 || r.Method != http.MethodGet {
		w.Header().Set("Connection", "close")
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	s.mu.Lock()
	g := s.groups[volume]
	c := s.cluster
	s.mu.Unlock()
	if g == nil {
		w.Header().Set("Connection", "close")
		http.Error(w, "nothing is restored here now", http.StatusServiceUnavailable)
		return
	}
	if !authentic(c, g, n, r.Header.Get(header), time.Now()) {
		w.Header().Set("Connection", "close")
		http.Error(w, "not signed by a rank of the cluster", http.StatusForbidden)
		return
	}
	g.send(w, r, n)
}

// authentic reports whether a request was signed for this rank within the last minutes.
func authentic(c Cluster, g *Group, n int64, field string, now time.Time) bool {
	number, code, ok := strings.Cut(field, " ")
	minute, err := strconv.ParseInt(number, 10, 64)
	got, herr := hex.DecodeString(code)
	addr, known := c.of(c.Rank)
	if !ok || !known || err != nil || herr != nil || max(minute-minuteOf(now), minuteOf(now)-minute) > clockMayErr {
		return false
	}
	return hmac.Equal(got, g.keys.Sign(signed(g.volume, n, addr, minute)))
}

// answer sends a pack, and reports whether all of it was sent.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, kept *cache, n int64) bool {
	select {
	case s.queue <- struct{}{}:
		defer func() { <-s.queue }()
	default:
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return false
	}
	// At once, before the pack is here: the other rank waits longer for one that will come.
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if out.SetWriteDeadline(time.Now().Add(partIn)) != nil || out.Flush() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.times.begin)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
	p, err := kept.use(ctx, n)
	if err != nil {
		panic(http.ErrAbortHandler) // cuts the answer off: an empty one would be a pack of a wrong length
	}
	defer kept.release(p)
	from := kept.reader(p)
	end := time.Now().Add(s.times.whole)
	for off := int64(0); off < p.size; off += sendPart {
		part := io.NewSectionReader(from, off, min(sendPart, p.size-off))
		if time.Now().After(end) || out.SetWriteDeadline(time.Now().Add(partIn)) != nil {
			panic(http.ErrAbortHandler)
		}
		if _, err := io.Copy(w, part); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	return true
}
