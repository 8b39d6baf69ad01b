package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// maxKeptLog is how much of the end of a run's output is kept, in bytes of JSON lines.
const maxKeptLog = 256 << 10

// saveLog stores the end of a workload's output in the lease folder, and reports whether there was any output.
func (a *Agent) saveLog(ctx context.Context, r *run) (kept bool, err error) {
	var tail tailBuffer
	err = a.cfg.Engine.Logs(ctx, r.ref, container.LogOptions{}, func(f agentapi.LogFrame) error {
		b, err := json.Marshal(f)
		if err == nil {
			tail.add(append(b, '\n'))
		}
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	b := tail.bytes()
	if len(b) == 0 {
		return false, nil
	}
	f, err := os.OpenFile(filepath.Join(r.files.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	_, err = f.Write(b)
	return true, errors.Join(err, f.Sync(), f.Close())
}

// tailBuffer holds the last lines that fit into maxKeptLog.
type tailBuffer struct {
	lines [][]byte
	size  int
}

func (t *tailBuffer) add(line []byte) {
	t.lines = append(t.lines, line)
	t.size += len(line)
	for t.size > maxKeptLog {
		t.size -= len(t.lines[0])
		t.lines[0], t.lines = nil, t.lines[1:]
	}
}

func (t *tailBuffer) bytes() []byte { return bytes.Join(t.lines, nil) }

// Logs emits a run's output: from its container, or, if the container is gone, from the log that was kept. It
// implements stream.Source.
func (a *Agent) Logs(ctx context.Context, ref agentapi.LeaseRef, tail int, follow bool,
	emit func(agentapi.LogFrame) error) error {
	err := a.cfg.Engine.Logs(ctx, ref, container.LogOptions{Tail: tail, Follow: follow}, emit)
	if fault.Is(err, fault.NotFound) {
		return a.KeptLog(ctx, ref, emit)
	}
	return err
}

// KeptLog emits the kept part of an ended run's output.
func (a *Agent) KeptLog(ctx context.Context, ref agentapi.LeaseRef, emit func(agentapi.LogFrame) error) error {
	f, err := os.Open(filepath.Join(a.disk.layout(ref).Dir, logFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "log of this run not found on the host")
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the kept log cannot be read")
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxKeptLog+1)
	for lines.Scan() && ctx.Err() == nil {
		var frame agentapi.LogFrame
		if err := json.Unmarshal(lines.Bytes(), &frame); err != nil {
			return fault.Wrap(err, fault.Internal, "the kept log is damaged")
		}
		if err := emit(frame); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), ctx.Err())
}
