package nodelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
)

// TestAHostThatNeverStopsSending is read no further than what was asked for, and not indefinitely.
func TestAHostThatNeverStopsSending(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 60_000)
	var sent atomic.Int64
	f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // less than a whole request may take
	defer cancel()
	got, cut, err := r.Present(ctx, nodelog.Query{Ranks: []int{0}, Tail: -1})
	if err != nil || !cut.Any || ctx.Err() != nil {
		t.Errorf("all of it: cut %v, %v, the caller's time is over: %v", cut, err, ctx.Err())
	}
	if n := len(got) * len(text); n > nodelog.MaxRank {
		t.Errorf("%d bytes are held", n)
	}
}

// TestLargeLogsAreCutAtTheirBeginning and what is held of many ranks together is bounded.
func TestLargeLogsAreCutAtTheirBeginning(t *testing.T) {
	t.Parallel()
	const ranks, lines = 64, 40
	f := &fleet{state: lifecycle.Released, logs: map[int]cluster.Log{}}
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
	if err != nil || !cut.Any || cut.Lines != int64(ranks*lines-len(got)) || cut.Bytes < 50_000*cut.Lines {
		t.Fatalf("cut %+v of %d lines, %v", cut, len(got), err)
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

// What a host has not kept of a run's beginning is counted, unless the lines before it were not requested.
func TestCut_OfAKeptLogIsCounted(t *testing.T) {
	t.Parallel()
	kept := run(1, line{1, "b"}, line{2, "c"})
	kept.Content = bytes.Replace(kept.Content, []byte(`}`), []byte(`,"cl":60,"cb":700}`), 1)
	f := &fleet{state: lifecycle.Released, logs: map[int]cluster.Log{0: {Runs: []cluster.RunLog{kept}},
		1: {Runs: []cluster.RunLog{run(1, line{1, "a"}), kept}}}}
	for tail, want := range map[int]nodelog.Cut{-1: {Any: true, Lines: 120, Bytes: 1400}, 1: {},
		2: {Any: true, Lines: 120, Bytes: 1400}} {
		_, cut, err := f.reader().Present(t.Context(), nodelog.Query{Ranks: []int{0, 1}, Tail: tail})
		_, stored, _, kerr := f.reader().Kept(t.Context(), nodelog.Query{Ranks: []int{0, 1}, Tail: tail})
		if err != nil || kerr != nil || cut != want || stored != want {
			t.Errorf("the last %d lines: %+v %+v, %v %v", tail, cut, stored, err, kerr)
		}
	}
	f.logs[0] = cluster.Log{Runs: []cluster.RunLog{{Epoch: 1, Content: []byte("{}\n"), Truncated: true}}}
	if _, cut, err := f.reader().Present(t.Context(), nodelog.Query{Ranks: []int{0}, Tail: -1}); err != nil ||
		cut != (nodelog.Cut{Any: true}) {
		t.Errorf("a log that was too large to store: %+v %v", cut, err)
	}
	kept.Content = bytes.Replace(kept.Content, []byte(`"cl":60`), []byte(`"cl":-9223372036854775808`), 1)
	f.logs[0] = cluster.Log{Runs: []cluster.RunLog{kept}}
	if _, cut, err := f.reader().Present(t.Context(), nodelog.Query{Ranks: []int{0}, Tail: -1}); err != nil || cut.Any {
		t.Errorf("a number below zero: %+v %v", cut, err)
	}
}

// TestAnOrgsRequestsTakeTurns: those of one org that cannot begin wait, those of others do not wait for them.
func TestAnOrgsRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}, 100), make(chan struct{})
	f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
	f.serve = func(_ agentapi.Dial, w io.Writer) error {
		began <- struct{}{}
		<-release
		_, err := io.WriteString(w, frames(line{1, "a"}))
		return err
	}
	r := f.reader()
	hog, other := id.New[id.Org](), id.New[id.Org]()
	read := func(ctx context.Context, org id.Org) chan error {
		done := make(chan error, 1)
		go func() {
			_, _, err := r.Present(ctx, nodelog.Query{Org: org, Ranks: []int{0}, Tail: 1})
			done <- err
		}()
		return done
	}
	var all []chan error
	for range nodelog.GatherPerOrg {
		all = append(all, read(t.Context(), hog))
	}
	for range nodelog.GatherPerOrg {
		<-began
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	select {
	case err := <-read(gone, hog):
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a request that waited for its turn until its caller left: %v", err)
		}
	case <-began:
		t.Errorf("%d requests of one org run at the same time", nodelog.GatherPerOrg+1)
	}
	for range nodelog.GatherPerOrg {
		all = append(all, read(t.Context(), hog)) // these wait
	}
	all = append(all, read(t.Context(), other))
	<-began
	if n := len(began); n > 0 {
		t.Errorf("%d requests of one org more than %d run", n, nodelog.GatherPerOrg)
	}
	close(release)
	for _, done := range all {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// An org follows logs in a bounded number of places at the same time. Each that is left can be taken again, and other
// orgs have their own.
func TestAnOrgFollowsInABoundedNumberOfPlaces(t *testing.T) {
	t.Parallel()
	f := &fleet{state: lifecycle.Running, logs: map[int]cluster.Log{0: {Live: live(1)}}}
	f.serve = func(agentapi.Dial, io.Writer) error { return away() }
	r := f.reader()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	hog, other := id.New[id.Org](), id.New[id.Org]()
	refused := func(org id.Org) bool { // the caller has left: a stream that is let in ends at once
		return fault.Is(r.Follow(gone, nodelog.Query{Org: org, Ranks: []int{0}, Tail: 1}, nil, make(chan nodelog.Line)),
			fault.RateLimited)
	}
	for range 2 * nodelog.FollowPerOrg {
		if refused(hog) {
			t.Fatal("streams that have ended keep their places")
		}
	}
	var leave func()
	for i := range nodelog.FollowPerOrg {
		if refused(hog) {
			t.Fatalf("refused with %d streams open", i)
		}
		var err error
		if leave, err = r.TakeFollow(hog); err != nil {
			t.Fatal(err)
		}
	}
	if !refused(hog) {
		t.Errorf("stream %d of one org was let in", nodelog.FollowPerOrg+1)
	}
	if refused(other) {
		t.Error("another org was refused")
	}
	leave()
	if refused(hog) {
		t.Error("a place that was left is not free")
	}
}
