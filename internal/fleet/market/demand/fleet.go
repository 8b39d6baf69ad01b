package demand

import (
	"encoding/binary"
	"math/rand/v2"
)

// Fleet is hosts being filled by one policy: the outlook together with who is in which state. Hosts are named by
// number. It is what placement is measured with; the market keeps its own index and asks the outlook alone.
type Fleet struct {
	outlook *Outlook
	states  map[string]*State
	live    []*State       // those with hosts, in the order of their first
	at      map[*State]int // where in live
	members map[*State][]int
	random  *rand.Rand
	fit     []*State
	// Look is how many different states are weighed per request, drawn at random when more fit. The cost of a decision
	// then does not grow with the fleet. 0 = all.
	Look int
}

// NewFleet returns an empty fleet that expects the demand.
func NewFleet(demand []Kind) *Fleet {
	return &Fleet{
		outlook: NewOutlook(demand), states: map[string]*State{}, at: map[*State]int{}, members: map[*State][]int{},
		random: rand.New(rand.NewPCG(3, 4)),
	}
}

// Add puts a host into the fleet with what is left of it.
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

// leave takes one host out of the state.
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

// Place puts the request on the host that it costs least, and says which; false: it fits nowhere.
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

// candidates are states that fit the request: all of them, or Look drawn at random when there are more.
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

// probe looks for Look states that fit by drawing a few times as many. It fails where few fit, or few there are;
// looking at all of them is cheap then beside weighing them.
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

// Free is what is left of all GPUs, in thousandths.
func (f *Fleet) Free() int64 {
	var n int64
	for _, s := range f.live {
		n += s.free * int64(s.hosts)
	}
	return n
}

// key is equal for equal states.
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
