package overlay

import (
	"crypto/ed25519"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// Spans begin with the last byte and end with the first one after it, whether or not the agent looked while they
// lasted.
func TestHearing(t *testing.T) {
	t.Parallel()
	h := Hearing{}
	quiet := func(rank int, ms int64) PeerStatus { return PeerStatus{Rank: rank, SilentMS: ms} }
	ended := func(rank int, from, to int64) PeerStatus {
		return PeerStatus{Rank: rank, DeafFromMS: from, DeafToMS: to}
	}
	goesOn := func(rank int, from int64) agentapi.DeafSpan { return agentapi.DeafSpan{Rank: rank, FromBootMS: from} }
	over := func(rank int, from, to int64) agentapi.DeafSpan {
		return agentapi.DeafSpan{Rank: rank, FromBootMS: from, ToBootMS: to}
	}
	for i, c := range []struct {
		boot  int64
		peers []PeerStatus
		want  []agentapi.DeafSpan
	}{
		{100_000, []PeerStatus{quiet(1, 100), quiet(2, 7000)}, nil},
		{102_000, []PeerStatus{quiet(1, 100), quiet(2, 9000)}, []agentapi.DeafSpan{goesOn(2, 93_000)}},
		{104_000, []PeerStatus{quiet(1, 7100), quiet(2, 11_010)}, []agentapi.DeafSpan{goesOn(1, 96_900), goesOn(2, 93_000)}},
		{106_000, []PeerStatus{quiet(1, 9100), ended(2, 13_000, 500)},
			[]agentapi.DeafSpan{goesOn(1, 96_900), over(2, 93_000, 105_500)}},
		{108_000, []PeerStatus{quiet(1, 1000), ended(2, 15_000, 2500)}, []agentapi.DeafSpan{over(1, 96_900, 107_000)}},
		{148_000, []PeerStatus{quiet(1, 0), ended(2, 30_000, 10_000)}, []agentapi.DeafSpan{over(2, 118_000, 138_000)}},
		{150_000, []PeerStatus{quiet(1, 8000)}, []agentapi.DeafSpan{goesOn(1, 142_000)}},
		{152_000, nil, []agentapi.DeafSpan{over(1, 142_000, 152_000)}},
	} {
		if diff := cmp.Diff(c.want, h.Take(c.boot, c.peers)); diff != "" {
			t.Fatalf("look %d: %s", i, diff)
		}
	}
	if d := h.Down(); len(d) != 0 {
		t.Errorf("down: %v", d)
	}
}

// Both ends of a link that is cut sign that they were deaf to each other, over the same time.
func TestBothEndsOfACutLinkSignTheSameSilence(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	lan := n.Segment()
	var sites []*site
	var link *testnet.Link
	for rank, ip := range []string{"192.168.7.10", "192.168.7.11"} {
		h := n.Host([]string{"left", "right"}[rank])
		link = h.Join(lan, ip+"/24")
		sites = append(sites, newSite(t, h, rank, nil, ip))
	}
	introduce(t, sites...)

	start := time.Now()
	boot := func() int64 { return 1_000_000 + time.Since(start).Milliseconds() }
	ref := agentapi.LeaseRef{Lease: "ls_1", Epoch: 1}
	type end struct {
		*site
		journal *journal.Journal
		hearing Hearing
		met     bool
		down    []agentapi.PeerDown
	}
	var ends []*end
	for _, s := range sites {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(t.TempDir(), journal.Config{
			Host:   "host_1",
			Key:    key,
			BootID: "b",
			Now:    time.Now,
			Log:    slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Close() })
		if err := j.SetAnchor(agentapi.Anchor{BootID: "b", Number: 1, BootMS: 0, ServerMS: 5_000_000}); err != nil {
			t.Fatal(err)
		}
		if err := j.Start(ref, boot(), nil); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, &end{site: s, journal: j})
	}
	look := func() {
		for _, e := range ends {
			st, err := e.h.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e.met = len(st.Peers) == 1 && st.Peers[0].Received
			spans := e.hearing.Take(boot(), st.Peers)
			e.down = e.hearing.Down()
			if err := e.journal.Note(ref, journal.Condition{SeenBootMS: boot(), Up: true, Deaf: spans}); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, "both have received", patient, func() bool { look(); return ends[0].met && ends[1].met })
	cut := boot()
	link.Set(testnet.Fault{Cut: true})
	await(t, "both are deaf", patient, func() bool { look(); return len(ends[0].down) == 1 && len(ends[1].down) == 1 })
	restored := boot()
	link.Set(testnet.Fault{})
	await(t, "both receive", patient, func() bool { look(); return len(ends[0].down) == 0 && len(ends[1].down) == 0 })

	const slack = 1000
	var signed []agentapi.DeafSpan
	for i, e := range ends {
		var spans []agentapi.DeafSpan
		for _, s := range e.journal.Pending(100) {
			if s.Facts != nil {
				spans = append(spans, s.Facts.Deaf...)
			}
		}
		spans = agentapi.MergeDeaf(spans)
		if len(spans) != 1 || spans[0].Rank != 1-i {
			t.Fatalf("rank %d signs %+v", i, spans)
		}
		d := spans[0]
		if d.FromBootMS < cut-keepalive.Milliseconds()-slack || d.FromBootMS > cut+slack || d.ToBootMS < restored-slack {
			t.Errorf("rank %d signs %+v; the link was cut from %d to %d", i, d, cut, restored)
		}
		signed = append(signed, d)
	}
	if d := signed[0].ToBootMS - signed[1].ToBootMS; d < -slack || d > slack {
		t.Errorf("the ends receive again at %d and %d", signed[0].ToBootMS, signed[1].ToBootMS)
	}
	if d := signed[0].FromBootMS - signed[1].FromBootMS; d < -keepalive.Milliseconds()-slack ||
		d > keepalive.Milliseconds()+slack {
		t.Errorf("the ends are deaf from %d and %d on", signed[0].FromBootMS, signed[1].FromBootMS)
	}
}
