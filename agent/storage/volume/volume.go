// Package volume keeps the data of a volume on its host while a lease lives: it sees the tree as it was at one moment
// (the cut), turns what has changed into packs and commits them, and restores a snapshot before a workload starts.
//
// A volume is an XFS file system of its own (package scratch), of which the workload sees one folder. Beside it lies
// the folder of this package, with clones of files: the workload cannot reach it.
//
// Invariants:
//   - A snapshot shows the tree at one moment, or it is called per_file. Snapshots never show a file half of one
//     moment and half of another.
//   - A workload is stopped for at most PauseMax, and never longer than a second, whichever process is killed.
//   - The tree is its tenant's and hostile: no name leads out of the volume, and nothing in it is executed, followed
//     or opened for writing.
//   - What the server has committed can be read: the packs of a snapshot are stored before its commit is requested,
//     and a snapshot that is interrupted goes on under its own id.
//   - Clones give way before the workload sees a full disk.
package volume

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// Names in a volume's file system beside the workload's folder.
const (
	cutName    = ".cut"
	clonesName = "clones"
)

// Config is what a volume needs.
type Config struct {
	Ref    agentapi.LeaseRef
	Mount  agentapi.Mount
	Root   string // where its file system is mounted (scratch.VolumePath)
	Server Server
	HTTP   *http.Client // for the store
	// Turn waits until one more pack may be on its way between this host and the store; nil: any number may.
	Turn   func(ctx context.Context) (done func(), err error)
	BootMS func() int64 // CLOCK_BOOTTIME
	Log    *slog.Logger
	// Peers are the other ranks that restore the volume at the same time; nil: none.
	Peers *peers.Group
	// Opened is called before the control plane and the store are requested anything; may be nil.
	Opened func(*Volume)
	// Least is the first wait after a failure of the server or the store; default 1 s.
	Least time.Duration
}

// Volume is one volume of a run. Its methods are safe for concurrent use; what changes the volume waits for its turn.
type Volume struct {
	cfg    Config
	keys   *chunk.Keys
	data   *os.File // the workload's folder
	cutDir *os.File
	clones *clones
	tick   time.Duration

	turn   sync.Mutex // held by a restore, a snapshot
	remote remote
	base   *agentapi.Snapshot // in the open's reply

	mu     sync.Mutex // guards what follows
	state  stateFile  // of the last commit, or of the restore
	ready  bool       // restored
	open   *openFile  // the snapshot under way
	sender *sender    // of it
	cancel context.CancelCauseFunc
}

// stateFile is what the volume's last snapshot was: its tree, with the clones of its files and where their chunks are.
type stateFile struct {
	Snapshot string
	As       string // id of the commit, if it is another one: that of all ranks
	Seq      int64
	Tree     *tree
	Meta     []manifest.Ref // chunks of the manifest
}

