package demojob

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/testing/testnet"
)

func trainAll(t *testing.T, world int, extra ...string) ([]string, error) {
	t.Helper()
	port, out := testnet.Port(t), make([]bytes.Buffer, world)
	var g errgroup.Group
	for rank := range world {
		g.Go(func() error {
			env := append([]string{fmt.Sprint("NODE_RANK=", rank), fmt.Sprint("NNODES=", world),
				fmt.Sprint("MASTER_PORT=", port),
				"TRAIN_STEPS=60"}, extra...)
			var stderr bytes.Buffer
			if code := Run(t.Context(), []string{"train"}, env, &out[rank], &stderr); code != 0 {
				return fmt.Errorf("rank %d: code %d: %s", rank, code, stderr.String())
			}
			return nil
		})
	}
	err := g.Wait()
	texts := make([]string, world)
	for i := range out {
		texts[i] = out[i].String()
	}
	return texts, err
}

var lossOf = regexp.MustCompile(`step (\d+)/60 loss ([0-9.]+)`)
var end = regexp.MustCompile(`done steps=60 loss=([0-9.]+) params=sha256:([0-9a-f]{64})\n$`)

// A file that one rank finds ends the training of all after the same step.
func TestTrainEndsWhenItIsTold(t *testing.T) {
	t.Parallel()
	port, enough := testnet.Port(t), filepath.Join(t.TempDir(), "enough")
	if err := os.WriteFile(enough, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := make([]bytes.Buffer, 3)
	var g errgroup.Group
	for rank := range out {
		env := []string{fmt.Sprint("NODE_RANK=", rank), fmt.Sprint("NNODES=", len(out)), fmt.Sprint("MASTER_PORT=", port),
			"TRAIN_STEPS=1000000000"}
		if rank == 1 {
			env = append(env, "TRAIN_UNTIL="+enough)
		}
		g.Go(func() error {
			var stderr bytes.Buffer
			if code := Run(t.Context(), []string{"train"}, env, &out[rank], &stderr); code != 0 {
				return fmt.Errorf("rank %d: code %d: %s", rank, code, stderr.String())
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for rank := range out {
		if text := out[rank].String(); !strings.Contains(text, "done steps=1 ") {
			t.Errorf("rank %d: %s", rank, text)
		}
	}
}

// Every rank sees the same losses and ends with the same parameters, the loss falls, and more ranks learn from more
// data: the result differs from one rank's.
func TestTrainIsTheSameOnEveryRank(t *testing.T) {
	t.Parallel()
	results := map[string]int{}
	for _, world := range []int{1, 2, 3} {
		logs, err := trainAll(t, world)
		if err != nil {
			t.Fatal(err)
		}
		losses := fmt.Sprint(lossOf.FindAllString(logs[0], -1))
		last := end.FindStringSubmatch(logs[0])
		if last == nil {
			t.Fatalf("world %d: no end in %s", world, logs[0])
		}
		for rank, log := range logs {
			if got := fmt.Sprint(lossOf.FindAllString(log, -1)); got != losses {
				t.Errorf("world %d: rank %d saw %s\nrank 0 saw %s", world, rank, got, losses)
			}
			if got := end.FindStringSubmatch(log); got == nil || got[2] != last[2] {
				t.Errorf("world %d: rank %d ended with %v, rank 0 with %v", world, rank, got, last)
			}
		}
		var first, final float64
		fmt.Sscan(lossOf.FindStringSubmatch(logs[0])[2], &first)
		fmt.Sscan(last[1], &final)
		if final > first*0.8 {
			t.Errorf("world %d: the loss went from %v to %v", world, first, final)
		}
		t.Logf("world %d: loss %v → %v", world, first, final)
		results[last[2]]++
	}
	if len(results) != 3 {
		t.Error("other ranks' data made no difference")
	}
}

// A rank that is lost is named, and one that never comes too.
func TestLostRank(t *testing.T) {
	t.Parallel()
	if _, err := trainAll(t, 1, "NNODES=2", "TRAIN_JOIN_SECONDS=1"); err == nil ||
		!strings.Contains(err.Error(), "not all ranks came") {
		t.Errorf("a rank that never came: %v", err)
	}
	port := testnet.Port(t)
	env := func(rank int) []string {
		return []string{fmt.Sprint("NODE_RANK=", rank), "NNODES=2", fmt.Sprint("MASTER_PORT=", port), "TRAIN_STEPS=1000000",
			"TRAIN_STEP_MS=1"}
	}
	ctx, kill := context.WithCancel(t.Context())
	progress := &signalWriter{want: "step 20/", seen: make(chan struct{})}
	done := make(chan int)
	go func() { done <- Run(ctx, []string{"train"}, env(1), progress, &bytes.Buffer{}) }()
	go func() { <-progress.seen; kill() }()
	var stderr bytes.Buffer
	if code := Run(t.Context(), []string{"train"}, env(0), &bytes.Buffer{}, &stderr); code != 1 ||
		!strings.Contains(stderr.String(), "rank 1 is lost") {
		t.Errorf("code %d: %s", code, stderr.String())
	}
	if code := <-done; code != 1 {
		t.Errorf("the stopped rank ended with %d", code)
	}
}

type signalWriter struct {
	want string
	seen chan struct{}
	done bool
}

func (w *signalWriter) Write(b []byte) (int, error) {
	if !w.done && strings.Contains(string(b), w.want) {
		w.done = true
		close(w.seen)
	}
	return len(b), nil
}

func TestSmallPrograms(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		ctx  context.Context
		args string
		env  []string
		code int
		out  string
	}{
		{t.Context(), "exit 0", nil, 0, ""},
		{t.Context(), "exit 7", nil, 7, ""},
		{t.Context(), "exit 256", nil, 2, ""},
		{t.Context(), "exit x", nil, 2, ""},
		{t.Context(), "sleep 0.001", nil, 0, ""},
		{t.Context(), "sleep -1", nil, 2, ""},
		{stopped, "sleep 60", nil, 143, ""},
		{t.Context(), "env", []string{"B=2", "A=1"}, 0, "A=1\nB=2\n"},
		{t.Context(), "train", []string{"NODE_RANK=2", "NNODES=2"}, 1, ""},
		{t.Context(), "train", []string{"TRAIN_STEPS=many"}, 1, ""},
		{t.Context(), "", nil, 2, ""},
		{t.Context(), "dance", nil, 2, ""},
	} {
		var out, stderr bytes.Buffer
		if code := Run(c.ctx, strings.Fields(c.args), c.env, &out, &stderr); code != c.code || out.String() != c.out {
			t.Errorf("%q: code %d, %q; stderr %q", c.args, code, out.String(), stderr.String())
		}
	}
}
