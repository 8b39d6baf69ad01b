package worker

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

type fakeLogs struct {
	kept      []cluster.KeptLog
	stored    map[id.Node]string
	postponed []id.Node
}

func (f *fakeLogs) Postpone(_ context.Context, n id.Node, _ int) error {
	f.postponed = append(f.postponed, n)
	return nil
}

func (f *fakeLogs) Kept(context.Context, int, int) ([]cluster.KeptLog, error) { return f.kept, nil }

func (f *fakeLogs) Store(_ context.Context, n id.Node, _ int, content []byte, _ bool) error {
	f.stored[n] = string(content)
	return nil
}

// fakeStreams serves a log by host; a host without one is away.
type fakeStreams map[id.Host]string

func (f fakeStreams) open(_ context.Context, h id.Host, d agentapi.Dial) (io.ReadCloser, error) {
	log, ok := f[h]
	if !ok || d.Purpose != agentapi.PurposeKeptLog {
		return nil, errors.New("away")
	}
	return io.NopCloser(strings.NewReader(log)), nil
}

func TestOneHostInTroubleKeepsNoOtherLogsWaiting(t *testing.T) {
	t.Parallel()
	well, away, node := id.New[id.Host](), id.New[id.Host](), id.New[id.Node]()
	failing := id.New[id.Node]()
	store := &fakeLogs{stored: map[id.Node]string{}, kept: []cluster.KeptLog{
		{Host: away, Node: failing}, {Host: well, Node: node, Ref: agentapi.LeaseRef{Lease: "ls_x", Epoch: 1}},
	}}
	did, err := collectLogs(t.Context(), dbtest.New(t), store, fakeStreams{well: "a\nb\n"}.open)
	if did != 1 || err == nil {
		t.Errorf("did %d, err %v: want one stored and one complaint", did, err)
	}
	if len(store.postponed) != 1 || store.postponed[0] != failing {
		t.Errorf("postponed: %v, want the one that failed", store.postponed)
	}
	if diff := cmp.Diff(map[id.Node]string{node: "a\nb\n"}, store.stored,
		cmp.Comparer(func(a, b id.Node) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// TestAHostThatFailsIsAskedOnceAPass: its other logs wait for the next one.
func TestAHostThatFailsIsAskedOnceAPass(t *testing.T) {
	t.Parallel()
	away := id.New[id.Host]()
	store := &fakeLogs{stored: map[id.Node]string{}}
	for range 4 {
		store.kept = append(store.kept, cluster.KeptLog{Host: away, Node: id.New[id.Node]()})
	}
	asked := 0
	_, err := collectLogs(t.Context(), dbtest.New(t), store, func(context.Context, id.Host, agentapi.Dial) (io.ReadCloser,
		error) {
		asked++
		return nil, errors.New("away")
	})
	if asked != 1 || err == nil {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// linkingLogs links the ledger while logs are collected.
type linkingLogs struct {
	fakeLogs
	link func(context.Context) error
}

func (l *linkingLogs) Kept(ctx context.Context, _, _ int) ([]cluster.KeptLog, error) {
	return nil, l.link(ctx)
}

// A pass over logs may take minutes. The ledger is linked meanwhile.
func TestLogs_DoNotHoldUpTheLedger(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	linked := false
	_, err := collectLogs(t.Context(), d, &linkingLogs{link: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, err := ledger.Link(ctx, d, ledger.BatchEvery)
		linked = err == nil
		return err
	}}, nil)
	if err != nil || !linked {
		t.Errorf("linked %t: %v", linked, err)
	}
}
