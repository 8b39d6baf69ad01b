package overlay

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/internal/agentapi"
)

// These are the files in a lease's overlay folder.
const (
	keyFile     = "key"          // base64 private key, 0600
	configFile  = "overlay.json" // what the agent requested
	stateFile   = "state.json"   // what the process stores for its successor
	lockFile    = "lock"
	trafficFile = "traffic.json" // traffic counters
	socketFile  = "control.sock"
	logFile     = "log"
)

func folder(leaseDir string) string { return leasefiles.At(leaseDir).Overlay }

// settings is the content of configFile.
type settings struct {
	Ref       agentapi.LeaseRef `json:"ref"`
	NetNS     nsID              `json:"netns"`
	Address   string            `json:"address"`
	CIDR      string            `json:"cidr"`
	MTU       int               `json:"mtu"`
	Port      int               `json:"port"`
	Userspace bool              `json:"userspace"`
	Rails     string            `json:"rails,omitempty"` // preferred interfaces, separated by commas
}

// nsID identifies a network namespace: a restarted guest has a new one under the same path.
type nsID struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
}

// state is the content of stateFile. Only a successor of the same epoch resumes the peers.
type state struct {
	Ref   agentapi.LeaseRef `json:"ref"`
	Port  int               `json:"port"`
	Peers []agentapi.Peer   `json:"peers"`

	Relays relays `json:"relays"`
	// Moved has, by peer's key, the addresses with which the overlay moved to the kernel's WireGuard; nil: it has not.
	Moved map[string]string `json:"moved,omitempty"`
}

// loadKey reads the folder's private key, and creates it on first use.
func loadKey(dir string) (wgtypes.Key, error) {
	path := filepath.Join(dir, keyFile)
	b, err := os.ReadFile(path)
	if err == nil {
		key, err := wgtypes.ParseKey(string(b))
		if err != nil {
			return wgtypes.Key{}, fmt.Errorf("the overlay's key file is damaged: %w", err)
		}
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return wgtypes.Key{}, err
	}
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return wgtypes.Key{}, err
	}
	return key, writeFile(path, []byte(base64.StdEncoding.EncodeToString(key[:])))
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFile(path, b)
}

// writeFile replaces a file by rename: readers, also after a kill in between, see either the old content or the new.
func writeFile(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
