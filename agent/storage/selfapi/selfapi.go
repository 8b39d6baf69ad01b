// Package selfapi is what a node's own program can request about its node: checkpoints of its volumes. The agent serves
// it on a socket in the folder that every workload sees; muster-guest and docs/launch/muster.py use it.
//
// The program is its renter's and may be hostile: requests are short, few at a time, and name folders of the node's own
// volumes only.
package selfapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/internal/agentapi"
)

// Socket is the name of the socket in guest.NodeDir.
const Socket = "self.sock"

// Limits on what a program may send.
const (
	maxConns   = 16
	maxRequest = 16 << 10
	maxWait    = time.Minute
	look       = 50 * time.Millisecond // between looks at a checkpoint that is waited for
)

// Request is the body of POST /v1/self/checkpoints.
type Request struct {
	Dir   string `json:"dir"` // absolute, in the container
	Label string `json:"label,omitempty"`
	// AllRanks: it is committed, together with theirs, once all ranks of the cluster have requested one with this label.
	AllRanks bool `json:"all_ranks,omitempty"`
	Keep     bool `json:"keep,omitempty"` // a newer request for the same folder does not replace this one
}

// Durable is the answer to GET /v1/self/durable: the last commits.
type Durable struct {
	Volumes []DurableVolume `json:"volumes"`
}

// DurableVolume is the last commit of one volume.
type DurableVolume struct {
	Path     string `json:"path"`
	Volume   string `json:"volume"`
	Name     string `json:"name"`
	Snapshot string `json:"snapshot,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

// Node is what the server needs to know of a node.
type Node struct {
	Ref        agentapi.LeaseRef
	Mounts     func() []agentapi.Mount
	Checkpoint func(ctx context.Context, c checkpoint.Request) (checkpoint.State, error)
	// Last returns the last commit of a volume, and why the next one failed, if it did.
	Last func(volume string) (snapshot, problem string)
	Log  *slog.Logger
}

// Problem is the body of an answer with an error.
type Problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Serve answers on l until it is closed.
func (n Node) Serve(l net.Listener) error {
	s := &http.Server{
		Handler: http.MaxBytesHandler(n.handler(), maxRequest), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: maxWait + 30*time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: maxRequest, ErrorLog: slog.NewLogLogger(n.Log.Handler(), slog.LevelDebug),
	}
	err := s.Serve(netutil.LimitListener(l, maxConns))
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (n Node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/self/checkpoints", n.begin)
	mux.HandleFunc("GET /v1/self/checkpoints/{id}", n.lookUp)
	mux.HandleFunc("GET /v1/self/durable", n.durable)
	return mux
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	answer(w, status, Problem{Code: code, Message: fmt.Sprintf(format, args...)})
}

func (n Node) begin(w http.ResponseWriter, r *http.Request) {
	var q Request
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&q); err != nil {
		refuse(w, http.StatusBadRequest, "malformed", "The body is not a request for a checkpoint: %s.", err)
		return
	}
	if len(q.Label) > agentapi.MaxLabel || q.Label != agentapi.CleanText(q.Label) {
		refuse(w, http.StatusBadRequest, "label", "A label has at most %d printable bytes.", agentapi.MaxLabel)
		return
	}
	m, dir, ok := within(n.Mounts(), q.Dir)
	if !ok {
		refuse(w, http.StatusBadRequest, "dir", "%q does not lie in a volume that is mounted for writing.", q.Dir)
		return
	}
	if q.AllRanks && (q.Label == "" || m.Mode != agentapi.MountRanks) {
		refuse(w, http.StatusBadRequest, "all_ranks",
			"A checkpoint of all ranks needs a label, and a volume with mode ranks.")
		return
	}
	state, err := n.Checkpoint(r.Context(), checkpoint.Request{ID: checkpoint.NewID(), Ref: n.Ref, Volume: m.Volume,
		Dir: dir, Label: q.Label, Keep: q.Keep, AllRanks: q.AllRanks})
	n.state(w, m.Volume, state, err)
}

// state answers with how far a checkpoint is. Its id names its volume, too: volume.snapshot.
func (n Node) state(w http.ResponseWriter, volume string, s checkpoint.State, err error) {
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, checkpoint.CodeStore,
			"The host's process for volumes does not answer. Try again.")
		return
	}
	answer(w, http.StatusOK, struct {
		checkpoint.State
		Request string `json:"request"`
	}{s, volume + "." + s.ID})
}

func (n Node) lookUp(w http.ResponseWriter, r *http.Request) {
	volume, id, ok := strings.Cut(r.PathValue("id"), ".")
	if !ok || !strings.HasPrefix(id, "snp_") || len(id) > 64 || len(volume) > 64 {
		refuse(w, http.StatusNotFound, checkpoint.CodeNotFound, "There is no such checkpoint.")
		return
	}
	wait, _ := strconv.Atoi(r.URL.Query().Get("wait_s"))
	until := time.Now().Add(min(maxWait, time.Duration(max(0, wait))*time.Second))
	cut := r.URL.Query().Get("until") == checkpoint.StageSending
	for {
		s, err := n.Checkpoint(r.Context(), checkpoint.Request{ID: id, Ref: n.Ref, Volume: volume, Lookup: true})
		over := s.Stage == checkpoint.StageDurable || s.Stage == checkpoint.StageFailed ||
			cut && s.Stage == checkpoint.StageSending
		if err == nil && over || !time.Now().Before(until) {
			n.state(w, volume, s, err)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(look):
		}
	}
}

func (n Node) durable(w http.ResponseWriter, _ *http.Request) {
	out := Durable{Volumes: []DurableVolume{}}
	for _, m := range n.Mounts() {
		d := DurableVolume{Path: m.Path, Volume: m.Volume, Name: m.Name}
		d.Snapshot, d.Problem = n.Last(m.Volume)
		out.Volumes = append(out.Volumes, d)
	}
	answer(w, http.StatusOK, out)
}

// within returns the volume in which a folder lies, and its path there.
func within(mounts []agentapi.Mount, dir string) (m agentapi.Mount, rel string, ok bool) {
	if !path.IsAbs(dir) || strings.ContainsRune(dir, 0) || len(dir) > 4096 {
		return m, "", false
	}
	dir = path.Clean(dir)
	for _, m := range mounts {
		if m.Mode == agentapi.MountRO {
			continue
		}
		if dir == m.Path {
			return m, "", true
		}
		if rel, ok := strings.CutPrefix(dir, m.Path+"/"); ok {
			return m, rel, true
		}
	}
	return m, "", false
}

// State is an answer about a checkpoint, as a client reads it.
type State struct {
	checkpoint.State
	Request string `json:"request"`
}

// Client is a program's side.
type Client struct {
	Dial func(ctx context.Context) (net.Conn, error)
}

// Do sends a request and reads the answer; body may be nil. A refusal is a *Refused.
func (c Client) Do(ctx context.Context, method, target string, body, into any) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx) },
		DisableKeepAlives: true,
	}}
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = strings.NewReader(string(b))
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://node"+target, in)
	if err != nil {
		return err
	}
	res, err := client.Do(q)
	if err != nil {
		return fmt.Errorf("the host's agent does not answer: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		refused := &Refused{Status: res.StatusCode}
		_ = json.NewDecoder(res.Body).Decode(&refused.Problem)
		return refused
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// Refused is an answer that refuses a request.
type Refused struct {
	Status int
	Problem
}

func (r *Refused) Error() string {
	if r.Message == "" {
		return fmt.Sprintf("the host's agent answers with status %d", r.Status)
	}
	return r.Message
}
