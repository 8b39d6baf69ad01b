package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// Changed estimates how many bytes have changed and are in no commit: the sizes of files that are not as the last
// snapshot has them. It looks at every entry and clones nothing.
func (v *Volume) Changed(ctx context.Context) (int64, error) {
	v.mu.Lock()
	base := v.state.Tree
	v.mu.Unlock()
	p := peek{tick: v.tick}
	var root *node
	if base != nil {
		root = base.Root
	}
	err := p.folder(ctx, int(v.data.Fd()), root, 0)
	return p.bytes, err
}

type peek struct {
	tick           time.Duration
	bytes, entries int64
}

func (p *peek) folder(ctx context.Context, fd int, base *node, depth int) error {
	names, err := namesOf(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if p.entries++; p.entries > maxEntries || depth >= maxDepth {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		st, err := statIn(fd, name)
		if passed(err) {
			continue
		}
		if err != nil {
			return err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			n := nodeOf(name, &st)
			if !n.same(base.kid(name), p.tick) {
				p.bytes += min(n.Size, st.Blocks*512)
			}
		case unix.S_IFDIR:
			next, err := openDir(fd, name)
			if passed(err) {
				continue
			}
			if err != nil {
				return err
			}
			err = p.folder(ctx, next, base.kid(name), depth+1)
			unix.Close(next)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Upload is how far the snapshot under way is.
type Upload struct {
	Snapshot    string // "" = none
	Sent, Total int64  // bytes; Total is an estimate that grows until all is read
	Rate        int64  // bytes per second so far; 0: not known yet
}

// Upload returns how far the snapshot under way is.
func (v *Volume) Upload() (u Upload) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open == nil {
		return u
	}
	u.Snapshot = v.open.ID
	if s := v.sender; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.Sent, u.Total = s.sent, s.sealed
		if d := time.Since(s.begun); d > 100*time.Millisecond {
			u.Rate = int64(float64(s.sent) / d.Seconds())
		}
	}
	return u
}

// Reset removes what a restore that was interrupted has left, so that it can begin again.
func (v *Volume) Reset() error {
	v.turn.Lock()
	defer v.turn.Unlock()
	if v.Restored() {
		return errors.New("the volume is in use")
	}
	if err := empty(int(v.data.Fd())); err != nil {
		return fmt.Errorf("empty a volume: %w", err)
	}
	return v.clones.dropExcept()
}

// empty removes everything in a folder.
func empty(fd int) error {
	names, err := namesOf(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if unix.Unlinkat(fd, name, 0) == nil {
			continue
		}
		next, err := openDir(fd, name)
		if err != nil {
			return err
		}
		err = empty(next)
		unix.Close(next)
		if err == nil {
			err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Label returns the label of the snapshot that was restored, or "".
func (v *Volume) Label() string {
	if v.base == nil {
		return ""
	}
	return v.base.Label
}

// Report reports to the control plane, once, what is not durable yet.
func (v *Volume) Report(ctx context.Context, r agentapi.VolumeReport) error {
	reply, err := v.remote.server(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeReports, LeaseRef: v.cfg.Ref,
		Volume: v.cfg.Mount.Volume, Session: v.remote.session, Report: &r})
	if err == nil && reply.Error != nil {
		err = reply.Error
	}
	return err
}
