package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/internal/agentapi"
)

// record is what the host stores of a run in its lease folder: facts that the containers do not show.
type record struct {
	Spec        agentapi.LeaseSpec `json:"spec"`              // without environment and credentials
	BootID      string             `json:"boot_id,omitempty"` // boot in which the guest was started
	RunUntilMS  int64              `json:"run_until_ms,omitempty"`
	ImageID     string             `json:"image_id,omitempty"`
	ImageDigest string             `json:"image_digest,omitempty"`
	ImagePin    string             `json:"image_pin,omitempty"` // image that the name resolved to
	GuestID     string             `json:"guest_id,omitempty"`
	GuestIP     netip.Addr         `json:"guest_ip,omitzero"` // on the bridge
	// processors that the workload runs on; empty: any; nil: not chosen yet
	Cores         *cores.Set             `json:"cores,omitempty"`
	WorkID        string                 `json:"work_id,omitempty"`
	Scratch       string                 `json:"scratch,omitempty"`       // where its scratch is mounted, or is about to be
	Volumes       map[string]string      `json:"volumes,omitempty"`       // the same of its volumes, by their ids
	Flushed       bool                   `json:"flushed,omitempty"`       // nothing more of them will be committed
	NotUploaded   []agentapi.NotUploaded `json:"not_uploaded,omitempty"`  // what of its buckets is lost
	FlushBoot     int64                  `json:"flush_boot_ms,omitempty"` // since when the run waits for that
	WGKey         string                 `json:"wg_key,omitempty"`
	Endpoints     []string               `json:"endpoints,omitempty"`
	Preflight     *agentapi.Preflight    `json:"preflight,omitempty"`
	Deaths        int                    `json:"deaths,omitempty"` // deaths while it was starting
	Died          *outcome               `json:"died,omitempty"`   // cause of the last death
	BarrierOpened bool                   `json:"released,omitempty"`
	BarrierBoot   int64                  `json:"release_boot_ms,omitempty"` // the barrier was not released before
	Started       bool                   `json:"started,omitempty"`
	StartBoot     int64                  `json:"start_boot_ms,omitempty"` // on the clock of the run's boot
	Outcome       *outcome               `json:"outcome,omitempty"`
	// Overdrawn is why the command must be killed: it holds more of the host's memory than it was rented with, or of a
	// shared file system than its organisation may have.
	Overdrawn string `json:"overdrawn,omitempty"`
	LogSaved  bool   `json:"log_saved,omitempty"` // saving was tried, whether or not there was a log
	LogKept   bool   `json:"log_kept,omitempty"`  // the log is in the folder
	Down      bool   `json:"down,omitempty"`      // containers and overlay are removed
	GPUsFree  bool   `json:"gpus_free,omitempty"` // so is the scratch, and the GPUs may be another lease's
	Gone      bool   `json:"gone,omitempty"`

	Traffic     agentapi.Traffic `json:"traffic,omitzero"`      // so far
	TrafficRead agentapi.Traffic `json:"traffic_read,omitzero"` // the firewall's counters at that moment
	MountsRead  movedRead        `json:"mounts_read,omitzero"`  // those of the run's mounts
	VolumesRead movedRead        `json:"volumes_read,omitzero"` // those of the process for volumes
}

const (
	recordFile = "lease.json"
	logFile    = "log.jsonl"
)

// startsAgain reports whether the run has died while it was starting and has not reported a new address to its peers
// since.
func (r record) startsAgain() bool { return r.Died != nil && r.WGKey == "" && !r.Started }

// withoutSecrets returns the part of a specification that may be on the disk.
func withoutSecrets(s agentapi.LeaseSpec) agentapi.LeaseSpec {
	s.Env, s.RegistryAuth, s.Network.RelayToken = nil, nil, ""
	s.Mounts = slices.Clone(s.Mounts)
	for i := range s.Mounts {
		s.Mounts[i].Key = nil
	}
	s.Lazy = slices.Clone(s.Lazy)
	for i := range s.Lazy {
		s.Lazy[i].Key = nil
	}
	s.Buckets = slices.Clone(s.Buckets)
	for i := range s.Buckets {
		s.Buckets[i].Credentials = agentapi.BucketCredentials{}
	}
	return s
}

