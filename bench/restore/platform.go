package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/id"
)

var key = bytes.Repeat([]byte{15}, 32)

// signer signs requests to a store.
type signer interface {
	SignPut(ctx context.Context, key string, sum [32]byte, bytes int64, until time.Time) (store.Request, error)
	SignGet(ctx context.Context, key string, until time.Time) (store.Request, error)
}

// platform is a control plane for one volume, which keeps what it needs in memory, and a store: the platform's own in
// a folder, behind a line, or versitygw.
type platform struct {
	store  signer
	http   *http.Server
	domain id.DataDomain
	served atomic.Int64 // bytes of packs that the store has sent

	mu    sync.Mutex
	next  int64
	packs map[int64]agentapi.PackGrant
	head  *agentapi.Snapshot
	free  time.Time // when the line has sent what was given to it
}

func newPlatform(dir string) (*platform, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f, err := store.OpenFolder(dir, "http://"+l.Addr().String(), key)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p := &platform{store: f, domain: id.New[id.DataDomain](), next: 1, packs: map[int64]agentapi.PackGrant{}}
	handler := f.Handler()
	p.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(sent{w, p}, r)
	})}
	go func() { _ = p.http.Serve(l) }()
	return p, nil
}

func (p *platform) close() {
	if p.http != nil {
		p.http.Close()
	}
}

// burst is how long the line may have been idle to make up for it: on a loaded machine nothing is sent in time.
const burst = time.Second

// sent counts the bytes of an answer and sends them over the line.
type sent struct {
	http.ResponseWriter
	p *platform
}

func (s sent) Write(b []byte) (int, error) {
	s.p.mu.Lock()
	if late := time.Now().Add(-burst); s.p.free.Before(late) {
		s.p.free = late
	}
	s.p.free = s.p.free.Add(time.Duration(len(b)) * time.Second / line)
	until := s.p.free
	s.p.mu.Unlock()
	time.Sleep(time.Until(until))
	n, err := s.ResponseWriter.Write(b)
	s.p.served.Add(int64(n))
	return n, err
}

// serve answers requests about the volume.
func (p *platform) serve(ctx context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := time.Now().Add(time.Hour)
	sign := func(n int64, r store.Request, err error) (agentapi.PackURL, error) {
		return agentapi.PackURL{N: n, Method: r.Method, URL: r.URL, Header: r.Header, UntilMS: until.UnixMilli(),
			Bytes: p.packs[n].Bytes, SHA256: p.packs[n].SHA256}, err
	}
	switch q.Op {
	case agentapi.VolumeOpen:
		reply.Open = &agentapi.OpenedVolume{Session: "ses", Base: p.head}
		if p.head != nil {
			reply.Open.HeadSeq = p.head.Seq
		}
	case agentapi.VolumeReserve:
		reply.Reserve = &agentapi.ReservedPacks{First: p.next, Count: q.Reserve.Count}
		p.next += int64(q.Reserve.Count)
	case agentapi.VolumeGrant:
		reply.Grant = &agentapi.GrantedPacks{}
		for _, g := range q.Grant.Packs {
			p.packs[g.N] = g
			r, err := p.store.SignPut(ctx, store.Key(p.domain, g.N), [32]byte(g.SHA256), g.Bytes, until)
			u, err := sign(g.N, r, err)
			if err != nil {
				return reply, err
			}
			reply.Grant.Packs = append(reply.Grant.Packs, u)
		}
	case agentapi.VolumeRead:
		reply.Read = &agentapi.ReadablePacks{}
		for _, n := range q.Read.Packs {
			r, err := p.store.SignGet(ctx, store.Key(p.domain, n), until)
			u, err := sign(n, r, err)
			if err != nil {
				return reply, err
			}
			reply.Read.Packs = append(reply.Read.Packs, u)
		}
	case agentapi.VolumeCommit:
		c := q.Commit
		p.head = &agentapi.Snapshot{ID: c.Snapshot, Seq: c.BaseSeq + 1, Root: c.Root, Packs: c.Packs,
			LogicalBytes: c.LogicalBytes, Files: c.Files, CutAtMS: c.CutAtMS}
		reply.Commit = &agentapi.CommittedVolume{Seq: p.head.Seq}
	}
	return reply, nil
}

// mount makes a file system whose files can be cloned, as volumes have, with room for all ranks.
func mount(ctx context.Context, dir string) (at string, unmount func() error, err error) {
	image, at := filepath.Join(dir, "disk"), filepath.Join(dir, "mnt")
	if err := errors.Join(os.Mkdir(at, 0o700), os.WriteFile(image, nil, 0o600),
		os.Truncate(image, (ranks+2)*2*size)); err != nil {
		return "", nil, err
	}
	run := func(args ...string) error {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
		return nil
	}
	err = errors.Join(run("mkfs.xfs", "-q", "-m", "reflink=1", image), run("mount", "-o", "loop,discard", image, at))
	return at, func() error { return exec.Command("umount", at).Run() }, err
}
