package demand

import "math"

// models is the supply of each GPU model and the demand for it.
type models struct {
	index  map[string]int
	names  []string
	free   []float64 // per model: GPU left, in thousandths
	load   []float64 // per model: future demand divided by what is left
	weight []float64 // per model: its part of a request's demand, relative to the other allowed models
	groups []group
}

// group is the total demand of the requests that allow the same models.
type group struct {
	request   Request // only its Models are set
	requested float64 // GPU per request of the whole demand, in thousandths
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

// balance distributes the demand of the given number of requests over the models that they allow, as evenly as
// possible. An overloaded model loses weight, so that requests with a choice move to other models. balance starts from
// the weights of the last call, which are usually close to the new ones.
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

// price returns what using a thousandth of a GPU of the model costs the other requests that want that model. The price
// of an unknown model is 0.
func (m *models) price(model string) float64 {
	if i, known := m.index[model]; known {
		return steep(m.load[i])
	}
	return 0
}