// disk is the agent's folder of leases and its memory of ended ones.
type disk struct{ dir string }

func (d disk) leases() string { return filepath.Join(d.dir, "leases") }
func (d disk) ended() string  { return filepath.Join(d.dir, "ended") }

// layout returns the layout of a run's folder.
func (d disk) layout(ref agentapi.LeaseRef) leasefiles.Layout {
	return leasefiles.At(filepath.Join(d.leases(), fmt.Sprintf("%s-e%d", ref.Lease, ref.Epoch)))
}

func (d disk) prepare() error {
	return errors.Join(os.MkdirAll(d.leases(), 0o700), os.MkdirAll(d.ended(), 0o700))
}

// refs returns the runs that have a folder.
func (d disk) refs() ([]agentapi.LeaseRef, error) {
	entries, err := os.ReadDir(d.leases())
	if err != nil {
		return nil, err
	}
	var out []agentapi.LeaseRef
	for _, e := range entries {
		if i := strings.LastIndex(e.Name(), "-e"); i > 0 {
			if epoch, err := strconv.Atoi(e.Name()[i+2:]); err == nil {
				out = append(out, agentapi.LeaseRef{Lease: e.Name()[:i], Epoch: epoch})
			}
		}
	}
	return out, nil
}

// load reads a run's record. A folder without a record is a run that had hardly begun.
func (d disk) load(ref agentapi.LeaseRef) (record, error) {
	var r record
	err := readJSON(filepath.Join(d.layout(ref).Dir, recordFile), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return record{Spec: agentapi.LeaseSpec{LeaseRef: ref}}, nil
	}
	return r, err
}

func (d disk) save(ref agentapi.LeaseRef, r record) error {
	dir := d.layout(ref).Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, recordFile), r)
}

// wipe removes a run's files except its record and its kept log.
func (d disk) wipe(ref agentapi.LeaseRef) error {
	dir := d.layout(ref).Dir
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != recordFile && e.Name() != logFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// dropLog removes a run's kept log.
func (d disk) dropLog(ref agentapi.LeaseRef, r record) error {
	if err := os.Remove(filepath.Join(d.layout(ref).Dir, logFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.save(ref, r)
}

func (d disk) remove(ref agentapi.LeaseRef) error { return os.RemoveAll(d.layout(ref).Dir) }

// tombstone records that a lease's epochs up to one have ended here: they never run again, even if a server that was
// restored from a backup, or is behind, wants them.
type tombstone struct {
	Epoch  int                  `json:"epoch"`
	Status agentapi.LeaseStatus `json:"status"`
}

// bury writes a tombstone. An earlier epoch does not replace a later one.
func (d disk) bury(s agentapi.LeaseStatus) error {
	if old, ok, err := d.tombstone(s.Lease); err != nil || (ok && old.Epoch >= s.Epoch) {
		return err
	}
	return writeJSON(filepath.Join(d.ended(), s.Lease+".json"), tombstone{s.Epoch, s})
}

func (d disk) tombstone(lease string) (t tombstone, ok bool, err error) {
	err = readJSON(filepath.Join(d.ended(), filepath.Base(lease)+".json"), &t)
	if errors.Is(err, fs.ErrNotExist) {
		return t, false, nil
	}
	return t, err == nil, err
}

// seen is the highest desired state that this host has accepted.
type seen struct {
	ControlEpoch int64 `json:"control_epoch"`
	Revision     int64 `json:"revision"`
}

func (d disk) loadSeen() (s seen, err error) {
	err = readJSON(filepath.Join(d.dir, "seen.json"), &s)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

func (d disk) saveSeen(s seen) error { return writeJSON(filepath.Join(d.dir, "seen.json"), s) }

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file atomically and durably.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
