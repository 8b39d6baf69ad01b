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

// trial is a version that is to prove itself.
type trial struct {
	Version  string              `json:"version"`
	Try      int                 `json:"try"`
	From     string              `json:"from"` // the version that runs when it does not
	Good     []agentapi.LeaseRef `json:"good"` // leases that were well when it was handed over
	Bad      []string            `json:"bad"`  // what the doctor found bad before
	Attempts int                 `json:"attempts"`
	Trouble  string              `json:"trouble,omitempty"`   // how the last attempt ended
	TimedOut bool                `json:"timed_out,omitempty"` // it ran, and had its time: it is not started again
}

// memory is what outlives every process of an update.
type memory struct {
	Trial *trial                `json:"trial,omitempty"`
	Last  agentapi.UpdateStatus `json:"last"` // of the last order that came to an end
	At    time.Time             `json:"at"`
	// Previous is the version before the current one: it is kept, to be gone back to by hand.
	Previous string `json:"previous,omitempty"`
}

// proof says that the version on trial has proven itself. It is a file of its own: the version on trial writes it, and
// nothing else of the memory.
type proof struct {
	Version string `json:"version"`
	Try     int    `json:"try"`
}

// store is the folder of the memory.
type store struct{ dir string }

// storeIn is the store in an agent's state directory.
func storeIn(state string) store { return store{filepath.Join(state, "update")} }

func (s store) load() (m memory, err error) {
	err = readJSON(filepath.Join(s.dir, "update.json"), &m)
	return m, err
}

func (s store) save(m memory) error { return s.write("update.json", m) }

func (s store) prove(p proof) error { return s.write("proven.json", p) }

// proven reports whether the trial has proven itself. An earlier trial's proof is none.
func (s store) proven(t *trial) (bool, error) {
	var p proof
	err := readJSON(filepath.Join(s.dir, "proven.json"), &p)
	return t != nil && p == proof{t.Version, t.Try}, err
}

// lacking is what the trial said last that it lacks.
type lacking struct {
	proof
	Why string `json:"why"`
}

// lacks notes what the trial lacks yet: the launcher tells it when time is up.
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

// write replaces a file, whole and durable or not at all.
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
