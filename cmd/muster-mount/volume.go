package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/agent/storage/lazy/reader"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

const (
	unchanged  = 24 * time.Hour  // for which the kernel keeps what it knows: a snapshot does not change
	packsTime  = 5 * time.Second // for an answer of the agent
	storeConns = 24
	// kernelAhead is how far the kernel reads ahead of a program, in several requests at once.
	kernelAhead = 4 << 20
)

// volumeMount is the mount of a snapshot.
type volumeMount struct {
	cfg      wire.Config
	log      *slog.Logger
	snapshot *reader.Snapshot

	mu    sync.Mutex
	state wire.State
}

// openVolume prepares the mount of cfg's volume.
func openVolume(cfg wire.Config, log *slog.Logger) (*volumeMount, error) {
	v := cfg.Volume
	keys, err := chunk.NewKeys(v.Key)
	if err != nil {
		return nil, err
	}
	clear(v.Key)
	packs, err := manifest.DecodePackSet(v.PackSet)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: storeConns, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: 10 * time.Second,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	}
	c := reader.Config{
		Packs: packs, Keys: keys, URLs: signedBy(v.Packs), HTTP: &http.Client{Transport: transport},
		Cache: cfg.Cache, CacheBytes: cfg.CacheBytes, Patience: time.Duration(v.PatienceMS) * time.Millisecond, Log: log,
	}
	if v.Root != nil {
		id, err := hex.DecodeString(v.Root.ID)
		if err != nil || len(id) != len(chunk.ID{}) {
			return nil, errors.New("the root's id is malformed")
		}
		c.Root = &manifest.Ref{ID: chunk.ID(id), Pack: v.Root.Pack, Offset: v.Root.Offset, Length: v.Root.Length,
			Size: v.Root.Size}
	}
	s, err := reader.Open(c)
	return &volumeMount{cfg: cfg, log: log, snapshot: s, state: wire.State{Stage: wire.Starting}}, err
}

// signedBy requests signed requests from the agent, which has them from the control plane.
func signedBy(socket string) func(context.Context, []int64) ([]wire.Pack, error) {
	return func(ctx context.Context, packs []int64) ([]wire.Pack, error) {
		ctx, cancel := context.WithTimeout(ctx, packsTime)
		defer cancel()
		away := errors.New("the host's agent does not answer")
		c, err := unixsock.Dial(ctx, socket)
		if err != nil {
			return nil, away
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(packsTime))
		var reply wire.PacksReply
		if json.NewEncoder(c).Encode(wire.PacksRequest{Packs: packs}) != nil || json.NewDecoder(c).Decode(&reply) != nil {
			return nil, away
		}
		switch {
		case reply.Final:
			return nil, reader.Refused(reply.Error)
		case reply.Error != "":
			return nil, errors.New(reply.Error)
		}
		return reply.Packs, nil
	}
}

// begin mounts the snapshot once its root is read.
func (m *volumeMount) begin() {
	for {
		root, err := m.snapshot.Root(context.Background())
		if err == nil {
			if err = m.attach(root); err != nil {
				m.log.Error("the volume cannot be mounted", "err", err)
				os.Exit(1)
			}
			m.set(wire.State{Stage: wire.Ready})
			return
		}
		m.set(wire.State{Stage: wire.Starting, Problem: m.snapshot.Trouble()})
		time.Sleep(retryEvery)
	}
}

func (m *volumeMount) set(s wire.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
}

func (m *volumeMount) status() wire.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Reading = m.snapshot.Trouble()
	if s.Stage == wire.Starting && s.Problem == "" {
		s.Problem = s.Reading
	}
	return s
}

// attach mounts the tree. The kernel is asked directly: no program of the host is needed. The kernel checks
// permissions, as it does on its own file systems.
func (m *volumeMount) attach(root manifest.Entry) error {
	long := unchanged
	options := fusefs.Options{EntryTimeout: &long, AttrTimeout: &long, NegativeTimeout: &long,
		RootStableAttr: &fusefs.StableAttr{Ino: 1, Mode: fuse.S_IFDIR}}
	options.MountOptions = fuse.MountOptions{
		AllowOther: true, FsName: m.cfg.Source, Name: fuseName, DirectMountStrict: true,
		DirectMountFlags: uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_RDONLY),
		Options:          []string{"default_permissions"}, IgnoreSecurityLabels: true,
		MaxWrite: maxWrite, MaxReadAhead: maxWrite, MaxBackground: 64,
		Logger: log.New(io.Discard, "", 0),
	}
	node := &node{s: m.snapshot, entry: root}
	server, err := fuse.NewServer(fusefs.NewNodeFS(node, &options), m.cfg.Point, &options.MountOptions)
	if err != nil {
		return err
	}
	go server.Serve() // ends when it is unmounted everywhere
	if err := server.WaitMount(); err != nil {
		return err
	}
	m.widen()
	return nil
}

