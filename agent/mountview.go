package agent

import (
	"time"

	"github.com/musterhq/muster/internal/fault"
)

// mountView is how the buckets, or the lazy volumes, of a run are mounted. Its zero value is that of a run without any.
type mountView struct {
	waiting bool   // one is not mounted
	refused string // why one cannot be mounted, by the word of its store or the control plane; "" = none is refused
	problem string // why one is not mounted yet
	byHost  bool   // this host causes the problem
}

// add adds the state of one mount; what names it.
func (m *mountView) add(what string, ready bool, refused, problem string, byHost bool) {
	m.waiting = m.waiting || !ready
	if refused != "" && m.refused == "" {
		m.refused = what + ": " + refused
	}
	if ready || m.problem != "" {
		return
	}
	m.problem, m.byHost = what+" is not mounted yet", byHost
	if problem != "" {
		m.problem += ": " + problem
	}
}

// wait waits for what is not mounted yet.
func (m *mountView) wait() (time.Duration, error) {
	if m.problem != "" {
		return 0, notMounted(m.problem, m.byHost)
	}
	return watchEvery / 8, nil
}

// hostFault is an error for which neither the renter nor a store is to blame, but this host.
type hostFault struct{ error }

func (h hostFault) Unwrap() error { return h.error }

// notMounted returns the error of something that is not mounted yet.
func notMounted(problem string, byHost bool) error {
	err := fault.New(fault.Unavailable, "%s", clipped(problem))
	if byHost {
		return hostFault{err}
	}
	return err
}
