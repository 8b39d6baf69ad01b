package image

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// again returns the puller of an agent that was restarted on the same host.
func (e *env) again() *Puller {
	e.t.Helper()
	p, err := New(e.puller.cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { p.proxy.listener.Close() })
	return p
}

func (d *daemon) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.tags))
}

// Whenever an agent is killed, the next one collects the images that it had pulled, and no others.
func TestImagesOfAKilledAgentAreCollected(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	push(t, reg+"/job:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"x": []byte("one")})))
	e := setUp(t, reg)
	hex := strings.Repeat("ab", 32)
	others := []string{"muster-other/image:" + hex, "muster-test/image:latest", "nginx:1", "127.0.0.1:5000/p" + hex[:32] +
		"/image:1"}
	for _, name := range others {
		e.daemon.tags[name] = "theirs"
	}
	slices.Sort(others)

	// Killed when the daemon had pulled, and the image had no name of ours yet.
	e.daemon.killed = errors.New("killed")
	if _, err := e.puller.Pull(t.Context(), Request{
		Image:    reg + "/job:1",
		MaxBytes: 1 << 30,
	}, func(agentapi.Progress) {}); err == nil {
		t.Fatal("it lived")
	}
	if len(e.daemon.names()) != len(others)+1 {
		t.Fatalf("nothing is left behind: %v", e.daemon.names())
	}
	p := e.again()
	if _, err := p.GC(t.Context(), nil, time.Hour, 0); err != nil || !slices.Equal(e.daemon.names(), others) ||
		len(p.unfinished.all()) != 0 {
		t.Errorf("%v: %v, %v", err, e.daemon.names(), p.unfinished.all())
	}

	// Killed when it had its name, and was not noted.
	ours := "muster-test/image:" + hex
	e.daemon.tags[ours] = "ours"
	p = e.again()
	if n, err := p.GC(t.Context(), nil, time.Hour, 0); err != nil || n != 0 || !slices.Contains(e.daemon.names(), ours) {
		t.Errorf("it may be in use: %d, %v, %v", n, err, e.daemon.names())
	}
	e.now = e.now.Add(2 * time.Hour)
	if n, err := p.GC(t.Context(), []string{"sha256:" + hex}, time.Hour, 0); err != nil || n != 0 {
		t.Errorf("it is in use: %d, %v", n, err)
	}
	if n, err := p.GC(t.Context(), nil, time.Hour, 0); err != nil || n != 1 || !slices.Equal(e.daemon.names(), others) {
		t.Errorf("%d, %v, %v", n, err, e.daemon.names())
	}
}

// GC does not collect a pull that is still running.
func TestAPullUnderWayIsNotCollected(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	push(t, reg+"/job:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"x": []byte("one")})))
	e := setUp(t, reg)
	gate := make(chan struct{})
	e.daemon.gate = gate
	done := make(chan error, 1)
	go func() {
		_, err := e.puller.Pull(t.Context(), Request{Image: reg + "/job:1", MaxBytes: 1 << 30}, func(agentapi.Progress) {})
		done <- err
	}()
	for deadline := time.Now().Add(time.Minute); e.daemon.pulls.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no pull began")
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := e.puller.GC(t.Context(), nil, 0, 0); err != nil || len(e.puller.unfinished.all()) != 1 {
		t.Errorf("%v, %v", err, e.puller.unfinished.all())
	}
	close(gate)
	if err := <-done; err != nil || len(e.puller.unfinished.all()) != 0 || len(e.daemon.names()) != 1 {
		t.Errorf("%v, %v, %v", err, e.puller.unfinished.all(), e.daemon.names())
	}
}

// A pull that the daemon has not ended yet, after it was given up, does not hold up another of the same image.
func TestAPullThatWasGivenUpIsNotShared(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	push(t, reg+"/job:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"x": []byte("one")})))
	e := setUp(t, reg)
	gate, late := make(chan struct{}), make(chan struct{})
	e.daemon.gate, e.daemon.late = gate, late
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	pull := func(ctx context.Context) {
		_, err := e.puller.Pull(ctx, Request{Image: reg + "/job:1", MaxBytes: 1 << 30}, func(agentapi.Progress) {})
		done <- err
	}
	began := func(pulls int32) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); e.daemon.pulls.Load() < pulls; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("pull %d did not begin", pulls)
			}
		}
	}
	go pull(ctx)
	began(1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	go pull(t.Context())
	began(2)
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(late)
}
