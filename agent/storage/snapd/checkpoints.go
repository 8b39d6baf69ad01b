package snapd

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/internal/agentapi"
)

// checkpoint begins a checkpoint unless it is known, and returns how far it is. Only a new one is begun with a folder.
func (w *worker) checkpoint(_ context.Context, c checkpoint.Request) checkpoint.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.jobs, func(j *job) bool { return j.ID == c.ID }); i >= 0 {
		return w.jobs[i].state
	}
	fail := func(code, message string) checkpoint.State {
		return checkpoint.State{ID: c.ID, Label: c.Label, Stage: checkpoint.StageFailed, Code: code, Message: message}
	}
	switch {
	case c.Lookup && w.v != nil && w.v.Durable().Snapshot == c.ID: // of a process before this one
		return checkpoint.State{ID: c.ID, As: w.v.Durable().As, Stage: checkpoint.StageDurable}
	case c.Lookup && w.v != nil && w.v.Pending() == c.ID, c.Lookup && !w.state.Restored:
		return checkpoint.State{ID: c.ID, Stage: checkpoint.StageSending}
	case c.Lookup:
		return fail(checkpoint.CodeNotFound, "the host was interrupted before the checkpoint: request it again")
	case !w.state.Restored:
		return fail(checkpoint.CodeNotFound, "the volume is not restored yet")
	case w.wanted.Mount.Mode == agentapi.MountRO:
		return fail(checkpoint.CodeNotFound, "the volume is mounted read-only")
	case c.AllRanks && (w.wanted.Mount.Mode != agentapi.MountRanks || c.Label == ""):
		return fail(agentapi.VolumeMalformed, "a checkpoint of all ranks needs a label, and a volume with mode ranks")
	case w.state.Fenced:
		return fail(agentapi.VolumeFenced, "the volume is written elsewhere")
	}
	waiting := 0
	for _, j := range w.jobs {
		if j.state.Stage != checkpoint.StageWaiting {
			continue
		}
		// The latest wins; but the ranks would disagree about which one it is.
		if j.Dir == c.Dir && !j.Keep && !j.AllRanks && !c.AllRanks {
			j.state.Stage, j.state.Code = checkpoint.StageFailed, checkpoint.CodeReplaced
			j.state.Message = "a newer checkpoint of the same folder"
			continue
		}
		waiting++
	}
	if waiting >= maxWaiting {
		return fail(agentapi.VolumeTooSoon, "too many checkpoints are waiting")
	}
	j := &job{Request: c, state: checkpoint.State{ID: c.ID, Label: c.Label, Stage: checkpoint.StageWaiting}}
	w.jobs = append(w.jobs, j)
	if n := len(w.jobs) - keptCheckpoints; n > 0 {
		w.jobs = slices.DeleteFunc(w.jobs, func(j *job) bool {
			over := n > 0 && (j.state.Stage == checkpoint.StageDurable || j.state.Stage == checkpoint.StageFailed)
			if over {
				n--
			}
			return over
		})
	}
	poke(w.kick)
	return j.state
}

func (w *worker) move(j *job, f func(*checkpoint.State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&j.state)
}

// settle notes what came of a checkpoint: durable, failed for good, or to be tried again. Callers hold w.mu.
func (w *worker) settle(j *job, r volume.Result, err error) {
	if j.state.Stage == checkpoint.StageDurable || j.state.Stage == checkpoint.StageFailed {
		return
	}
	var refused *agentapi.VolumeError
	switch {
	case err == nil:
		j.state.Stage, j.state.Consistency, j.state.DurableAtMS = checkpoint.StageDurable, r.Consistency, r.CommittedMS
		j.state.As, j.state.Missing = r.As, nil
		if j.state.DurableAtMS == 0 {
			j.state.DurableAtMS = time.Now().UnixMilli()
		}
		return
	case errors.As(err, &refused) && refused.Code != agentapi.VolumeAway && refused.Code != agentapi.VolumeTooSoon:
		j.state.Code, j.state.Message = refused.Code, refused.Message
	case errors.Is(err, volume.ErrAlone):
		j.state.Code, j.state.Message = checkpoint.CodeRanks, err.Error()
	case errors.Is(err, volume.ErrNoRoom), errors.Is(err, unix.ENOSPC):
		j.state.Code, j.state.Message = checkpoint.CodeFull, "the volume has no room for a snapshot"
	case j.state.Stage == checkpoint.StageWaiting && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP)):
		j.state.Code, j.state.Message = checkpoint.CodeNotFound, "there is no such folder in the volume"
	default:
		return // it goes on
	}
	j.state.Stage = checkpoint.StageFailed
}
