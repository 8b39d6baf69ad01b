package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/rclone/rclone/cmd/mount2"
	"github.com/rclone/rclone/cmd/mountlib"
	"github.com/rclone/rclone/fs"
	"github.com/rclone/rclone/fs/accounting"
	"github.com/rclone/rclone/fs/config"
	"github.com/rclone/rclone/fs/rc"
	"github.com/rclone/rclone/vfs"
	"github.com/rclone/rclone/vfs/vfscache/writeback"
	"github.com/rclone/rclone/vfs/vfscommon"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
)

const (
	fuseName = "muster" // the file system's type in the list of mounts is fuse.muster
	// maxWrite is the size of a request. With go-fuse's 1 MiB, an answer does not fit into a pipe, and each read would be
	// copied and logged.
	maxWrite   = 512 << 10
	writeBack  = time.Second // from a file's close to its upload
	attributes = time.Second // for which the kernel keeps attributes
	listings   = 30 * time.Second
	retryEvery = 3 * time.Second
	// uploadAgain is the longest pause before a failed upload is tried again. rclone's own grows to five minutes, and the
	// agent gives up uploads of a lease that has ended sooner than that.
	uploadAgain = 15 * time.Second
)

// mount is the mount of a bucket.
type mount struct {
	cfg wire.Config
	log *slog.Logger

	mu    sync.Mutex
	state wire.State
	vfs   *vfs.VFS // nil until it is ready
}

// open prepares the mount of cfg's bucket.
func open(cfg wire.Config, to *slog.Logger) (*mount, error) {
	m := &mount{cfg: cfg, log: to, state: wire.State{Stage: wire.Starting}}
	if err := guard(*cfg.Bucket); err != nil {
		m.state = wire.State{Stage: wire.Refused, Problem: err.Error()}
	}
	if err := config.SetCacheDir(cfg.Cache); err != nil {
		return nil, fmt.Errorf("set the cache folder: %w", err)
	}
	return m, nil
}

// begin mounts the bucket once the store answers.
func (m *mount) begin() {
	if m.status().Stage == wire.Refused {
		return
	}
	ctx := context.Background()
	ci := fs.GetConfig(ctx)
	ci.LogLevel = fs.LogLevelEmergency               // names of the renter's objects do not belong into a log of the host
	ci.AllowHTTPSDowngrade = m.cfg.Bucket.AnyAddress // see guard
	ci.LowLevelRetries = 5
	ci.BufferSize = 4 << 20
	ci.Transfers = 4
	ci.UseServerModTime = true // else each file of a listing costs a request
	ci.Timeout = fs.Duration(time.Minute)
	ci.ConnectTimeout = fs.Duration(15 * time.Second)
	f, err := connect(ctx, *m.cfg.Bucket)
	if err != nil {
		m.set(wire.Refused, err.Error())
		return
	}
	for {
		problem, refused := reach(*m.cfg.Bucket)
		if problem == "" {
			break
		}
		if refused {
			m.set(wire.Refused, problem)
			return
		}
		m.set(wire.Starting, problem)
		time.Sleep(retryEvery)
	}
	if n, err := repair(m.cfg.Cache); n > 0 || err != nil {
		m.log.Warn("metadata of cached files was cut off", "files", n, "err", err)
	}
	if err := m.attach(ctx, f); err != nil {
		m.log.Error("the bucket cannot be mounted", "err", err)
		m.set(wire.Starting, "the host cannot mount it")
		os.Exit(1)
	}
}

// attach mounts f. The kernel is asked directly: no program of the host is needed.
func (m *mount) attach(ctx context.Context, f fs.Fs) error {
	opt := vfscommon.Opt
	opt.CacheMode = vfscommon.CacheModeWrites
	opt.CacheMaxSize = fs.SizeSuffix(m.cfg.CacheBytes)
	opt.CacheMaxAge = fs.Duration(time.Hour)
	opt.CachePollInterval = fs.Duration(10 * time.Second)
	opt.WriteBack = fs.Duration(writeBack)
	opt.DirCacheTime = fs.Duration(listings)
	opt.PollInterval = 0
	opt.ReadOnly = m.cfg.Bucket.ReadOnly
	opt.Umask = 0
	opt.UID, opt.GID = 0, 0
	opt.DirPerms, opt.FilePerms = 0o777, 0o666
	v := vfs.New(ctx, f, &opt)
	if v.Opt.CacheMode != vfscommon.CacheModeWrites {
		return errors.New("the cache cannot be used")
	}
	lib := mountlib.Opt
	lib.AllowOther = true
	lib.AttrTimeout = fs.Duration(attributes)
	root, err := mount2.NewFS(v, &lib).Root()
	if err != nil {
		return err
	}
	timeout, flags := attributes, uintptr(unix.MS_NOSUID|unix.MS_NODEV)
	if m.cfg.Bucket.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	options := fusefs.Options{EntryTimeout: &timeout, AttrTimeout: &timeout}
	options.MountOptions = fuse.MountOptions{
		AllowOther: true, FsName: m.cfg.Source, Name: fuseName, DirectMountStrict: true, DisableXAttrs: true,
		DisableReadDirPlus: true, MaxWrite: maxWrite, MaxReadAhead: 128 << 10, DirectMountFlags: flags,
		Logger: log.New(io.Discard, "", 0), // one line per failed request otherwise
	}
	server, err := fuse.NewServer(fusefs.NewNodeFS(root, &options), m.cfg.Point, &options.MountOptions)
	if err != nil {
		return err
	}
	go server.Serve() // ends when it is unmounted everywhere; uploads go on then
	if err := server.WaitMount(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.vfs, m.state = v, wire.State{Stage: wire.Ready}
	return nil
}

func (m *mount) set(stage, problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = wire.State{Stage: stage, Problem: problem}
}

func (m *mount) status() wire.State {
	m.mu.Lock()
	s, v := m.state, m.vfs
	m.mu.Unlock()
	if v == nil {
		return s
	}
	return withUploads(s, v)
}

// withUploads adds to s what v has not uploaded yet. rclone shows its queue through its remote control only.
func withUploads(s wire.State, v *vfs.VFS) wire.State {
	queue, err := rc.Calls.Get("vfs/queue").Fn(context.Background(), rc.Params{})
	items, ok := queue["queue"].([]writeback.QueueInfo)
	if err != nil || !ok {
		return wire.State{Stage: s.Stage, Unknown: true}
	}
	for _, u := range items {
		s.Files++
		s.Bytes += max(0, u.Size)
		s.Failing = max(s.Failing, u.Tries-1)
		if u.Expiry > uploadAgain.Seconds() && !u.Uploading {
			_, _ = rc.Calls.Get("vfs/queue-set-expiry").Fn(context.Background(), // it may have been uploaded meanwhile
				rc.Params{"id": int64(u.ID), "expiry": uploadAgain.Seconds()})
		}
	}
	if s.Failing > 0 {
		s.Uploading = explainUpload(accounting.GlobalStats().GetLastError())
	}
	s.Open = v.Busy() // after the queue was read: a file that is closed in between is in neither else
	return s
}
