package demand

import (
	"slices"
	"strings"
)

// Whole is one GPU. GPUs are counted in thousandths, so that parts of one can be asked for.
const Whole = 1000

// Request is what one node asks of a host. CPU and Mem are in any unit, the same as the hosts'.
type Request struct {
	CPU, Mem int64
	GPUs     int
	Milli    int64  // of each GPU; Whole unless it asks for a part of one
	Models   string // allowed GPU models, "|" between; "" = any
}

// GPU is the request's whole demand in thousandths of a GPU.
func (r *Request) GPU() int64 { return int64(r.GPUs) * r.Milli }

// allows reports whether the request may run on the model.
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

// State is what is left of a host. It is never changed; hosts of which the same is left share one.
type State struct {
	Model    string
	CPU, Mem int64
	Left     []int64 // thousandths left of each GPU, most first

	free   int64 // sum of Left
	moves  map[Request][]move
	places []uint16
	value  float64
	known  bool // value is
	hosts  int  // how many of a Fleet are in the state
}

// NewState returns what is left of a host. A State belongs to one Outlook: what that finds out about it is kept in it.
func NewState(model string, cpu, mem int64, left []int64) *State {
	s := &State{Model: model, CPU: cpu, Mem: mem, Left: slices.Clone(left)}
	slices.SortFunc(s.Left, func(a, b int64) int { return int(b - a) })
	for _, n := range s.Left {
		s.free += n
	}
	return s
}

// Free is what is left of all GPUs together, in thousandths.
func (s *State) Free() int64 { return s.free }

// Fits reports whether a host in the state can take the request.
func (s *State) Fits(r *Request) bool {
	if s.CPU < r.CPU || s.Mem < r.Mem {
		return false
	}
	return r.GPUs == 0 || len(s.Left) >= r.GPUs && s.Left[r.GPUs-1] >= r.Milli && r.allows(s.Model)
}

// Tightest is the GPU with the least left that takes the request's part of one.
func (s *State) Tightest(r *Request) int {
	for i := len(s.Left) - 1; i >= 0; i-- {
		if s.Left[i] >= r.Milli {
			return i
		}
	}
	return 0
}

// After is the state once the request is there: a request for one GPU, or a part of one, has it from the i-th, a larger
// one from those with the most left. The request fits.
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

// holds is how many requests of one kind, and no others, the state could take.
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