// widen lets the kernel read more ahead than its 128 KiB, if it can be changed here: fewer requests for a file that is
// read in its order.
func (m *volumeMount) widen() {
	var st unix.Stat_t
	if unix.Stat(m.cfg.Point, &st) != nil {
		return
	}
	name := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	if err := os.WriteFile(name, fmt.Append(nil, kernelAhead>>10), 0); err != nil {
		m.log.Info("the kernel reads ahead as it does by default", "err", err)
	}
}

// node is a file, a folder or a symbolic link.
type node struct {
	fusefs.Inode
	s     *reader.Snapshot
	entry manifest.Entry

	once sync.Once
	file *reader.File
}

var (
	_ fusefs.NodeLookuper    = (*node)(nil)
	_ fusefs.NodeReaddirer   = (*node)(nil)
	_ fusefs.NodeGetattrer   = (*node)(nil)
	_ fusefs.NodeReadlinker  = (*node)(nil)
	_ fusefs.NodeOpener      = (*node)(nil)
	_ fusefs.NodeGetxattrer  = (*node)(nil)
	_ fusefs.NodeListxattrer = (*node)(nil)
	_ fusefs.NodeStatfser    = (*node)(nil)
)

// where is the node's path, for people.
func (n *node) where() string { return "/" + n.Path(nil) }

func kindOf(e manifest.Entry) uint32 {
	switch e.Kind {
	case manifest.Dir:
		return fuse.S_IFDIR
	case manifest.Symlink:
		return fuse.S_IFLNK
	}
	return fuse.S_IFREG
}

func fill(e manifest.Entry, a *fuse.Attr) {
	a.Mode = kindOf(e) | e.Mode
	a.Owner = fuse.Owner{Uid: e.UID, Gid: e.GID}
	a.Nlink = 1
	t := time.Unix(0, e.MTime)
	a.SetTimes(&t, &t, &t)
	if e.Kind == manifest.Symlink {
		a.Size = uint64(len(e.Target))
	} else {
		a.Size = uint64(e.Size)
	}
	a.Blksize = maxWrite
	dense := e.Size
	for _, h := range e.Holes {
		dense -= h.Length
	}
	a.Blocks = uint64(dense+511) / 512
}

func (n *node) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	fill(n.entry, &out.Attr)
	return 0
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if n.entry.Kind != manifest.Dir {
		return nil, syscall.ENOTDIR
	}
	e, ok, err := n.s.Entry(ctx, n.entry, name, n.where())
	if err != nil {
		return nil, errno(err)
	}
	if !ok {
		return nil, syscall.ENOENT
	}
	fill(e, &out.Attr)
	return n.NewInode(ctx, &node{s: n.s, entry: e}, fusefs.StableAttr{Mode: kindOf(e)}), 0
}

func (n *node) Readdir(ctx context.Context) (fusefs.DirStream, syscall.Errno) {
	var out []fuse.DirEntry
	for e, err := range n.s.Entries(ctx, n.entry, n.where()) {
		if err != nil {
			return nil, errno(err)
		}
		out = append(out, fuse.DirEntry{Name: e.Name, Mode: kindOf(e)})
	}
	return fusefs.NewListDirStream(out), 0
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) { return []byte(n.entry.Target), 0 }

func (n *node) Getxattr(_ context.Context, name string, dest []byte) (uint32, syscall.Errno) {
	for _, x := range n.entry.XAttrs {
		if x.Name == name {
			return give(dest, x.Value)
		}
	}
	return 0, syscall.ENODATA
}

func (n *node) Listxattr(_ context.Context, dest []byte) (uint32, syscall.Errno) {
	var names strings.Builder
	for _, x := range n.entry.XAttrs {
		names.WriteString(x.Name + "\x00")
	}
	return give(dest, names.String())
}

func give(dest []byte, value string) (uint32, syscall.Errno) {
	if len(dest) < len(value) {
		return uint32(len(value)), syscall.ERANGE
	}
	return uint32(copy(dest, value)), 0
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	*out = fuse.StatfsOut{Bsize: 4096, Frsize: 4096, NameLen: manifest.MaxName}
	return 0
}

func (n *node) Open(_ context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if flags&(unix.O_ACCMODE|unix.O_TRUNC) != 0 {
		return nil, 0, syscall.EROFS
	}
	n.once.Do(func() { n.file = n.s.File(n.entry, path.Clean(n.where())) })
	return handle{n.file.Open()}, fuse.FOPEN_KEEP_CACHE, 0
}

// handle is an open file.
type handle struct{ h *reader.Handle }

var _ fusefs.FileReader = handle{}

func (h handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.h.ReadAt(ctx, dest, off)
	if err != nil && err != io.EOF { // io.EOF itself: a failure that wraps one must not look like the end of the file
		return nil, errno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

func errno(err error) syscall.Errno {
	if errors.Is(err, context.Canceled) {
		return syscall.EINTR
	}
	return syscall.EIO
}
