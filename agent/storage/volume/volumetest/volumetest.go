// Package volumetest is a control plane and a store for one volume, for tests.
package volumetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
)

// A Platform is a control plane and a store for one volume, which keep the promises of agentapi's volume.go.
type Platform struct {
	url string

	Mu        sync.Mutex
	Next      int64
	Packs     map[int64][]byte
	Granted   map[int64][32]byte
	Snapshots []agentapi.Snapshot
	Causes    []string // of the snapshots
	Puts      int64    // bytes
	Gets      int64    // bytes
	Refuse    func(q agentapi.VolumeRequest) *agentapi.VolumeError
	Fail      func(r *http.Request) int // a status to answer with; 0: none
	Requests  []string
	// Missing returns the ranks that a prepared snapshot waits for; nil: none. Withdrawn are those that were taken back.
	Missing   func(q agentapi.PrepareVolume) []int
	Withdrawn []string
}

// New returns a platform without snapshots, which ends with the test.
func New(t *testing.T) *Platform {
	t.Helper()
	p := &Platform{Next: 1, Packs: map[int64][]byte{}, Granted: map[int64][32]byte{}}
	s := httptest.NewServer(http.HandlerFunc(p.store))
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

func (p *Platform) store(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
	if err != nil || r.URL.Query().Get("sig") != "secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.Fail != nil {
		if status := p.Fail(r); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	pack, stored := p.Packs[n]
	switch r.Method {
	case http.MethodPut:
		switch sum, ok := p.Granted[n]; {
		case stored:
			w.WriteHeader(http.StatusPreconditionFailed)
		case !ok || sum != sha256.Sum256(body) || r.Header.Get("X-Signed") != "yes":
			w.WriteHeader(http.StatusBadRequest)
		default:
			p.Packs[n] = body
			p.Puts += int64(len(body))
		}
	case http.MethodGet:
		if !stored {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.ServeContent(counted{w, &p.Gets}, r, "", time.Time{}, strings.NewReader(string(pack)))
	}
}

// counted counts the bytes of an answer.
type counted struct {
	http.ResponseWriter
	n *int64
}

func (c counted) Write(b []byte) (int, error) {
	k, err := c.ResponseWriter.Write(b)
	*c.n += int64(k)
	return k, err
}

// Serve answers a request about the volume.
func (p *Platform) Serve(_ context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Requests = append(p.Requests, q.Op)
	if p.Refuse != nil {
		if e := p.Refuse(q); e != nil {
			return agentapi.VolumeReply{Error: e}, nil
		}
	}
	switch q.Op {
	case agentapi.VolumeOpen:
		reply.Open = &agentapi.OpenedVolume{Session: "ses", HeadSeq: int64(len(p.Snapshots))}
		if n := len(p.Snapshots); n > 0 {
			base := p.Snapshots[n-1]
			reply.Open.Base = &base
		}
	case agentapi.VolumeReserve:
		reply.Reserve = &agentapi.ReservedPacks{First: p.Next, Count: q.Reserve.Count}
		p.Next += int64(q.Reserve.Count)
	case agentapi.VolumeGrant:
		reply.Grant = &agentapi.GrantedPacks{}
		for _, g := range q.Grant.Packs {
			u := agentapi.PackURL{N: g.N, Method: "PUT", URL: fmt.Sprintf("%s/%d?sig=secret", p.url, g.N),
				Header: map[string]string{"X-Signed": "yes"}}
			if _, ok := p.Packs[g.N]; ok {
				u = agentapi.PackURL{N: g.N, Stored: true}
			}
			p.Granted[g.N] = [32]byte(g.SHA256)
			reply.Grant.Packs = append(reply.Grant.Packs, u)
		}
	case agentapi.VolumeRead:
		reply.Read = &agentapi.ReadablePacks{}
		for _, n := range q.Read.Packs {
			sum := sha256.Sum256(p.Packs[n])
			reply.Read.Packs = append(reply.Read.Packs, agentapi.PackURL{N: n, Method: "GET",
				URL: fmt.Sprintf("%s/%d?sig=secret", p.url, n), Bytes: int64(len(p.Packs[n])), SHA256: sum[:]})
		}
	case agentapi.VolumeCommit:
		reply.Commit, reply.Error = p.commit(*q.Commit)
	case agentapi.VolumePrepare:
		reply.Prepare, reply.Error = p.prepare(*q.Prepare)
	}
	return reply, nil
}

// prepare commits what one rank prepares, once the others are there.
func (p *Platform) prepare(q agentapi.PrepareVolume) (*agentapi.PreparedVolume, *agentapi.VolumeError) {
	for _, s := range p.Snapshots {
		if s.ID == q.Snapshot {
			return &agentapi.PreparedVolume{Seq: s.Seq, Snapshot: "snp_of_all"}, nil
		}
	}
	if q.Withdraw {
		p.Withdrawn = append(p.Withdrawn, q.Snapshot)
		return &agentapi.PreparedVolume{}, nil
	}
	if p.Missing != nil {
		if m := p.Missing(q); m != nil {
			return &agentapi.PreparedVolume{Missing: m}, nil
		}
	}
	c, refused := p.commit(q.CommitVolume)
	if refused != nil {
		return nil, refused
	}
	return &agentapi.PreparedVolume{Seq: c.Seq, Snapshot: "snp_of_all"}, nil
}

func (p *Platform) commit(c agentapi.CommitVolume) (*agentapi.CommittedVolume, *agentapi.VolumeError) {
	for _, s := range p.Snapshots {
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
			if _, ok := p.Packs[n]; !ok {
				missing.Packs = append(missing.Packs, n)
			}
		}
	}
	switch {
	case len(missing.Packs) > 0:
		return nil, missing
	case c.BaseSeq != int64(len(p.Snapshots)):
		return nil, &agentapi.VolumeError{Code: agentapi.VolumeBaseMoved, Message: "another snapshot was committed"}
	}
	seq := c.BaseSeq + 1
	p.Snapshots = append(p.Snapshots, agentapi.Snapshot{ID: c.Snapshot, Seq: seq, Root: c.Root, Packs: c.Packs,
		Label: c.Label, LogicalBytes: c.LogicalBytes, Files: c.Files, CutAtMS: c.CutAtMS})
	p.Causes = append(p.Causes, c.Cause)
	return &agentapi.CommittedVolume{Seq: seq}, nil
}

// Served returns how many bytes the store has served.
func (p *Platform) Served() int64 {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.Gets
}

// Key is the key of the volume's domain.
var Key = []byte("0123456789abcdef0123456789abcdef")

// Last returns the last commit; ok is false if there is none.
func (p *Platform) Last() (s agentapi.Snapshot, ok bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if len(p.Snapshots) == 0 {
		return s, false
	}
	return p.Snapshots[len(p.Snapshots)-1], true
}
