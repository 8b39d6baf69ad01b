package demand

import "math"

// models is the supply of each GPU model and the demand for it.
type models struct {
	index  map[string]int
	names  []string
	free   []float64 // per model: GPU left, thousandths
	load   []float64 // per model: demand to come over what is left
	weight []float64 // per model: how much of a request's demand goes there, beside the others it allows
	groups []group
}

// group is the demand of all requests that allow the same models.
type group struct {
	request   Request // of which only Models counts
	requested float64 // GPU per request of the whole demand, thousandths
	allowed   []int   // models
}

func newModels(kinds []Kind) models {
	m := models{index: map[string]int{}}
	at := map[string]int{}
	for i := range kinds {
		k := &kinds[i]
		if k.GPUs == 0 {
			continue
		}
		g, known := at[k.Models]
		if !known {
			g = len(m.groups)
			at[k.Models] = g
			m.groups = append(m.groups, group{request: Request{Models: k.Models}})
		}
		m.groups[g].requested += k.Part * float64(k.GPU())
	}
	return m
}

func (m *models) count(s *State, sign float64) {
	i, known := m.index[s.Model]
	if !known {
		i = len(m.names)
		m.index[s.Model] = i
		m.names = append(m.names, s.Model)
		m.free, m.load, m.weight = append(m.free, 0), append(m.load, 0), append(m.weight, 1)
		for g := range m.groups {
			if m.groups[g].request.allows(s.Model) {
				m.groups[g].allowed = append(m.groups[g].allowed, i)
			}
		}
	}
	m.free[i] += sign * float64(s.free)
}

// balance spreads the demand of so many requests over the models they allow, as evenly as it goes: a model that is
// asked for too much loses weight, so that whoever has a choice goes elsewhere. It starts from the balance before,
// which is seldom far from the new one.
func (m *models) balance(requests float64) {
	const rounds, damping = 8, 0.7
	for range rounds {
		clear(m.load)
		for _, g := range m.groups {
			sum := 0.0
			for _, i := range g.allowed {
				sum += m.free[i] * m.weight[i]
			}
			if sum <= 0 {
				continue
			}
			for _, i := range g.allowed {
				m.load[i] += g.requested * requests * m.weight[i] / sum
			}
		}
		for i, load := range m.load {
			m.weight[i] = min(max(m.weight[i]*math.Pow(max(load, 1e-3), -damping), 1e-9), 1e9)
		}
	}
}

// price is what taking a thousandth of a GPU of the model costs the others that want it. A model unheard of costs
// nothing.
func (m *models) price(model string) float64 {
	if i, known := m.index[model]; known {
		return steep(m.load[i])
	}
	return 0
}
