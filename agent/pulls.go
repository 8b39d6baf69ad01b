package agent

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/musterhq/muster/internal/agentapi"
)

// pulls counts the bytes of images that the host has received, over all processes of its agent.
type pulls struct {
	sum      agentapi.Pulled // as stored on the disk
	read     int64           // bytes received by this process that sum contains
	reported agentapi.Pulled // in a report that was accepted
}

func (d disk) pullsFile() string { return filepath.Join(d.dir, "pulled.json") }

// openPulls reads the stored sum, or starts a new one. A sum that cannot be read is replaced by a new one under another
// counter name: what the old one counted is reported already.
func (m *images) openPulls() (p pulls, err error) {
	if m.received == nil {
		return p, nil
	}
	err = readJSON(m.disk.pullsFile(), &p.sum)
	if err == nil && p.sum.Counter != "" && p.sum.Bytes >= 0 {
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("the count of what was pulled is damaged, and starts again", "err", err)
	}
	p.sum = agentapi.Pulled{Counter: rand.Text()}
	return p, writeJSON(m.disk.pullsFile(), p.sum)
}

// countPulls returns the pulls to report, or nil if the last accepted report contained them all. The sum is on the disk
// before it is reported, so that no process reports less than an earlier one. Bytes that cannot be written now are
// reported once they can.
func (m *images) countPulls() *agentapi.Pulled {
	if m.received == nil {
		return nil
	}
	now := m.received()
	m.mu.Lock()
	defer m.mu.Unlock()
	if now > m.pulls.read {
		sum := m.pulls.sum
		sum.Bytes += now - m.pulls.read
		if err := writeJSON(m.disk.pullsFile(), sum); err != nil {
			m.log.Warn("what was pulled could not be written down", "err", err)
		} else {
			m.pulls.sum, m.pulls.read = sum, now
		}
	}
	if m.pulls.sum == m.pulls.reported {
		return nil
	}
	sum := m.pulls.sum
	return &sum
}

// pullsReported records that the server has committed a report of pulls.
func (m *images) pullsReported(p agentapi.Pulled) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pulls.reported = p
}
