package host

import (
	"slices"
	"time"
)

// MeasuredNVLink is what was measured of NVLink between a host's GPUs of one model.
type MeasuredNVLink struct {
	Model   string
	Gbps    float64   // what the slowest GPU sent
	Slowest int       // its index
	At      time.Time // of the oldest measurement
}

// NVLink returns what was measured of NVLink, by model, in the order of the GPUs. Models with a GPU that was not
// measured are left out, as in offers.
func (d *Detail) NVLink() []MeasuredNVLink {
	var out []MeasuredNVLink
	at := map[string]int{}
	for _, g := range d.GPUs {
		if !g.Present {
			continue
		}
		i, seen := at[g.Model]
		if !seen {
			at[g.Model] = len(out)
			out = append(out, MeasuredNVLink{g.Model, g.BusbwNVLink, g.Index, g.BusbwNVLinkAt})
			continue
		}
		m := &out[i]
		if g.BusbwNVLink < m.Gbps {
			m.Gbps, m.Slowest = g.BusbwNVLink, g.Index
		}
		if g.BusbwNVLinkAt.Before(m.At) {
			m.At = g.BusbwNVLinkAt
		}
	}
	return slices.DeleteFunc(out, func(m MeasuredNVLink) bool { return m.Gbps == 0 })
}
