package agent

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/musterhq/muster/internal/agentapi"
)

// pulls is what the host has received of images, over all processes of its agent.
type pulls struct {
	sum      agentapi.Pulled // as it is on the disk
	read     int64           // how much of what this process has received is in it
	reported agentapi.Pulled // in a report that was taken
}

func (d disk) pullsFile() string { return filepath.Join(d.dir, "pulled.json") }

// openPulls reads the sum, or begins one. One that cannot be read is begun anew, under another name: what it was is
// told.
func (a *Agent) openPulls() (p pulls, err error) {
	if a.cfg.Received == nil {
		return p, nil
	}
	err = readJSON(a.disk.pullsFile(), &p.sum)
	if err == nil && p.sum.Counter != "" && p.sum.Bytes >= 0 {
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("the count of what was pulled is damaged, and begins anew", "err", err)
	}
	p.sum = agentapi.Pulled{Counter: rand.Text()}
	return p, writeJSON(a.disk.pullsFile(), p.sum)
}

// countPulls is what is to be told of pulls: what no report that was taken has said. It is on the disk before it is
// told, so that no process tells less than one before it. What cannot be written now is told when it can.
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
