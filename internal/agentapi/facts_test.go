package agentapi

import (
	"bytes"
	"crypto/ed25519"
	"testing"
)

// What is signed of facts never changes, and a segment without facts is signed as it was before there were any.
func TestFactsPayloadIsForEver(t *testing.T) {
	t.Parallel()
	s := Segment{Lease: "ls_a", Epoch: 1, BootID: "b", Seq: 1, BootEndMS: 9, StartMS: 1, EndMS: 9}
	plain := s.Payload("host_1")
	s.Facts = &Facts{Up: true, Tail: false, Deaf: []DeafSpan{{Rank: 2, FromBootMS: 3, ToBootMS: 4}}}
	if !bytes.Equal(s.Payload("host_1"), plain) {
		t.Error("facts change what servers of protocol 1 verify")
	}
	want := append([]byte("muster-segment-facts-v1\x00\x00\x00\x00"), byte(len(plain)))
	want = append(append(want, plain...), 1, 0, 0, 0, 0, 1)
	want = append(want, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4)
	if got := s.FactsPayload("host_1"); !bytes.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Every field of the facts is signed.
func TestChangedFactsDoNotVerify(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Segment){
		"up":     func(s *Segment) { s.Facts.Up = true },
		"tail":   func(s *Segment) { s.Facts.Tail = true },
		"rank":   func(s *Segment) { s.Facts.Deaf[0].Rank = 2 },
		"from":   func(s *Segment) { s.Facts.Deaf[0].FromBootMS-- },
		"to":     func(s *Segment) { s.Facts.Deaf[0].ToBootMS-- },
		"none":   func(s *Segment) { s.Facts.Deaf = nil },
		"time":   func(s *Segment) { s.StartMS = 1 },
		"beyond": func(s *Segment) { s.Facts.Deaf[0].ToBootMS = 101; s.Sign("host_1", key) },
		"empty":  func(s *Segment) { s.Facts.Deaf[0].ToBootMS = 50; s.Sign("host_1", key) },
	} {
		s := Segment{
			Lease:     "ls_a",
			Epoch:     1,
			BootID:    "b",
			Seq:       1,
			BootEndMS: 100,
			EndMS:     100,
			Facts:     &Facts{Deaf: []DeafSpan{{1, 50, 60}}},
		}
		s.Sign("host_1", key)
		if err := s.Verify("host_1", public); err != nil {
			t.Fatal(err)
		}
		if change(&s); s.Verify("host_1", public) == nil {
			t.Errorf("%s: verifies", name)
		}
	}
}

func TestMergeDeaf(t *testing.T) {
	t.Parallel()
	got := MergeDeaf([]DeafSpan{{2, 5, 9}, {1, 8, 10}, {1, 1, 4}, {1, 4, 6}, {3, 7, 7}, {2, 6, 7}})
	want := []DeafSpan{{1, 1, 6}, {1, 8, 10}, {2, 5, 9}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%v", got)
	}
	var many []DeafSpan
	for i := range int64(MaxDeafSpans + 5) {
		many = append(many, DeafSpan{int(i), 0, 1 + i})
	}
	if got := MergeDeaf(many); len(got) != MaxDeafSpans || got[0].Rank != 5 {
		t.Errorf("%d spans, the first of rank %d", len(got), got[0].Rank)
	}
}
