// Package billproof is the proof of a bill: the file that a renter or operator downloads, and the way for anybody to
// verify it without the platform.
//
// A proof contains everything that a bill depends on: the segments as the host signed them, the host's public keys, the
// time anchors, the billing windows, the frozen prices and terms, the ledger entries, and their place in the ledger's
// chain. Verify computes the bill from the signed facts and compares it with the entries. It shares no code with the
// metering that it checks, and accesses nothing but the file.
//
// The hashes in chain.go never change: a change would invalidate every proof ever given.
package billproof

import (
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/money"
)

// Version is the newest version of the file. Files without segments that were signed in batches have version 1, and
// those without facts about their segments have at most version 2.
const Version = 3

// File is a proof, encoded as JSON.
type File struct {
	Version  int       `json:"version"`
	Cluster  string    `json:"cluster"`
	MadeAt   time.Time `json:"made_at"`
	Currency string    `json:"currency"`
	Leases   []Lease   `json:"leases"`
	Windows  []Window  `json:"windows"`
	Anchors  []Anchor  `json:"anchors"`
	Entries  []Entry   `json:"entries"` // usage and its corrections
	Batches  []Batch   `json:"batches"` // batches of the chain, from the first that contains an entry to the newest
}

// Lease is one node's use of its host, with the terms frozen when it was rented.
type Lease struct {
	ID       string     `json:"id"`
	Host     string     `json:"host"`
	HostKeys [][]byte   `json:"host_keys"` // Ed25519 keys, current and former
	Rank     int        `json:"rank"`
	GPUs     int        `json:"gpus"`
	FromMS   int64      `json:"from_ms"`            // when it began, unix milliseconds
	UntilMS  int64      `json:"until_ms,omitempty"` // when it ended; 0: it has not
	SharePPM int64      `json:"host_share_ppm"`
	Prices   []Price    `json:"prices"` // ordered by from_ms; the first has 0
	Segments []Segment  `json:"segments"`
	Billed   money.Nano `json:"billed"`    // what the platform states that it charged
	HostPart money.Nano `json:"host_part"` // the platform's fee in it
	BilledMS int64      `json:"billed_ms"` // the time that it is for
	Settled  bool       `json:"settled"`   // everything proven is charged, and nothing will be added
}

// Segment is a segment as its host signed it, alone or in a batch. If InBatch is set, Signature is the batch's.
type Segment struct {
	agentapi.Segment
	Batch *agentapi.InBatch `json:"batch,omitempty"`
}

// SignedBy reports whether the key has signed the segment, and the segment has a valid shape.
func (s *Segment) SignedBy(host string, key []byte) bool {
	if s.Batch == nil {
		return s.Verify(host, key) == nil
	}
	return s.VerifyInBatch(host, key, *s.Batch) == nil
}

// Price is what a lease costs per hour from FromMS on.
type Price struct {
	FromMS int64       `json:"from_ms"`
	Rate   money.Micro `json:"rate"`
}

// Window is one interval in which the cluster was up, unix ms; UntilMS is confirmed_until while it is open.
type Window struct {
	FromMS  int64 `json:"from_ms"`
	UntilMS int64 `json:"until_ms"`
}

// Anchor relates a boot of a host to the platform's clock.
type Anchor struct {
	Host string `json:"host"`
	agentapi.Anchor
}

// Entry is one ledger entry and its place in the chain.
type Entry struct {
	Tx
	Batch    int64    `json:"batch,omitempty"` // 0: not in the chain yet
	Position int      `json:"position"`
	Path     [][]byte `json:"path,omitempty"` // sibling hashes, from the entry up to its batch's root
}
