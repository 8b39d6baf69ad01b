package demand

import (
	"encoding/binary"
	"math/rand/v2"
)

// Fleet is a set of hosts that one policy fills: an outlook together with the state of each host. Hosts are identified
// by numbers. Fleet is for measuring placement; the market has its own index and uses only Outlook.
type Fleet struct {
	outlook *Outlook
	states  map[string]*State
	live    []*State       // states with hosts
	at      map[*State]int // index in live
	members map[*State][]int
	random  *rand.Rand
	fit     []*State
	// Look is how many different states Place compares per request, drawn at random if more fit, so that the cost of a
	// decision does not grow with the fleet. 0 = all.
	Look int
}

// NewFleet returns an empty fleet for the expected demand.
func NewFleet(demand []Kind) *Fleet {
	return &Fleet{
		outlook: NewOutlook(demand), states: map[string]*State{}, at: map[*State]int{}, members: map[*State][]int{},
		random: rand.New(rand.NewPCG(3, 4)),
	}
}

// Add adds a host with its remaining resources.
func (f *Fleet) Add(host int, model string, cpu, mem int64, left []int64) {
	f.enter(host, NewState(model, cpu, mem, left))
}

func (f *Fleet) enter(host int, s *State) {
	key := s.key()
	if known := f.states[key]; known != nil {
		s = known
	} else {
		f.states[key] = s
	}
	if s.hosts++; s.hosts == 1 {
		f.at[s] = len(f.live)
		f.live = append(f.live, s)
	}
	f.members[s] = append(f.members[s], host)
	f.outlook.Add(s)
}

// leave removes one host from the state.
func (f *Fleet) leave(s *State) (host int) {
	m := f.members[s]
	host = m[len(m)-1]
	f.members[s] = m[:len(m)-1]
	f.outlook.Remove(s)
	if s.hosts--; s.hosts == 0 {
		last := f.live[len(f.live)-1]
		f.live[f.at[s]], f.at[last] = last, f.at[s]
		f.live = f.live[:len(f.live)-1]
		delete(f.at, s)
		delete(f.members, s)
		delete(f.states, s.key())
	}
	return host
}

// Place puts the request on the host where it costs least, and returns that host; ok is false if it fits nowhere.
func (f *Fleet) Place(r Request) (host int, ok bool) {
	f.outlook.Reprice()
	var best, after *State
	var least float64
	for _, s := range f.candidates(&r) {
		if cost, to := f.outlook.Best(s, &r); best == nil || cost < least {
			best, after, least = s, to, cost
		}
	}
	if best == nil {
		return 0, false
	}
	host = f.leave(best)
	f.enter(host, after)
	return host, true
}

// candidates returns states that fit the request: all of them, or Look of them drawn at random if there are more.
func (f *Fleet) candidates(r *Request) []*State {
	if f.Look > 0 && f.probe(r) {
		return f.fit
	}
	f.fit = f.fit[:0]
	for _, s := range f.live {
		if s.Fits(r) {
			f.fit = append(f.fit, s)
		}
	}
	if f.Look > 0 && len(f.fit) > f.Look {
		for i := range f.Look {
			j := i + f.random.IntN(len(f.fit)-i)
			f.fit[i], f.fit[j] = f.fit[j], f.fit[i]
		}
		f.fit = f.fit[:f.Look]
	}
	return f.fit
}

// probe draws up to 8 × Look states at random to find Look states that fit. It returns false if it finds fewer or if
// there are too few states; checking all of them is then cheap compared with pricing them.
func (f *Fleet) probe(r *Request) bool {
	const draws = 8
	f.fit = f.fit[:0]
	if len(f.live) < draws*f.Look {
		return false
	}
	for range draws * f.Look {
		if s := f.live[f.random.IntN(len(f.live))]; s.Fits(r) {
			if f.fit = append(f.fit, s); len(f.fit) == f.Look {
				return true
			}
		}
	}
	return false
}

// Free returns what is left of all GPUs, in thousandths of a GPU.
func (f *Fleet) Free() int64 {
	var n int64
	for _, s := range f.live {
		n += s.free * int64(s.hosts)
	}
	return n
}

// key returns a string that is equal for equal states.
func (s *State) key() string {
	b := make([]byte, 0, len(s.Model)+16+2*len(s.Left))
	b = append(b, s.Model...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(s.CPU))
	b = binary.BigEndian.AppendUint64(b, uint64(s.Mem))
	for _, n := range s.Left {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return string(b)
}
