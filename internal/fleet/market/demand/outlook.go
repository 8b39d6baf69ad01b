// Package demand chooses between hosts of equal price: it prefers the host whose resources the future demand will miss
// least.
//
// The value of a fleet is what future requests can use of it. Three things make a placement cost more than the GPUs
// that it uses, all measured in thousandths of a GPU:
//   - Inside the host, the remaining resources may fit no request well, such as GPUs without processors or too small
//     parts of GPUs. This is measured by filling the host with samples of the demand, before and after the placement.
//   - Across the fleet, places for large requests run out while small requests would fit anywhere. This is priced per
//     kind of request: the scarcer the places for a kind, compared with how often its size is requested, the higher the
//     price.
//   - Requests that would accept any GPU model may use up a model that others need. This is priced per model, by the
//     demand for the model when every request is distributed over its allowed models as evenly as possible.
//
// A kind or model with ample room costs almost nothing; one that is about to run out is expensive. Prices follow the
// fleet and the demand; there are no parameters to tune.
package demand

import (
	"math"
	"math/rand/v2"
)

// Kind is a kind of request and its fraction of all requests. The fractions of a demand add up to 1.
type Kind struct {
	Request
	Part float64
}

const (
	// streams is the number of samples of the demand that fill a host; streamLength is the number of requests in each.
	streams      = 16
	streamLength = 120
)

// steep converts a pressure, future demand divided by the room for it, to a price: negligible at a half, one at
// balance, and above that higher than anything else.
func steep(pressure float64) float64 {
	p := pressure * pressure
	return p * p
}

// Outlook is the value of a fleet to a demand. It is not safe for concurrent use.
type Outlook struct {
	kinds  []Kind
	mean   float64 // GPU of an average request, in thousandths
	sample [][]int // indexes of kinds in random order

	alike  []float64 // per kind: fraction of all requests with its size, regardless of CPU and memory
	places []float64 // per kind: number of such requests that the fleet could hold if it got no others
	free   float64   // GPU left in the fleet, in thousandths
	price  []float64 // per kind: price of losing one place
	models models

	hosts   int
	changes int // hosts added and removed since Reprice
}

// NewOutlook returns the outlook of an empty fleet. Without kinds every placement costs 0.
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
	r := rand.New(rand.NewPCG(1, 2)) // fixed seed: equal fleets and demands get equal placements
	for range streams {
		stream := make([]int, streamLength)
		for i := range stream {
			stream[i] = draw(kinds, r.Float64())
		}
		o.sample = append(o.sample, stream)
	}
	return o
}

// alike returns, for each kind, the sum of the fractions of all kinds that compete for the same places: those with the
// same models and number of GPUs, whole or in part.
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

// canWaste reports whether the demand can leave GPUs on a host that no request fits. It cannot if all requests are for
// whole GPUs only, and some of them for a single GPU.
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

// Add adds a host in state s.
func (o *Outlook) Add(s *State) { o.hosts++; o.count(s, 1) }

// Remove removes a host in state s.
func (o *Outlook) Remove(s *State) { o.hosts--; o.count(s, -1) }

func (o *Outlook) count(s *State, sign float64) {
	for i, n := range o.placesIn(s) {
		o.places[i] += sign * float64(n)
	}
	o.free += sign * float64(s.free)
	o.models.count(s, sign)
	o.changes++
}

// placesIn returns, for each kind, how many requests of only that kind the state could hold.
func (o *Outlook) placesIn(s *State) []uint16 {
	if s.places == nil {
		s.places = make([]uint16, len(o.kinds))
		for i := range o.kinds {
			s.places[i] = uint16(min(s.holds(&o.kinds[i].Request), math.MaxUint16))
		}
	}
	return s.places
}

// Reprice updates the prices if at least one in 32 hosts has changed since the last update, and reports whether it did.
func (o *Outlook) Reprice() bool {
	const oneIn = 32
	if o.changes*oneIn < o.hosts || o.changes == 0 {
		return false
	}
	o.changes = 0
	toCome := o.free / max(o.mean, 1) // number of requests until the fleet is full
	for i := range o.kinds {
		k := &o.kinds[i]
		o.price[i] = k.Part * float64(k.GPU()) * steep(o.alike[i]*toCome/(o.places[i]+0.5))
	}
	o.models.balance(toCome)
	return true
}

// move is one way to place a request on a host.
type move struct {
	after *State
	waste float64 // GPU wasted inside the host, in thousandths
	lost  []loss
}

// loss is the number of places of one kind that a move uses up.
type loss struct {
	kind  int
	count float64
}

// movesOf returns the ways to place r on a host in state s: one per different GPU if r needs a part of one GPU, else
// one.
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

// Best returns the cheapest way to place r on a host in state s, in which r must fit: its cost to future demand, in
// thousandths of a GPU beyond the request's own, and the state of the host after it.
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
