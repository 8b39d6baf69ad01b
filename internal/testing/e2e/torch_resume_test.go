//go:build torch

package e2e

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// resumeResult is the last line of docs/launch/resume.py, and resumesAt the line of a start that goes on.
var (
	resumeResult = regexp.MustCompile(`rank (\d) of 2 done at step 60 from (\d+) state sha256:([0-9a-f]{64})`)
	resumesAt    = regexp.MustCompile(`rank \d: resumes at step (\d+)`)
)

// The training of docs/launch/resume.py loses a host after a checkpoint. It goes on from there on another host, and
// ends with the same bits as one that has lost nothing.
func TestATrainingResumesOnAnotherHost(t *testing.T) {
	tarFile := os.Getenv("MUSTER_TEST_TORCH2")
	if tarFile == "" {
		t.Fatal("MUSTER_TEST_TORCH2 names no image: run make test-torch, which makes one")
	}
	p := own(t, "--hosts", "3", "--scratch-gb", "4")
	image := p.debianImage(t, "torch2", tarFile, launchFiles(t))
	train := func(r *renter, volume, pace string) client.Cluster {
		v, err := r.Volumes.Create(t.Context(), client.NewVolume{Name: volume, SizeGB: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := p.spec(2, 1, "python3", "resume.py")
		s.Image, s.DiskGB, s.OnNodeFailure = image, 20, "replace"
		s.Mounts = []client.Mount{{Path: "/data", Volume: v.ID, Mode: "ranks"}}
		// Debian 13's PyTorch has been built without libuv.
		s.Env = map[string]string{"OMP_NUM_THREADS": "1", "USE_LIBUV": "0", "STEPS": "60", "EVERY": "20", "PACE": pace}
		return r.rent(t, s)
	}
	results := func(r *renter, c client.Cluster) (from int, state string) {
		t.Helper()
		done, err := r.Clusters.Wait(t.Context(), c.ID, client.Released, nil)
		if err != nil || done.Reason != "completed" {
			t.Fatalf("%s %s: %v\n%s\n%s\n%s", done.State, done.Detail, err, r.timeline(t, c), r.logs(t, c, 0), r.logs(t, c, 1))
		}
		r.settle(t, c)
		for rank := range 2 {
			m := resumeResult.FindStringSubmatch(r.logs(t, c, rank))
			if m == nil || m[1] != strconv.Itoa(rank) || (rank > 0 && m[3] != state) {
				t.Fatalf("rank %d ended with %v, rank 0 with state %s:\n%s", rank, m, state, r.logs(t, c, rank))
			}
			from, _ = strconv.Atoi(m[2])
			state = m[3]
			t.Log(m[0])
		}
		return from, state
	}
	r := p.renter(t, 50*money.Unit)
	_, want := results(r, train(r, "whole", "0"))

	c := train(r, "lost", "0.5")
	r.await(t, c, client.Running)
	r.awaitLine(t, c, 0, "rank 0: step 20 is durable")
	lost := time.Now()
	c = r.loseHost(t, p, c, 1)
	t.Logf("on another host after %.1f s", time.Since(lost).Seconds())
	from, state := results(r, c)
	if from < 20 {
		t.Errorf("it went on from step %d; step 20 was durable when the host was lost", from)
	}
	if m := resumesAt.FindStringSubmatch(r.logs(t, c, 0)); m == nil || m[1] != strconv.Itoa(from) {
		t.Errorf("rank 0 resumed at %v, and ended as from step %d", m, from)
	}
	if state != want {
		t.Errorf("the training that lost a host ended with %s, the whole one with %s", state, want)
	}
	p.check(t)
}
