package sharedfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// Declared is a shared file system as the operator declares it: --shared NAME=PATH.
type Declared struct{ Name, Path string }

var nameShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Parse reads NAME=PATH.
func Parse(s string) (Declared, error) {
	name, path, ok := strings.Cut(s, "=")
	switch {
	case !ok || !nameShape.MatchString(name):
		return Declared{}, errors.New("want NAME=PATH, with a name of lower-case letters, digits and dashes, such as " +
			"lab-nfs=/mnt/lab")
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/":
		return Declared{}, fmt.Errorf("%s: want an absolute path other than /", path)
	}
	return Declared{name, path}, nil
}

// Share is a declared file system on this host. Safe for concurrent use.
type Share struct {
	Declared
	quick, slow lane
}

// lane lets one call at a time through to a file system.
type lane struct {
	mu   sync.Mutex
	busy chan struct{} // closed when the call that is under way has returned; nil: none is
}

// NewShare returns a declared file system, of which nothing is read yet.
func NewShare(d Declared) *Share { return &Share{Declared: d} }

// patience is how long a file system may take to answer.
const patience = 10 * time.Second

// errAway is the error of a file system that does not answer.
var errAway = errors.New("the file system does not answer")

// do runs f and waits for it. While an earlier call blocks it starts nothing, so that a server that is away costs one
// thread for each lane.
func (s *lane) do(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan struct{})
	for {
		s.mu.Lock()
		busy := s.busy
		if busy == nil {
			s.busy = done
			s.mu.Unlock()
			break
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return errAway
		}
	}
	result := make(chan error, 1)
	go func() {
		result <- f(ctx)
		s.mu.Lock()
		s.busy = nil
		s.mu.Unlock()
		close(done)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		select { // it has noticed
		case err := <-result:
			return err
		case <-time.After(time.Second):
		}
		return errAway
	}
}

// inTop runs f with the folder for everything that Muster stores on the file system.
func (s *Share) inTop(f func(top int) error) error {
	root, err := openRoot(s.Path)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	t, err := top(root)
	if err != nil {
		return err
	}
	defer unix.Close(t)
	return f(t)
}

// Inspect returns what there is to report. It makes the marker if there is none.
func (s *Share) Inspect(ctx context.Context) agentapi.SharedFS {
	out := agentapi.SharedFS{Name: s.Name}
	got := out
	err := s.quick.do(ctx, patience, func(context.Context) error {
		return s.inTop(func(top int) (err error) {
			if got.Marker, err = marker(top); err != nil {
				return err
			}
			var st unix.Statfs_t
			if err := unix.Fstatfs(top, &st); err != nil {
				return err
			}
			got.SizeGB = int64(st.Blocks) * st.Frsize / 1e9
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				return err
			}
			got.Type = typeName(top, string(mounts))
			if isCeph(got.Type) {
				return mayTooMuch(top)
			}
			return nil
		})
	})
	if err != nil {
		out.Problem = fmt.Sprintf("%s: %v", s.Path, err)
		return out
	}
	return got
}

// Bind mounts an organisation's folder at a path of the host, for Docker to bind into a container.
func (s *Share) Bind(ctx context.Context, m agentapi.SharedMount, point string) error {
	err := s.quick.do(ctx, patience, func(context.Context) error {
		return bind(s.Path, m.Marker, m.Folder, point, m.Mode == agentapi.MountRO)
	})
	if err != nil {
		return fmt.Errorf("the shared file system %s at %s: %w", s.Name, m.Path, err)
	}
	return nil
}

// Unbind takes a mount of Bind away. It does not wait for the file system.
func Unbind(point string) error { return unbind(point) }

// measureLimit is how long a folder may take to measure.
const measureLimit = 10 * time.Minute

// Used returns how much an organisation's folder takes.
func (s *Share) Used(ctx context.Context, marker, folder string) (n int64, err error) {
	var got int64
	err = s.slow.do(ctx, measureLimit, s.with(marker, func(ctx context.Context, top int) error {
		got, err = used(ctx, top, folder)
		return err
	}))
	if err != nil {
		return 0, err
	}
	return got, nil
}

// Unmeasured reports whether an error of Used is the renter's doing: folders that are deeper than what is measured.
func Unmeasured(err error) bool { return errors.Is(err, errDeep) }

// Erase deletes an organisation's folder. After an error it may be called again, and goes on.
func (s *Share) Erase(ctx context.Context, marker, folder string) error {
	return s.slow.do(ctx, measureLimit, s.with(marker, func(ctx context.Context, top int) error {
		return erase(ctx, top, folder)
	}))
}

// with runs f on the file system if it has the marker.
func (s *Share) with(want string, f func(context.Context, int) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.inTop(func(top int) error {
			got, err := readMarker(top)
			if err != nil || got != want {
				return errors.Join(errOther, err)
			}
			return f(ctx, top)
		})
	}
}

// Close makes a folder read-only in the container of a process. written: it cannot be, because a program has a file
// open for writing.
func (s *Share) Close(ctx context.Context, pid int, folder string) (written bool, err error) {
	err = s.slow.do(ctx, patience, func(context.Context) error { return closeIn(pid, folder) })
	return errors.Is(err, errWritten), err
}
