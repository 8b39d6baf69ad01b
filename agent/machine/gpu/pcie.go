package gpu

import (
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// loadedLink is the fastest that a GPU's PCIe link was under load since the host booted. What the driver reports as the
// most that GPU and slot can do is often more than a riser or the firmware allows, and an idle GPU makes its link
// slower, so only the load shows what a renter gets.
type loadedLink struct {
	Boot  string `json:"boot,omitempty"`
	Looks int    `json:"looks,omitempty"` // under load, at most linkLooks
	Gen   int    `json:"gen,omitempty"`
	Width int    `json:"width,omitempty"`
}

// linkLooks is the number of looks under load that a measurement needs: a link needs a moment to become fast.
const linkLooks = 3

// linkEvery is the time between two looks at the links of GPUs that are being checked.
const linkEvery = 200 * time.Millisecond

// see adds a look at the GPU. changed reports whether measured now returns something else.
func (l *loadedLink) see(s wire.Sample, boot string) (changed bool) {
	if s.Util == nil || *s.Util < busy || s.PCIeGen == nil || s.PCIeWidth == nil {
		return false
	}
	if l.Boot != boot {
		*l = loadedLink{Boot: boot}
	}
	before := *l
	l.Looks = min(l.Looks+1, linkLooks)
	l.Gen, l.Width = max(l.Gen, *s.PCIeGen), max(l.Width, *s.PCIeWidth)
	return l.Looks == linkLooks && *l != before
}

// measured returns the generation and the lanes of the link under load; 0 if they were not measured since the boot.
func (l *loadedLink) measured(boot string) (gen, width int) {
	if l.Boot != boot || l.Looks < linkLooks {
		return 0, 0
	}
	return l.Gen, l.Width
}
