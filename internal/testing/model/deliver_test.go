package model

import (
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// signedOrNot is a delivery as an agent makes it that signs lists, or one that does not; a list that holds what the
// host did not sign, or a false signature of a list, must leave each segment to its own signature.
func signedOrNot(r *rand.Rand, h *machine, segs []agentapi.Segment) metering.Delivery {
	v := metering.Delivery{Host: h.id, Segments: segs}
	name, public := h.id.String(), h.key.Public().(ed25519.PublicKey)
	switch r.IntN(3) {
	case 0:
		if !slices.ContainsFunc(segs, func(s agentapi.Segment) bool { return s.Verify(name, public) != nil }) {
			v.Signature = agentapi.SignBatch(name, segs, h.key)
		}
	case 1:
		v.Signature = agentapi.SignBatch(name, append(segs[1:len(segs):len(segs)], segs[0]), h.key) // of another order
	}
	return v
}

// deliver packs what all hosts send, with repeats and lies, in batches large and small.
func deliver(r *rand.Rand, hosts []*machine, all []*rental) (out []metering.Delivery) {
	queue := map[id.Host][]agentapi.Segment{}
	for _, c := range all {
		for _, l := range c.leases {
			queue[l.host.id] = append(queue[l.host.id], l.sent...)
		}
	}
	for _, h := range hosts {
		segs := queue[h.id]
		for range len(segs) / 5 { // said again
			segs = append(segs, segs[r.IntN(len(segs))])
		}
		if r.IntN(2) == 0 {
			r.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
		}
		segs = slices.Insert(segs, len(segs)/2, lies(r, h, hosts, all)...)
		for len(segs) > 0 {
			n := 1 + r.IntN(agentapi.MaxSegments)
			if r.IntN(3) == 0 {
				n = 1 + r.IntN(3) // as a host sends while its link holds
			}
			n = min(len(segs), n)
			out = append(out, signedOrNot(r, h, segs[:n]))
			segs = segs[n:]
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// inOrder sends what had to wait for gaps to be closed, as an agent does: all that it has, the oldest first, again and
// again.
func inOrder(t *testing.T, d *db.DB, deliveries ...metering.Delivery) {
	t.Helper()
	queue := map[id.Host][]agentapi.Segment{}
	for _, v := range deliveries {
		queue[v.Host] = append(queue[v.Host], v.Segments...)
	}
	for h, segs := range queue {
		slices.SortFunc(segs, func(a, b agentapi.Segment) int { return int(a.StartMS - b.StartMS) })
		for round := 0; len(segs) > 0; round++ {
			batch := []metering.Delivery{{Host: h, Segments: segs[:min(len(segs), agentapi.MaxSegments)]}}
			acks, err := metering.IngestAll(t.Context(), d, batch)
			if err != nil {
				t.Error(err)
				return
			}
			if !held(batch, acks) {
				segs = segs[len(batch[0].Segments):]
			} else if round > 1000 {
				t.Errorf("segments are never taken: %s", verdicts(batch, acks))
				return
			}
		}
	}
}

// verdicts is what was answered to those that wait, in words.
func verdicts(batch []metering.Delivery, acks [][]agentapi.UsageAck) string {
	var b strings.Builder
	for i, v := range batch {
		for _, a := range acks[i] {
			fmt.Fprintf(&b, "%s %s through %d %s; ", a.Lease, a.BootID, a.Through, a.Refused)
		}
		for _, s := range v.Segments {
			fmt.Fprintf(&b, "\n%s %s %d: %d to %d", s.Lease, s.BootID, s.Seq, s.StartMS, s.EndMS)
		}
	}
	return b.String()
}

// held says whether not everything was dealt with.
func held(batch []metering.Delivery, acks [][]agentapi.UsageAck) bool {
	type runOf struct {
		agentapi.LeaseRef
		boot string
	}
	for i, v := range batch {
		through := map[runOf]int64{}
		for _, a := range acks[i] {
			if k := (runOf{a.LeaseRef, a.BootID}); a.Refused == "" {
				through[k] = max(through[k], a.Through)
			}
		}
		for _, s := range v.Segments {
			if s.Seq < lie && s.Seq > through[runOf{agentapi.LeaseRef{Lease: s.Lease, Epoch: s.Epoch}, s.BootID}] {
				return true
			}
		}
	}
	return false
}

// lie is from where the lies are numbered.
const lie = 1_000_000

// lies are segments of which none may ever count: of another host's lease, with a signature that is not the host's or
// not of this text, from the future, from before the lease, of a start that never was, of an unknown anchor.
func lies(r *rand.Rand, h *machine, hosts []*machine, all []*rental) (out []agentapi.Segment) {
	for _, c := range all {
		for _, l := range c.leases {
			if len(l.sent) == 0 {
				continue
			}
			honest := l.sent[r.IntN(len(l.sent))]
			honest.Seq += lie
			say := func(f func(s *agentapi.Segment), key ed25519.PrivateKey) {
				s := honest
				f(&s)
				s.Sign(h.id.String(), key)
				out = append(out, s)
			}
			if l.host != h {
				say(func(*agentapi.Segment) {}, h.key)
				continue
			}
			shift := func(ms int64) func(s *agentapi.Segment) {
				return func(s *agentapi.Segment) { s.StartMS, s.EndMS, s.BootEndMS = s.StartMS+ms, s.EndMS+ms, s.BootEndMS+ms }
			}
			_, stranger, _ := ed25519.GenerateKey(nil)
			say(func(*agentapi.Segment) {}, stranger)
			say(shift(10*day), h.key)
			say(shift(-10*day), h.key)
			say(func(s *agentapi.Segment) { s.Epoch = 2 }, h.key)
			say(func(s *agentapi.Segment) { s.Anchor = 99 }, h.key)
			say(func(s *agentapi.Segment) { s.EndMS++ }, h.key)
			forged := honest
			forged.StartMS -= 1000
			out = append(out, forged)
		}
	}
	return out
}
