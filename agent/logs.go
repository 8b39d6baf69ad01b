package agent

import (
	"bufio"
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

// maxKeptLog is how much of the end of a run's output is kept, in bytes of JSON lines: one line at least, however many
// of its characters JSON escapes.
const (
	maxKeptLog  = 1 << 20
	maxKeptLine = 1 << 20
)

// saveLog stores the end of a workload's output in the lease folder, and reports whether there was any output.
func (a *Agent) saveLog(ctx context.Context, r *run) (kept bool, err error) {
	var tail tailBuffer
	err = a.cfg.Engine.Logs(ctx, r.ref, container.LogOptions{}, tail.add)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	b, err := tail.bytes()
	if len(b) == 0 || err != nil {
		return false, err
	}
	f, err := os.OpenFile(filepath.Join(r.files.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	_, err = f.Write(b)
	return true, errors.Join(err, f.Sync(), f.Close())
}

// tailBuffer holds the last lines that fit into maxKeptLog, and counts those before them.
type tailBuffer struct {
	lines []keptLine
	size  int

	cutLines, cutBytes int64
}

type keptLine struct {
	raw  []byte // JSON and a newline
	text int    // bytes of its text and the newline
}

func (t *tailBuffer) add(f agentapi.LogFrame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	t.lines = append(t.lines, keptLine{append(b, '\n'), len(f.Line) + 1})
	t.size += len(b) + 1
	for t.size > maxKeptLog && len(t.lines) > 1 {
		t.size -= len(t.lines[0].raw)
		t.cutLines++
		t.cutBytes += int64(t.lines[0].text)
		t.lines[0], t.lines = keptLine{}, t.lines[1:]
	}
	return nil
}

// bytes returns the lines that are held. The first one has what was cut before it.
func (t *tailBuffer) bytes() ([]byte, error) {
	var out []byte
	for i, l := range t.lines {
		if i == 0 && t.cutLines > 0 {
			var f agentapi.LogFrame
			if err := json.Unmarshal(l.raw, &f); err != nil {
				return nil, err
			}
			f.CutLines, f.CutBytes = t.cutLines, t.cutBytes
			b, err := json.Marshal(f)
			if err != nil {
				return nil, err
			}
			l.raw = append(b, '\n')
		}
		out = append(out, l.raw...)
	}
	return out, nil
}

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
	lines.Buffer(nil, maxKeptLine)
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
