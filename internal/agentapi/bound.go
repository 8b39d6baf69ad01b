package agentapi

import (
	"cmp"
	"math"
	"slices"
)

// Limits of a report. Servers of earlier versions refuse a whole report that exceeds them.
const (
	// MaxReport is the largest report, in bytes: what the link of earlier versions carries, with a margin.
	MaxReport       = 448 << 10
	MaxStatuses     = 256
	MaxHealthEvents = 256

	maxDetail      = 500
	maxProgress    = 200
	maxLayers      = 64
	maxReported    = 16 // endpoints, and buckets that are not uploaded
	maxRanks       = 128
	maxDigestBytes = 100
)

// Bound makes a report small enough for the link. What a renter, an image or a driver makes long is shortened. If the
// leases still take too much, the largest are left out, and the report is not full; segments and results that do not
// fit remain for the next report. If segments are left out, SegmentsSignature is nil.
func (s *Sync) Bound() {
	const eighth = MaxReport / 8
	s.Health = fit(s.Health[:min(len(s.Health), MaxHealthEvents)], eighth)
	s.Requalified = fit(s.Requalified[:min(len(s.Requalified), MaxHealthEvents)], eighth)
	s.Shared = fit(s.Shared[:min(len(s.Shared), MaxSharedUse)], eighth)
	if s.EngineAway != nil {
		s.EngineAway = &EngineAway{Detail: Clip(s.EngineAway.Detail, maxDetail)}
	}
	if s.Update != nil {
		u := *s.Update
		u.Detail = Clip(u.Detail, maxDetail)
		s.Update = &u
	}
	if left := boundLeases(s.Leases, MaxReport/2); len(left) < len(s.Leases) {
		s.Leases, s.Full = left, false
	} else {
		s.Leases = left
	}
	rest := *s
	rest.Segments, rest.SegmentsSignature = nil, nil
	if segments := fit(s.Segments, MaxReport-SizeOf(rest)-len(`"segments":[],"segments_signature":""`)-128); len(
		segments) < len(s.Segments) {
		s.Segments, s.SegmentsSignature = segments, nil
	}
}

// boundLeases returns the statuses, each shortened, that fit into limit bytes, in their order. The smallest go first,
// so that what one renter does to a status costs no other renter theirs.
func boundLeases(in []LeaseStatus, limit int) []LeaseStatus {
	type sized struct{ at, size int }
	out, sizes, total := make([]LeaseStatus, len(in)), make([]sized, len(in)), 0
	for i, l := range in {
		out[i] = l.bounded()
		sizes[i] = sized{i, SizeOf(out[i]) + len(",")}
		total += sizes[i].size
	}
	if total <= limit && len(in) <= MaxStatuses {
		return out
	}
	for i := range out { // for people, and not needed for any decision
		out[i].Progress.Layers, out[i].Paths = nil, nil
		sizes[i].size = SizeOf(out[i]) + len(",")
	}
	slices.SortFunc(sizes, func(a, b sized) int { return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.at, b.at)) })
	keep := make([]bool, len(in))
	for i, s := range sizes {
		if limit -= s.size; limit < 0 || i >= MaxStatuses {
			break
		}
		keep[s.at] = true
	}
	i := -1
	return slices.DeleteFunc(out, func(LeaseStatus) bool { i++; return !keep[i] })
}

// bounded returns a copy whose texts are clean and, as its lists, not too long, and whose numbers JSON can represent.
func (l LeaseStatus) bounded() LeaseStatus {
	l.Reason, l.Trouble = Clip(l.Reason, 64), Clip(l.Trouble, 64)
	l.Detail, l.TroubleDetail = Clip(l.Detail, maxDetail), Clip(l.TroubleDetail, maxDetail)
	l.Leaving = Clip(l.Leaving, MaxLeaving)
	if len(l.ImageDigest) > maxDigestBytes {
		l.ImageDigest = ""
	}
	l.Endpoints = first(l.Endpoints, maxReported)
	l.PeersDown, l.PeersDownSince = first(l.PeersDown, maxRanks), first(l.PeersDownSince, maxRanks)
	l.Paths = first(l.Paths, maxRanks)
	l.Progress.Step, l.Progress.WaitingFor = Clip(l.Progress.Step, maxProgress), Clip(l.Progress.WaitingFor, maxDetail)
	l.Progress.Layers = first(l.Progress.Layers, maxLayers)
	for i := range l.Progress.Layers {
		l.Progress.Layers[i].Digest = Clip(l.Progress.Layers[i].Digest, maxDigestBytes)
	}
	if u := l.Progress.Uploads; u != nil {
		c := *u
		c.Problem = Clip(c.Problem, maxProgress)
		l.Progress.Uploads = &c
	}
	l.NotUploaded = first(l.NotUploaded, maxReported)
	for i := range l.NotUploaded {
		n := &l.NotUploaded[i]
		n.Name, n.Problem, n.Detail = Clip(n.Name, 64), Clip(n.Problem, maxProgress), Clip(n.Detail, maxProgress)
	}
	if l.Preflight != nil {
		p := l.Preflight.bounded()
		l.Preflight = &p
	}
	return l
}

func (p Preflight) bounded() Preflight {
	p.Detail = Clip(p.Detail, maxDetail)
	p.BusbwGbps, p.Seconds = finite(p.BusbwGbps), finite(p.Seconds)
	p.RTTMicros, p.PairGbps = first(p.RTTMicros, maxRanks), first(p.PairGbps, maxRanks)
	for _, list := range [][]float64{p.RTTMicros, p.PairGbps} {
		for i := range list {
			list[i] = finite(list[i])
		}
	}
	if p.NCCL != nil {
		n := *p.NCCL
		n.Kind, n.Detail, n.Version, n.Net = Clip(n.Kind, 64), Clip(n.Detail, maxDetail), Clip(n.Version, 64), Clip(n.Net, 64)
		n.BusbwGbps, n.LocalGbps, n.Seconds = finite(n.BusbwGbps), finite(n.LocalGbps), finite(n.Seconds)
		p.NCCL = &n
	}
	return p
}

// finite returns f, or 0 for what JSON cannot represent.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// first returns a copy of the first n items.
func first[T any](items []T, n int) []T { return slices.Clone(items[:min(len(items), n)]) }
