package volume

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/scratch"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/id"
)

// A platform is a control plane and a store for one volume, which keep the promises of agentapi's volume.go.
type platform struct {
	url string

	mu        sync.Mutex
	next      int64
	packs     map[int64][]byte
	granted   map[int64][32]byte
	snapshots []agentapi.Snapshot
	puts      int64 // bytes
	refuse    func(q agentapi.VolumeRequest) *agentapi.VolumeError
	fail      func(r *http.Request) int // a status to answer with; 0: none
	requests  []string
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{next: 1, packs: map[int64][]byte{}, granted: map[int64][32]byte{}}
	s := httptest.NewServer(http.HandlerFunc(p.store))
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

func (p *platform) store(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
	if err != nil || r.URL.Query().Get("sig") != "secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		if status := p.fail(r); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	pack, stored := p.packs[n]
	switch r.Method {
	case http.MethodPut:
		switch sum, ok := p.granted[n]; {
		case stored:
			w.WriteHeader(http.StatusPreconditionFailed)
		case !ok || sum != sha256.Sum256(body) || r.Header.Get("X-Signed") != "yes":
			w.WriteHeader(http.StatusBadRequest)
		default:
			p.packs[n] = body
			p.puts += int64(len(body))
		}
	case http.MethodGet:
		if !stored {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(pack)))
	}
}

func (p *platform) serve(_ context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, q.Op)
	if p.refuse != nil {
		if e := p.refuse(q); e != nil {
			return agentapi.VolumeReply{Error: e}, nil
		}
	}
	switch q.Op {
	case agentapi.VolumeOpen:
		reply.Open = &agentapi.OpenedVolume{Session: "ses", HeadSeq: int64(len(p.snapshots))}
		if n := len(p.snapshots); n > 0 {
			base := p.snapshots[n-1]
			reply.Open.Base = &base
		}
	case agentapi.VolumeReserve:
		reply.Reserve = &agentapi.ReservedPacks{First: p.next, Count: q.Reserve.Count}
		p.next += int64(q.Reserve.Count)
	case agentapi.VolumeGrant:
		reply.Grant = &agentapi.GrantedPacks{}
		for _, g := range q.Grant.Packs {
			u := agentapi.PackURL{N: g.N, Method: "PUT", URL: fmt.Sprintf("%s/%d?sig=secret", p.url, g.N),
				Header: map[string]string{"X-Signed": "yes"}}
			if _, ok := p.packs[g.N]; ok {
				u = agentapi.PackURL{N: g.N, Stored: true}
			}
			p.granted[g.N] = [32]byte(g.SHA256)
			reply.Grant.Packs = append(reply.Grant.Packs, u)
		}
	case agentapi.VolumeRead:
		reply.Read = &agentapi.ReadablePacks{}
		for _, n := range q.Read.Packs {
			reply.Read.Packs = append(reply.Read.Packs, agentapi.PackURL{N: n, Method: "GET",
				URL: fmt.Sprintf("%s/%d?sig=secret", p.url, n), Bytes: int64(len(p.packs[n]))})
		}
	case agentapi.VolumeCommit:
		reply.Commit, reply.Error = p.commit(*q.Commit)
	}
	return reply, nil
}

func (p *platform) commit(c agentapi.CommitVolume) (*agentapi.CommittedVolume, *agentapi.VolumeError) {
	for _, s := range p.snapshots {
		if s.ID == c.Snapshot {
			return &agentapi.CommittedVolume{Seq: s.Seq}, nil
		}
	}
	set, err := manifest.DecodePackSet(c.Packs)
	if err != nil {
		return nil, &agentapi.VolumeError{Code: agentapi.VolumeMalformed, Message: err.Error()}
	}
	missing := &agentapi.VolumeError{Code: agentapi.VolumeMissing, Message: "packs are missing"}
	for _, r := range set.Runs() {
		for n := r.First; n <= r.Last; n++ {
			if _, ok := p.packs[n]; !ok {
				missing.Packs = append(missing.Packs, n)
			}
		}
	}
	switch {
	case len(missing.Packs) > 0:
		return nil, missing
	case c.BaseSeq != int64(len(p.snapshots)):
		return nil, &agentapi.VolumeError{Code: agentapi.VolumeBaseMoved, Message: "another snapshot was committed"}
	}
	seq := c.BaseSeq + 1
	p.snapshots = append(p.snapshots, agentapi.Snapshot{ID: c.Snapshot, Seq: seq, Root: c.Root, Packs: c.Packs,
		Label: c.Label, LogicalBytes: c.LogicalBytes, Files: c.Files, CutAtMS: c.CutAtMS})
	return &agentapi.CommittedVolume{Seq: seq}, nil
}

var domainKey = []byte("0123456789abcdef0123456789abcdef")

func (p *platform) config(root string) Config {
	return Config{
		Ref: agentapi.LeaseRef{Lease: "ls_test", Epoch: 1}, Root: root, Server: p.serve, HTTP: http.DefaultClient,
		BootMS: func() int64 { return 1_000_000 }, Log: slog.New(slog.DiscardHandler), Least: time.Millisecond,
		Mount: agentapi.Mount{Path: "/data", Volume: "vol_test", Mode: agentapi.MountRW, Key: domainKey},
	}
}

// attach opens the volume at a path and restores it.
func (p *platform) attach(t *testing.T, root string) *Volume {
	t.Helper()
	v, err := Open(t.Context(), p.config(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	if err := v.Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return v
}

func newRequest() Request {
	return Request{ID: "snp_" + id.New[id.Lease]().String(), Cause: agentapi.SnapshotByInterval}
}

func (v *Volume) mustSnapshot(t *testing.T) Result {
	t.Helper()
	r, err := v.Snapshot(t.Context(), newRequest())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listing describes everything below a folder: names, kinds, content, owners, permissions, times, attributes.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	inodes := map[uint64]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %v %d", strings.TrimPrefix(path, dir), info.Mode(), info.ModTime().UnixNano())
		st := statOf(info)
		fmt.Fprintf(&b, " %d:%d", st.Uid, st.Gid)
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %q", target)
		case info.Mode().IsRegular():
			if info.Size() < 1<<30 {
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, " %d %x", len(content), sha256.Sum256(content))
			} else {
				fmt.Fprintf(&b, " %d", info.Size())
			}
			if st.Nlink > 1 {
				if inodes[st.Ino] == "" {
					inodes[st.Ino] = path
				}
				fmt.Fprintf(&b, " = %q", strings.TrimPrefix(inodes[st.Ino], dir))
			}
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func dataOf(root string) string { return scratch.Data(root) }

func serveOn(t *testing.T, s *http.Server) string {
	t.Helper()
	h := httptest.NewServer(s.Handler)
	t.Cleanup(h.Close)
	return h.URL
}
