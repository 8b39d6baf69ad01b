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
func (a *Agent) openPulls() (p pulls, err error) {
	if a.cfg.Received == nil {
		return p, nil
	}
	err = readJSON(a.disk.pullsFile(), &p.sum)
	if err == nil && p.sum.Counter != "" && p.sum.Bytes >= 0 {
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("the count of what was pulled is damaged, and starts again", "err", err)
	}
	p.sum = agentapi.Pulled{Counter: rand.Text()}
	return p, writeJSON(a.disk.pullsFile(), p.sum)
}

// countPulls returns the pulls to report, or nil if the last accepted report contained them all. The sum is on the disk
// before it is reported, so that no process reports less than an earlier one. Bytes that cannot be written now are
// reported once they can.
func (a *Agent) countPulls() *agentapi.Pulled {
	if a.cfg.Received == nil {
		return nil
	}
	now := a.cfg.Received()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now > a.pulls.read {
		sum := a.pulls.sum
		sum.Bytes += now - a.pulls.read
		if err := writeJSON(a.disk.pullsFile(), sum); err != nil {
			a.log.Warn("what was pulled could not be written down", "err", err)
		} else {
			a.pulls.sum, a.pulls.read = sum, now
		}
	}
	if a.pulls.sum == a.pulls.reported {
		return nil
	}
	sum := a.pulls.sum
	return &sum
}
