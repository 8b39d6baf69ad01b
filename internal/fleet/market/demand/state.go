package demand

import (
	"slices"
	"strings"
)

// Whole is one GPU in thousandths. GPUs are counted in thousandths because a request may need a part of one.
const Whole = 1000

// Request is what one node needs of a host. CPU and Mem may have any unit, but the same as the hosts'.
type Request struct {
	CPU, Mem int64
	GPUs     int
	Milli    int64  // thousandths of each GPU; Whole unless the request needs a part of one
	Models   string // allowed GPU models, separated by "|"; "" = any
}

// GPU returns the request's whole demand in thousandths of a GPU.
func (r *Request) GPU() int64 { return int64(r.GPUs) * r.Milli }

// allows reports whether the request may use the model.
func (r *Request) allows(model string) bool {
	if r.Models == "" {
		return true
	}
	for m := range strings.SplitSeq(r.Models, "|") {
		if m == model {
			return true
		}
	}
	return false
}

// State is the remaining resources of a host. It is immutable, and hosts with the same remaining resources share one.
type State struct {
	Model    string
	CPU, Mem int64
	Left     []int64 // thousandths left of each GPU, in descending order

	free   int64 // sum of Left
	moves  map[Request][]move
	places []uint16
	value  float64
	known  bool // value is set
	hosts  int  // number of hosts of a Fleet in this state
}

// NewState returns the state of a host with these remaining resources. A State belongs to one Outlook, which stores
// results in it.
func NewState(model string, cpu, mem int64, left []int64) *State {
	s := &State{Model: model, CPU: cpu, Mem: mem, Left: slices.Clone(left)}
	slices.SortFunc(s.Left, func(a, b int64) int { return int(b - a) })
	for _, n := range s.Left {
		s.free += n
	}
	return s
}

// Free returns what is left of all GPUs together, in thousandths of a GPU.
func (s *State) Free() int64 { return s.free }

// Fits reports whether a host in this state has room for the request.
func (s *State) Fits(r *Request) bool {
	if s.CPU < r.CPU || s.Mem < r.Mem {
		return false
	}
	return r.GPUs == 0 || len(s.Left) >= r.GPUs && s.Left[r.GPUs-1] >= r.Milli && r.allows(s.Model)
}

// Tightest returns the index of the GPU with the least left that still has room for the request's part.
func (s *State) Tightest(r *Request) int {
	for i := len(s.Left) - 1; i >= 0; i-- {
		if s.Left[i] >= r.Milli {
			return i
		}
	}
	return 0
}

// After returns the state after placing the request, which must fit. A request for one GPU or a part of one uses GPU i;
// a request for several uses those with the most left.
func (s *State) After(r *Request, i int) *State {
	left := slices.Clone(s.Left)
	if r.GPUs == 1 {
		left[i] -= r.Milli
	} else {
		for j := range r.GPUs {
			left[j] -= r.Milli
		}
	}
	return NewState(s.Model, s.CPU-r.CPU, s.Mem-r.Mem, left)
}

// holds returns how many requests equal to r the state has room for, if it gets no others.
func (s *State) holds(r *Request) int64 {
	var n int64
	switch {
	case r.GPUs == 0:
		n = 1 << 15
	case !r.allows(s.Model):
		return 0
	case r.Milli < Whole:
		for _, left := range s.Left {
			n += left / r.Milli
		}
	default:
		for n < int64(len(s.Left)) && s.Left[n] == Whole {
			n++
		}
		n /= int64(r.GPUs)
	}
	if r.CPU > 0 {
		n = min(n, s.CPU/r.CPU)
	}
	if r.Mem > 0 {
		n = min(n, s.Mem/r.Mem)
	}
	return n
}
