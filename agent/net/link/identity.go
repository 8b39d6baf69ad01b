// Package link connects a host to the control plane: its identity, its enrolment and its connection.
//
// Invariants: the two private keys are generated on the host, are stored in files that only their owner can read, and
// never leave the host; the enrolment token is never an argument of a process; connections are outbound, encrypted and
// verified against what the host learned when it enrolled; a lost connection is retried without limit, and losing it
// stops nothing.
package link

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Identity identifies this host: what the control plane assigned when the host enrolled, and its keys.
type Identity struct {
	Host   id.Host
	Origin string // where it enrolled: scheme://host[:port]
	// Ephemeral: it enrolled as a machine that may vanish, or come back with other GPUs.
	Ephemeral bool
	agentapi.EnrollReply

	link   nkeys.KeyPair
	attest ed25519.PrivateKey
}

// NewIdentity returns the identity of a host whose keys are not in files: of a simulated one.
func NewIdentity(host id.Host, reply agentapi.EnrollReply, link nkeys.KeyPair, attest ed25519.PrivateKey) *Identity {
	return &Identity{Host: host, EnrollReply: reply, link: link, attest: attest}
}

// AttestKey signs usage segments.
func (i *Identity) AttestKey() ed25519.PrivateKey { return i.attest }

// Sign signs with the link key.
func (i *Identity) Sign(b []byte) ([]byte, error) { return i.link.Sign(b) }

// The files of an identity, all 0600.
const (
	identityFile = "identity.json"
	linkKeyFile  = "link.key"   // nkey seed
	attestFile   = "attest.key" // Ed25519 seed, raw
)

type identityJSON struct {
	Origin    string `json:"origin"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
	agentapi.EnrollReply
}

// Load reads the identity in a state directory. It returns a NotFound fault if the host is not enrolled.
func Load(dir string) (*Identity, error) {
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "this host is not enrolled: run muster-agent enroll first (state directory %s)",
			dir)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "read the host's identity")
	}
	var stored identityJSON
	if err := json.Unmarshal(b, &stored); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the host's identity in %s is damaged", dir)
	}
	host, err := id.Parse[id.Host](stored.Host)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the host's identity in %s is damaged", dir)
	}
	i := &Identity{Host: host, Origin: stored.Origin, Ephemeral: stored.Ephemeral, EnrollReply: stored.EnrollReply}
	if i.link, i.attest, err = loadKeys(dir); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "read the host's keys in %s", dir)
	}
	return i, nil
}

func (i *Identity) save(dir string) error {
	b, err := json.MarshalIndent(identityJSON{i.Origin, i.Ephemeral, i.EnrollReply}, "", "  ")
	if err != nil {
		return err
	}
	return writeSecret(filepath.Join(dir, identityFile), append(b, '\n'))
}

func loadKeys(dir string) (nkeys.KeyPair, ed25519.PrivateKey, error) {
	seed, err := os.ReadFile(filepath.Join(dir, linkKeyFile))
	if err != nil {
		return nil, nil, err
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", linkKeyFile, err)
	}
	attest, err := os.ReadFile(filepath.Join(dir, attestFile))
	if err != nil {
		return nil, nil, err
	}
	if len(attest) != ed25519.SeedSize {
		return nil, nil, fmt.Errorf("%s: wrong length", attestFile)
	}
	return pair, ed25519.NewKeyFromSeed(attest), nil
}

// makeKeys returns the keys in dir. It generates them unless an enrolment that did not finish left some.
func makeKeys(dir string) (nkeys.KeyPair, ed25519.PrivateKey, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	pair, attest, err := loadKeys(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return pair, attest, err
	}
	if pair, err = nkeys.CreateUser(); err != nil {
		return nil, nil, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, nil, err
	}
	if _, attest, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return nil, nil, err
	}
	err = errors.Join(writeSecret(filepath.Join(dir, attestFile), attest.Seed()),
		writeSecret(filepath.Join(dir, linkKeyFile), seed))
	return pair, attest, err
}

// writeSecret atomically writes a file that only its owner can read.
func writeSecret(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
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
