package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// trial is a version on trial.
type trial struct {
	Version  string              `json:"version"`
	Try      int                 `json:"try"`
	From     string              `json:"from"` // the version to return to if the trial fails
	Good     []agentapi.LeaseRef `json:"good"` // leases that were healthy at the handover
	Bad      []string            `json:"bad"`  // what the doctor found bad before
	Attempts int                 `json:"attempts"`
	Trouble  string              `json:"trouble,omitempty"`   // how the last attempt ended
	TimedOut bool                `json:"timed_out,omitempty"` // the last attempt ran out of time: do not start it again
}

// memory is the state of updates that outlives every process.
type memory struct {
	Trial *trial                `json:"trial,omitempty"`
	Last  agentapi.UpdateStatus `json:"last"` // status of the last order that was completed
	At    time.Time             `json:"at"`
	// Previous is the version before the current one, which is kept so that an operator can return to it by hand.
	Previous string `json:"previous,omitempty"`
}

// proof records that the version on trial has proven itself. It is a file of its own, because the version on trial
// writes it and must not write the rest of the memory.
type proof struct {
	Version string `json:"version"`
	Try     int    `json:"try"`
}

// store is the folder of the memory.
type store struct{ dir string }

// storeIn returns the store in an agent's state directory.
func storeIn(state string) store { return store{filepath.Join(state, "update")} }

func (s store) load() (m memory, err error) {
	err = readJSON(filepath.Join(s.dir, "update.json"), &m)
	return m, err
}

func (s store) save(m memory) error { return s.write("update.json", m) }

func (s store) prove(p proof) error { return s.write("proven.json", p) }

// proven reports whether the trial has proven itself. The proof of an earlier trial does not count.
func (s store) proven(t *trial) (bool, error) {
	var p proof
	err := readJSON(filepath.Join(s.dir, "proven.json"), &p)
	return t != nil && p == proof{t.Version, t.Try}, err
}

// lacking returns what the trial last reported as lacking.
type lacking struct {
	proof
	Why string `json:"why"`
}

// lacks records what the trial still lacks; the launcher reports it when time runs out.
func (s store) lacks(t *trial, why string) error {
	if s.lacking(t) == why {
		return nil
	}
	return s.write("lacking.json", lacking{proof{t.Version, t.Try}, why})
}

func (s store) lacking(t *trial) string {
	var l lacking
	if readJSON(filepath.Join(s.dir, "lacking.json"), &l) != nil || l.proof != (proof{t.Version, t.Try}) {
		return ""
	}
	return l.Why
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// write replaces a file durably and atomically.
func (s store) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(s.dir)
}
