// Package demand decides between hosts that cost the same: it takes the one whose loss the demand to come feels least.
//
// A fleet is worth what the requests still to come can use of it. Three things make a placement cost more than the GPUs
// it asks for, all counted in thousandths of a GPU:
//   - Inside the host, what is left may fit nothing well: GPUs without processors, parts of GPUs too small. That is
//     measured by letting samples of the demand fill the host, before and after.
//   - Across the fleet, places for large requests run out while small ones would have fitted anywhere. That is priced
//     per kind of request, by how scarce the places for it are beside how often its size is asked for.
//   - A GPU model that some requests insist on may be filled by others that would take any. That is priced per model,
//     by the demand for it once every request is spread over the models it allows as evenly as can be.
//
// A kind or model with room to spare is all but free, one that is about to be turned away is dear. Prices follow the
// fleet and the demand; there is nothing to tune.
package demand

import (
	"math"
	"math/rand/v2"
)

// Kind is a kind of request and the part of all requests that is of it. Parts add up to 1.
type Kind struct {
	Request
	Part float64
}

const (
	// streams and streamLength are how many samples of the demand fill a host, and how many requests each has.
	streams      = 16
	streamLength = 120
)

// steep makes a pressure, the demand to come over the room for it, a price: negligible at a half, one at balance, and
// beyond it more than anything else.
func steep(pressure float64) float64 {
	p := pressure * pressure
	return p * p
}

// Outlook is a fleet's worth to a demand. It is not safe for concurrent use.
type Outlook struct {
	kinds  []Kind
	mean   float64 // GPU of an average request, thousandths
	sample [][]int // of kinds, in random order

	alike  []float64 // per kind: the part of all requests that is of its size, whatever else they ask
	places []float64 // per kind: how many such requests alone the fleet would take
	free   float64   // GPU left in the fleet, thousandths
	price  []float64 // per kind: of losing a place for it
	models models

	hosts   int
	changes int // of hosts since the prices were made
}

// NewOutlook returns the outlook of an empty fleet. Without kinds every placement costs nothing.
func NewOutlook(kinds []Kind) *Outlook {
	o := &Outlook{
		kinds:  kinds,
		alike:  alike(kinds),
		places: make([]float64, len(kinds)),
		price:  make([]float64, len(kinds)),
		models: newModels(kinds),
	}
	for i := range kinds {
		o.mean += kinds[i].Part * float64(kinds[i].GPU())
	}
	if !canWaste(kinds) {
		return o
	}
	r := rand.New(rand.NewPCG(1, 2)) // fixed: the same fleet and demand give the same placements
	for range streams {
		stream := make([]int, streamLength)
		for i := range stream {
			stream[i] = draw(kinds, r.Float64())
		}
		o.sample = append(o.sample, stream)
	}
	return o
}

// alike adds up the parts of the kinds that compete for the same places: those of as many GPUs, whole or in part, of
// the same models.
func alike(kinds []Kind) []float64 {
	type size struct {
		models string
		gpus   int
		whole  bool
	}
	of := func(k *Kind) size { return size{k.Models, k.GPUs, k.Milli == Whole} }
	sum := map[size]float64{}
	for i := range kinds {
		sum[of(&kinds[i])] += kinds[i].Part
	}
	out := make([]float64, len(kinds))
	for i := range kinds {
		out[i] = sum[of(&kinds[i])]
	}
	return out
}

// canWaste reports whether the demand can leave GPU on a host that nothing fits: not if it asks for nothing but whole
// GPUs, and sometimes for a single one.
func canWaste(kinds []Kind) bool {
	single := false
	for i := range kinds {
		k := &kinds[i]
		if k.CPU > 0 || k.Mem > 0 || k.Models != "" || k.GPUs > 0 && k.Milli < Whole {
			return true
		}
		single = single || k.GPUs == 1
	}
	return !single && len(kinds) > 0
}

func draw(kinds []Kind, at float64) int {
	for i := range kinds {
		if at -= kinds[i].Part; at < 0 {
			return i
		}
	}
	return len(kinds) - 1
}

// Add counts one more host in the state.
func (o *Outlook) Add(s *State) { o.hosts++; o.count(s, 1) }

// Remove counts one host less in the state.
func (o *Outlook) Remove(s *State) { o.hosts--; o.count(s, -1) }

func (o *Outlook) count(s *State, sign float64) {
	for i, n := range o.placesIn(s) {
		o.places[i] += sign * float64(n)
	}
	o.free += sign * float64(s.free)
	o.models.count(s, sign)
	o.changes++
}

// placesIn is, per kind, how many requests of it alone the state takes.
func (o *Outlook) placesIn(s *State) []uint16 {
	if s.places == nil {
		s.places = make([]uint16, len(o.kinds))
		for i := range o.kinds {
			s.places[i] = uint16(min(s.holds(&o.kinds[i].Request), math.MaxUint16))
		}
	}
	return s.places
}

// Reprice brings the prices up to date when one in a few dozen hosts has changed since they were made, and reports
// whether it did.
func (o *Outlook) Reprice() bool {
	const oneIn = 32
	if o.changes*oneIn < o.hosts || o.changes == 0 {
		return false
	}
	o.changes = 0
	toCome := o.free / max(o.mean, 1) // requests until the fleet is full
	for i := range o.kinds {
		k := &o.kinds[i]
		o.price[i] = k.Part * float64(k.GPU()) * steep(o.alike[i]*toCome/(o.places[i]+0.5))
	}
	o.models.balance(toCome)
	return true
}

// move is one way of putting a request on a host.
type move struct {
	after *State
	waste float64 // of GPU inside the host, thousandths
	lost  []loss
}

// loss is places that a move takes from a kind.
type loss struct {
	kind  int
	count float64
}

// movesOf are the ways to put r on a host in state s: one per different GPU for a part of one, else one.
func (o *Outlook) movesOf(s *State, r *Request) []move {
	if m, known := s.moves[*r]; known {
		return m
	}
	var out []move
	for i := range max(1, len(s.Left)) {
		if r.GPUs == 1 && r.Milli < Whole {
			if s.Left[i] < r.Milli || i > 0 && s.Left[i] == s.Left[i-1] {
				continue
			}
		} else if i > 0 {
			break
		}
		out = append(out, o.moveTo(s, s.After(r, i), r))
	}
	if s.moves == nil {
		s.moves = map[Request][]move{}
	}
	s.moves[*r] = out
	return out
}

func (o *Outlook) moveTo(s, after *State, r *Request) move {
	m := move{after: after, waste: o.valueOf(s) - o.valueOf(after) - float64(r.GPU())}
	now := o.placesIn(after)
	for i, n := range o.placesIn(s) {
		if n != now[i] {
			m.lost = append(m.lost, loss{i, float64(n - now[i])})
		}
	}
	return m
}

// Best is the cheapest way to put r on a host in state s, on which it fits: what it costs the demand to come, in
// thousandths of a GPU beyond its own, and what is left of the host.
func (o *Outlook) Best(s *State, r *Request) (cost float64, after *State) {
	cost = math.Inf(1)
	moves := o.movesOf(s, r)
	for i := range moves {
		c := moves[i].waste
		for _, l := range moves[i].lost {
			c += o.price[l.kind] * l.count
		}
		if c < cost {
			cost, after = c, moves[i].after
		}
	}
	if r.GPUs > 0 {
		cost += float64(r.GPU()) * o.models.price(s.Model)
	}
	return cost, after
}