// Open opens the session of a volume, whose file system is mounted, and finds what an earlier process has left of it.
// The key of the volume stays in memory.
func Open(ctx context.Context, cfg Config) (*Volume, error) {
	keys, err := chunk.NewKeys(cfg.Mount.Key)
	if err != nil {
		return nil, err
	}
	if cfg.Least == 0 {
		cfg.Least = time.Second
	}
	v := &Volume{cfg: cfg, keys: keys, tick: kernelTicks(), remote: remote{
		server: cfg.Server, http: cfg.HTTP, turn: cfg.Turn, ref: cfg.Ref, volume: cfg.Mount.Volume, least: cfg.Least,
	}}
	if err := scratch.OnHost(v.enter); err != nil {
		return nil, errors.Join(fmt.Errorf("open a volume's folders: %w", err), v.Close())
	}
	if cfg.Opened != nil {
		cfg.Opened(v)
	}
	reply, err := v.remote.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeOpen,
		Open: &agentapi.OpenVolume{Mode: cfg.Mount.Mode}})
	if err == nil && reply.Open == nil {
		err = errors.New("the server answers an open with something else")
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	v.remote.session, v.base = reply.Open.Session, reply.Open.Base
	if err := v.recall(reply.Open); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// enter opens the folders. From then on their handles lead to the volume, in whichever mount namespace.
func (v *Volume) enter() error {
	root, err := unix.Open(v.cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: v.cfg.Root, Err: err}
	}
	defer unix.Close(root)
	if err := unix.Mkdirat(root, cutName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	for name, f := range map[string]**os.File{scratch.DataName: &v.data, cutName: &v.cutDir} {
		fd, err := openDir(root, name)
		if err != nil {
			return err
		}
		*f = os.NewFile(uintptr(fd), name)
	}
	return nil
}

// recall reads the records of an earlier process.
func (v *Volume) recall(o *agentapi.OpenedVolume) error {
	var state stateFile
	ready, err := v.load(stateName, &state)
	if err != nil {
		return err
	}
	var open openFile
	pending, err := v.load(openName, &open)
	if err != nil {
		return err
	}
	switch {
	case !ready:
		pending = false // killed in a restore: the caller makes the file system again
	case pending && open.Sealed && o.Base != nil && o.Base.ID == open.ID:
		// It was committed, and the answer was lost.
		state, pending = open.state(o.Base.Seq, o.Base.ID), false
		if err := v.save(stateName, state); err != nil {
			return err
		}
	case pending && open.Sealed && v.ranks():
		// Prepared, or committed by another rank: sent again, it is answered.
	case o.HeadSeq != state.Seq:
		return fmt.Errorf("the volume is at snapshot %d, this host at %d", o.HeadSeq, state.Seq)
	}
	if !pending {
		if err := v.forgetOpen(); err != nil {
			return err
		}
	}
	keep := state.Tree.clones()
	if pending {
		for n := range open.Tree.clones() {
			keep[n] = true
		}
		v.open = &open
	}
	v.state, v.ready = state, ready
	v.clones, err = openClones(int(v.cutDir.Fd()), keep)
	return err
}

// Close closes the handles, without which the file system can be unmounted.
func (v *Volume) Close() error {
	var errs []error
	for _, f := range []*os.File{v.data, v.cutDir} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if v.clones != nil {
		errs = append(errs, v.clones.dir.Close())
	}
	return errors.Join(errs...)
}

// Restored reports whether the volume has its data: it was restored, or it was empty.
func (v *Volume) Restored() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ready
}

// Trouble returns why requests to the store or to the control plane are sent again and again, for people; "" = they are
// answered.
func (v *Volume) Trouble() string { return v.remote.why() }

// Pending returns the id of a snapshot that an earlier process has begun, or "".
func (v *Volume) Pending() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open == nil {
		return ""
	}
	return v.open.ID
}

// Durable describes the last commit of this volume.
type Durable struct {
	Snapshot string
	As       string // id of the commit
	Seq      int64
}

// Durable returns the last commit.
func (v *Volume) Durable() Durable {
	v.mu.Lock()
	defer v.mu.Unlock()
	as := v.state.As
	if as == "" {
		as = v.state.Snapshot
	}
	return Durable{Snapshot: v.state.Snapshot, As: as, Seq: v.state.Seq}
}

// EndSession notifies the server that nothing more will be committed.
func (v *Volume) EndSession(ctx context.Context, lost int64) error {
	_, err := v.remote.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeClose,
		Close: &agentapi.CloseVolume{LostBytes: lost}})
	return err
}

// kernelTicks returns how coarse ctime is on this kernel: from Linux 6.13 on it is exact where it must be.
func kernelTicks() time.Duration {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ticks
	}
	var major, minor int
	if n, _ := fmt.Sscanf(strings.TrimRight(string(u.Release[:]), "\x00"), "%d.%d", &major, &minor); n != 2 ||
		major < 6 || major == 6 && minor < 13 {
		return ticks
	}
	return 0
}

func placeOf(r manifest.Ref) agentapi.PackPlace {
	return agentapi.PackPlace{ID: r.ID.String(), Pack: r.Pack, Offset: r.Offset, Length: r.Length, Size: r.Size}
}

func refOf(p agentapi.PackPlace) (r manifest.Ref, err error) {
	id, err := hex.DecodeString(p.ID)
	if err != nil || len(id) != len(r.ID) {
		return r, fmt.Errorf("%.80q is no id of a chunk", p.ID)
	}
	return manifest.Ref{ID: chunk.ID(id), Pack: p.Pack, Offset: p.Offset, Length: p.Length, Size: p.Size}, nil
}
