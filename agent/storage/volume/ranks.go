package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// ErrAlone: other ranks did not take part in a snapshot of all ranks, and it was given up.
var ErrAlone = errors.New("not all ranks have made this checkpoint")

// pollRanks is the time between two questions whether all ranks have prepared.
const pollRanks = time.Second

// ranks reports whether the volume is this rank's copy of one that all ranks write.
func (v *Volume) ranks() bool { return v.cfg.Mount.Mode == agentapi.MountRanks }

// commit requests the commit of the snapshot under way, whose packs are stored. Of a rank's copy it is prepared, until
// the server says that it is committed.
func (v *Volume) commit(ctx context.Context, wait func([]int) bool) (Result, error) {
	r := Result{ID: v.open.ID, Consistency: v.open.Consistency}
	if !v.ranks() {
		reply, err := v.remote.call(ctx,
			agentapi.VolumeRequest{Op: agentapi.VolumeCommit, Commit: v.open.commit(v.open.CutBoot)})
		if err == nil && reply.Commit == nil {
			err = errors.New("the server answers a commit with something else")
		}
		if err != nil {
			return r, err
		}
		r.As, r.Seq, r.CommittedMS = r.ID, reply.Commit.Seq, reply.Commit.CommittedAtMS
		return r, nil
	}
	for {
		p, err := v.prepare(ctx, false)
		if err != nil {
			return r, err
		}
		reached("prepared")
		if p.Seq > 0 {
			r.As, r.Seq, r.CommittedMS = p.Snapshot, p.Seq, p.CommittedAtMS
			return r, nil
		}
		if wait != nil && !wait(p.Missing) {
			return r, fmt.Errorf("%w: %s", ErrAlone, namesOfRanks(p.Missing))
		}
		select {
		case <-ctx.Done():
			return r, context.Cause(ctx)
		case <-time.After(min(pollRanks, 20*v.cfg.Least)):
		}
	}
}

func (v *Volume) prepare(ctx context.Context, withdraw bool) (*agentapi.PreparedVolume, error) {
	q := &agentapi.PrepareVolume{
		CommitVolume: *v.open.commit(v.open.CutBoot), AllRanks: v.open.AllRanks, Withdraw: withdraw,
	}
	reply, err := v.remote.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumePrepare, Prepare: q})
	if err == nil && reply.Prepare == nil {
		err = errors.New("the server answers a prepare with something else")
	}
	return reply.Prepare, err
}

// withdrawIn is how long an answer to a withdrawal is waited for.
const withdrawIn = time.Minute

// withdraw takes a prepared snapshot back that is given up because of err. If it was committed meanwhile, it counts.
func (v *Volume) withdraw(ctx context.Context, err error) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, withdrawIn)
	defer cancel()
	p, werr := v.prepare(ctx, true)
	switch {
	case werr != nil:
		// Whether it is committed is not known: the next attempt asks again.
		return Result{}, fmt.Errorf("withdraw a snapshot: %w", werr)
	case p.Seq == 0:
		return Result{}, err
	}
	r := Result{ID: v.open.ID, As: p.Snapshot, Seq: p.Seq, CommittedMS: p.CommittedAtMS, Consistency: v.open.Consistency}
	return r, v.committed(r)
}

// namesOfRanks names the ranks that are waited for, for people.
func namesOfRanks(missing []int) string {
	switch len(missing) {
	case 0:
		return "the others have not prepared it"
	case 1:
		return fmt.Sprintf("rank %d has not", missing[0])
	}
	return fmt.Sprintf("ranks %v have not", missing)
}
