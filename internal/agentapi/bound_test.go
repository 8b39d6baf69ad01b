package agentapi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// texts are what a renter, an image, a store or a driver may make an agent report.
var texts = []string{"", "no such file", `\u0000`, "\x00", "\xff\xfe", "\u2028\u2029", "<&>\"", "\x1b[31m", "\U0001F600é"}

// long returns a text of up to 4 KB.
func long() string { return strings.Repeat(texts[rand.IntN(len(texts))], 1+rand.IntN(300)) }

// hostile returns the largest status that anything can make an agent report.
func hostile(n int) LeaseStatus {
	l := LeaseStatus{LeaseRef: LeaseRef{fmt.Sprintf("ls_%032d", n), 1}, State: NodeFailed, Reason: long(), Detail: long(),
		Trouble: long(), TroubleDetail: long(), Leaving: long(), ImageDigest: long(),
		Progress:  Progress{Step: long(), WaitingFor: long(), Layers: make([]Layer, 300), Uploads: &Uploads{Problem: long()}},
		Preflight: &Preflight{Detail: long(), BusbwGbps: math.Inf(1), NCCL: &NCCL{Detail: long(), Seconds: math.NaN()}}}
	for i := range 200 {
		l.PeersDown = append(l.PeersDown, i)
		l.PeersDownSince = append(l.PeersDownSince, PeerDown{i, math.MaxInt64})
		l.Paths = append(l.Paths, PeerPath{i, "relay", 1420})
		l.Preflight.PairGbps = append(l.Preflight.PairGbps, math.NaN())
		l.NotUploaded = append(l.NotUploaded, NotUploaded{Name: long(), Detail: long()})
		l.Endpoints = append(l.Endpoints, "192.0.2.1:51820")
	}
	return l
}

// Whatever some leases report, the report can be sent, and has all the others.
func TestBound_CostsNoNeighbour(t *testing.T) {
	t.Parallel()
	for _, many := range []int{0, 1, 300} {
		s := Sync{Full: true, Leases: []LeaseStatus{}, EngineAway: &EngineAway{long()}}
		var good []LeaseStatus
		for i := range 100 {
			good = append(good, LeaseStatus{LeaseRef: LeaseRef{fmt.Sprintf("ls_good%d", i), 1}, State: NodeReady, Good: true})
		}
		s.Leases = append(s.Leases, good...)
		for i := range many {
			s.Leases = append(s.Leases, hostile(i))
			s.Health = append(s.Health, HealthEvent{Seq: uint64(i + 1), Detail: long()})
			s.Segments = append(s.Segments, Segment{Seq: int64(i), Facts: &Facts{Deaf: make([]DeafSpan, MaxDeafSpans)}})
		}
		s.SegmentsSignature = []byte("of all")
		in := len(s.Leases)
		s.Bound()
		data, err := Encode(s)
		if err != nil || len(data) > MaxReport {
			t.Fatalf("%d: %d bytes, %v", many, len(data), err)
		}
		got := slices.DeleteFunc(slices.Clone(s.Leases), func(l LeaseStatus) bool { return !l.Good })
		if diff := cmp.Diff(good, got); diff != "" {
			t.Errorf("%d: %s", many, diff)
		}
		if s.Full != (len(s.Leases) == in) || many > 0 && (len(s.Segments) == 0 || len(s.Health) == 0) {
			t.Errorf("%d: full %v with %d of %d leases; %d segments, %d events", many, s.Full, len(s.Leases), in,
				len(s.Segments), len(s.Health))
		}
		if signed := s.SegmentsSignature != nil; signed != (len(s.Segments) == many) {
			t.Errorf("%d: %d segments, signed %v", many, len(s.Segments), signed)
		}
	}
}

// A status that is as our agents make it stays as it is.
func TestBound_ChangesNothingOrdinary(t *testing.T) {
	t.Parallel()
	code := 3
	s := Sync{Full: true, SegmentsSignature: []byte("s"), Segments: make([]Segment, MaxSegments), Leases: []LeaseStatus{{
		LeaseRef: LeaseRef{"ls_1", 1}, State: NodeStopped, Reason: ReasonExited, Detail: "exit code 3: é", ExitCode: &code,
		Endpoints: []string{"[2001:db8::1]:51820"}, Preflight: &Preflight{OK: true, RTTMicros: []float64{0, 31.5}},
		Progress: Progress{Step: "layers", Layers: make([]Layer, 64)}, PeersDown: []int{1},
	}}}
	want := s
	want.Leases, want.Segments = slices.Clone(s.Leases), slices.Clone(s.Segments)
	if s.Bound(); cmp.Diff(want, s) != "" {
		t.Error(cmp.Diff(want, s))
	}
}

func TestPeerEndpoints_FitIntoPeerBytes(t *testing.T) {
	t.Parallel()
	var in []string
	for range 20 {
		in = append(in, "[2001:db8:1234:5678:9abc:def0:1234:5678]:51820", "192.0.2.1:51820", `<"\\>`, "\x01\x02")
	}
	out := PeerEndpoints(in)
	p := Peer{Rank: 127, Address: "10.77.15.255", Key: strings.Repeat("k", 44), Endpoints: out}
	if n := SizeOf(p) + 1; n > PeerBytes || len(out) < 4 || slices.Contains(out, in[2]) {
		t.Errorf("%d bytes: %v", n, out)
	}
}
