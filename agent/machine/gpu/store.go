package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// memory is what is known of a host's GPUs across restarts of the agent.
type memory struct {
	Version int                    `json:"version"`
	Seq     uint64                 `json:"seq"` // number of the last health event
	Outbox  []agentapi.HealthEvent `json:"outbox,omitempty"`
	GPUs    map[string]*record     `json:"gpus"`
	Log     logMark                `json:"kernel_log"` // read up to here
	// Places are the GPUs' places on the PCI bus, by index, when the driver listed most of them, since the operator wants
	// the power limits PlacesOf.
	Places   []string `json:"places,omitempty"`
	PlacesOf string   `json:"places_of,omitempty"`
}

// logMark is a position in the kernel's log of a boot.
type logMark struct {
	BootID string `json:"boot_id"`
	Seq    uint64 `json:"seq"`
}

// record is one GPU that this host has or had.
type record struct {
	Verdict
	GPU  agentapi.GPU `json:"gpu"`  // as last described
	Seen string       `json:"seen"` // boot id in which the driver last listed it
	// Instance is what a slice is to NVML; nil: it is a GPU. Remaking means that it was being destroyed and recreated when
	// the agent last knew.
	Instance *wire.Instance `json:"instance,omitempty"`
	Remaking bool           `json:"remaking,omitempty"`
	// Coherent: nvidia-smi cannot reset it, because it shares its memory with the processor.
	Coherent bool `json:"coherent,omitempty"`
	// Before is the use of the GPU before the present or last lease.
	Before *Use `json:"before,omitempty"`
	// AppBlamed is true if an Xid that a program can cause has counted since the last lease began.
	AppBlamed bool `json:"app_blamed,omitempty"`
	// Held is why the GPU's memory was not free after a lease had ended; "" if it was, or is again.
	Held string `json:"held,omitempty"`
	// Check is why the GPU does not compute, by its last check (package gpucheck); "" = it did, or was not checked.
	Check string `json:"check,omitempty"`
	// CheckedFor is what the last check was of: the boot and the driver's version. CheckedAt is when.
	CheckedFor string    `json:"checked_for,omitempty"`
	CheckedAt  time.Time `json:"checked_at,omitzero"`
	// Display: by the last check, a display's watchdog ends long kernels.
	Display bool `json:"display,omitempty"`
	// Ring is what it sent to the next GPU of its model.
	Ring ring `json:"ring,omitzero"`
	// Link is the PCIe link under load.
	Link loadedLink `json:"link,omitzero"`
	// Degraded is why the GPU is slower than it could be, for people; "" = it is not.
	Degraded string `json:"degraded,omitempty"`
	slow     slow
	// ResetTried is when the agent last tried to reset the GPU because its driver asks for it.
	ResetTried time.Time `json:"reset_tried,omitzero"`
	// ResetRefused is the boot in which a reset was refused or did not help; "": a reset is possible.
	ResetRefused string `json:"reset_refused,omitempty"`
	// Lifted is true while a reset has turned persistence mode off.
	Lifted bool `json:"lifted,omitempty"`
	// proving is true from a reset until the GPU has shown whether that helped: looks do not judge it meanwhile.
	proving    bool
	wantsReset bool // a reset would mend it, by the last look
	wantsIMEX  bool // its driver asks to recover the IMEX domain
	// Answers are the calls of a look that not every GPU supports and that this one has answered with AnswersOf, a version
	// of the driver.
	Answers   []string `json:"answers,omitempty"`
	AnswersOf string   `json:"answers_of,omitempty"`
	// PowerSet is the power limit that this host's agent has set, in milliwatts, 0 = none; powerWhy is why the last
	// attempt to set it failed.
	PowerSet int64 `json:"power_set,omitempty"`
	powerWhy string
}

// maxOutbox is the largest number of events kept for a server that does not accept them; the newest are kept.
const maxOutbox = 1000

// store keeps memory in one file, which is replaced atomically and synced. With dir "" it stores nothing.
type store struct{ path string }

func openStore(dir string) (store, memory, error) {
	m := memory{Version: 1, GPUs: map[string]*record{}}
	if dir == "" {
		return store{}, m, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return store{}, m, fmt.Errorf("state of the GPUs: %w", err)
	}
	s := store{filepath.Join(dir, "gpu-health.json")}
	b, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return s, m, s.save(m)
	}
	if err == nil {
		// A quarantine must not be lost by accident: a file that cannot be read is an error that a person must resolve.
		err = json.Unmarshal(b, &m)
	}
	if err == nil && m.Version != 1 {
		err = fmt.Errorf("version %d is not known", m.Version)
	}
	if err != nil {
		return store{}, m, fmt.Errorf("state of the GPUs in %s (remove it only if no GPU is quarantined): %w", s.path, err)
	}
	if m.GPUs == nil {
		m.GPUs = map[string]*record{}
	}
	return s, m, nil
}

func (s store) save(m memory) error {
	if s.path == "" {
		return nil
	}
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), ".gpu-health-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep the state of the GPUs: %w", err), os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
