package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/selfapi"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// Exit codes of checkpoint. Scripts depend on them.
const (
	exitOther   = 1 // not begun: no such folder, no volume there, replaced by a newer one
	exitUsage   = 2
	exitFenced  = 3 // the volume is written elsewhere: nothing of this node will be committed any more
	exitTimeout = 4 // it goes on, or other ranks never made theirs
	exitStore   = 5 // the store or the host's disk failed
	exitQuota   = 6
)

// self is the node's agent.
var self = selfapi.Client{Dial: func(ctx context.Context) (net.Conn, error) {
	return unixsock.Dial(ctx, filepath.Join(guest.NodeDir, selfapi.Socket))
}}

// makeCheckpoint makes a snapshot of a folder durable, for the program of a node.
func makeCheckpoint(args []string) int {
	fl := flag.NewFlagSet("checkpoint", flag.ContinueOnError)
	label := fl.String("label", "", "a name for it, such as step_8200")
	timeout := fl.Int("timeout", 600, "seconds to wait")
	noWait := fl.Bool("no-wait", false, "return once the files may change again; sending goes on")
	all := fl.Bool("all-ranks", false, "durable once all ranks have made one with this label")
	keep := fl.Bool("keep", false, "a newer checkpoint of the same folder does not replace it")
	fl.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: muster-guest checkpoint DIR [--label TEXT] [--all-ranks] [--timeout SECONDS] "+
			"[--no-wait] "+
			"[--keep]")
	}
	dir, err := oneArgument(fl, args)
	if err != nil || *timeout < 1 {
		fl.Usage()
		return exitUsage
	}
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster-guest:", err)
		return exitOther
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*timeout)*time.Second)
	defer cancel()
	var s selfapi.State
	err = persist(ctx, func() error {
		q := selfapi.Request{Dir: dir, Label: *label, Keep: *keep, AllRanks: *all}
		return self.Do(ctx, http.MethodPost, "/v1/self/checkpoints", q, &s)
	})
	until := checkpoint.StageDurable
	if *noWait {
		until = checkpoint.StageSending
	}
	for err == nil && s.Stage != checkpoint.StageDurable && s.Stage != checkpoint.StageFailed && s.Stage != until {
		target := fmt.Sprintf("/v1/self/checkpoints/%s?wait_s=30&until=%s", s.Request, until)
		err = persist(ctx, func() error { return self.Do(ctx, http.MethodGet, target, nil, &s) })
	}
	return result(s, err)
}

// oneArgument parses flags that may stand before and after the only argument.
func oneArgument(fl *flag.FlagSet, args []string) (string, error) {
	var found []string
	for {
		if err := fl.Parse(args); err != nil {
			return "", err
		}
		if fl.NArg() == 0 {
			break
		}
		found = append(found, fl.Arg(0))
		args = fl.Args()[1:]
	}
	if len(found) != 1 {
		return "", errors.New("one folder is wanted")
	}
	return found[0], nil
}

// persist repeats a request while the agent is away: it may be restarted while the node runs.
func persist(ctx context.Context, f func() error) error {
	for {
		err := f()
		var refused *selfapi.Refused
		if err == nil || errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// result prints what came of a checkpoint and returns the exit code.
func result(s selfapi.State, err error) int {
	if err == nil && s.Stage != checkpoint.StageFailed {
		out := map[string]any{"snapshot": cmp.Or(s.As, s.ID), "stage": s.Stage}
		if s.DurableAtMS > 0 {
			out["durable_at"] = time.UnixMilli(s.DurableAtMS).UTC().Format(time.RFC3339Nano)
		}
		if s.Consistency != "" {
			out["consistency"] = s.Consistency
		}
		_ = json.NewEncoder(os.Stdout).Encode(out)
		return 0
	}
	if err == nil {
		err = errors.New(s.Message)
	}
	code := exitOther
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code, err = exitTimeout, errors.New("the checkpoint is not durable yet; it goes on")
		if len(s.Missing) > 0 {
			err = fmt.Errorf("the checkpoint is not durable yet; it waits for ranks %v", s.Missing)
		}
	case s.Code == checkpoint.CodeRanks:
		code = exitTimeout
	case s.Code == agentapi.VolumeFenced || s.Code == agentapi.VolumeBaseMoved:
		code = exitFenced
	case s.Code == agentapi.VolumeQuota:
		code = exitQuota
	case s.Code == checkpoint.CodeStore || s.Code == checkpoint.CodeFull || s.Code == agentapi.VolumeMissing:
		code = exitStore
	}
	fmt.Fprintln(os.Stderr, "muster-guest:", err)
	return code
}

// durable prints what is durable of the node's volumes.
func durable(args []string) int {
	if len(args) != 0 {
		fmt.Fprintln(os.Stderr, "usage: muster-guest durable")
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out selfapi.Durable
	if err := self.Do(ctx, http.MethodGet, "/v1/self/durable", nil, &out); err != nil {
		fmt.Fprintln(os.Stderr, "muster-guest:", err)
		return exitOther
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
	return 0
}
