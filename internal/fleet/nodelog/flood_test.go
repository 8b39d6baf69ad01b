package nodelog_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
)

// TestAHostThatNeverStopsSending is read no further than what was asked for, and not for ever.
func TestAHostThatNeverStopsSending(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 60_000)
	var sent atomic.Int64
	f := &fleet{state: cluster.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
	f.serve = func(d agentapi.Dial, w io.Writer) error {
		raw := frames(line{1, text})
		for sent.Store(0); ; sent.Add(1) {
			if _, err := io.WriteString(w, raw); err != nil {
				return nil
			}
		}
	}
	got, _, err := f.reader().Present(patiently(t), nodelog.Query{Ranks: []int{0}, Tail: 3})
	if err != nil || len(got) != 3 || f.dials[0].Tail != 3 {
		t.Errorf("%d lines, %v, asked for %d", len(got), err, f.dials[0].Tail)
	}
	if sent.Load() > 1100 { // an honest host splits long lines, so some more than asked for are read
		t.Errorf("%d lines were read", sent.Load())
	}

	r := f.reader()
	r.SetRunTime(500 * time.Millisecond)
	got, cut, err := r.Present(patiently(t), nodelog.Query{Ranks: []int{0}, Tail: -1})
	if err != nil || !cut {
		t.Errorf("all of it: cut %v, %v", cut, err)
	}
	if n := len(got) * len(text); n > nodelog.MaxRank {
		t.Errorf("%d bytes are held", n)
	}
}

// TestLargeLogsAreCutAtTheirBeginning and what is held of many ranks together is bounded.
func TestLargeLogsAreCutAtTheirBeginning(t *testing.T) {
	t.Parallel()
	const ranks, lines = 64, 40
	f := &fleet{state: cluster.Released, logs: map[int]cluster.Log{}}
	q := nodelog.Query{Tail: -1}
	for rank := range ranks {
		var all []line
		for i := range lines {
			all = append(all, line{int64(i), fmt.Sprintf("%d %s", i, strings.Repeat("x", 50_000))})
		}
		f.logs[rank] = cluster.Log{Runs: []cluster.RunLog{run(1, all...)}}
		q.Ranks = append(q.Ranks, rank)
	}
	got, cut, err := f.reader().Present(patiently(t), q)
	if err != nil || !cut {
		t.Fatalf("cut %v, %v", cut, err)
	}
	total, last := 0, map[int]string{}
	for _, l := range got {
		total += len(l.Line)
		last[l.Rank], _, _ = strings.Cut(l.Line, " ")
	}
	if total > 40<<20 {
		t.Errorf("%d bytes of %d", total, ranks*lines*50_000)
	}
	for rank := range ranks {
		if last[rank] != fmt.Sprint(lines-1) {
			t.Errorf("rank %d ends with line %s", rank, last[rank])
		}
	}
}

// TestAnOrgsRequestsTakeTurns: those of one org that cannot begin wait, those of others do not wait for them.
func TestAnOrgsRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}, 100), make(chan struct{})
	f := &fleet{state: cluster.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
	f.serve = func(_ agentapi.Dial, w io.Writer) error {
		began <- struct{}{}
		<-release
		_, err := io.WriteString(w, frames(line{1, "a"}))
		return err
	}
	r := f.reader()
	read := func(ctx context.Context, org id.Org) error {
		_, _, err := r.Present(ctx, nodelog.Query{Org: org, Ranks: []int{0}, Tail: 1})
		return err
	}
	hog, other := id.New[id.Org](), id.New[id.Org]()
	const tries = 8
	over := make(chan error, tries+1)
	for range tries {
		go func() { over <- read(t.Context(), hog) }()
	}
	for range 4 {
		<-began
	}
	go func() { over <- read(t.Context(), other) }()
	<-began
	if n := len(began); n > 0 {
		t.Errorf("%d requests of one org more than 4 run", n)
	}
	close(release)
	for range tries + 1 {
		if err := <-over; err != nil {
			t.Error(err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.serve = func(agentapi.Dial, io.Writer) error { return away() }
	var follow error
	for range 100 { // streams that are left free their place
		follow = r.Follow(ctx, nodelog.Query{Org: hog, Ranks: []int{0}, Tail: 1}, nil, make(chan nodelog.Line))
	}
	if fault.Is(follow, fault.RateLimited) {
		t.Error(follow)
	}
}
