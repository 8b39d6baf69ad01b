// Package billproof is the proof of a bill: what a renter or host downloads, and how anybody checks it without us.
//
// A proof holds everything a bill depends on: the segments as the host signed them, its public keys, the time anchors,
// the billing windows, the frozen prices and terms, the entries in the books, and their place in the chain of the
// ledger. Verify recomputes the bill from the first and compares it with the last. It shares no code with the
// metering it judges and asks nobody.
//
// What is hashed here is the same for the same facts for ever (chain.go): a change would break every proof ever given.
package billproof

import (
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/money"
)

// Version is the newest of the file. Files without segments that were signed in batches are of version 1, those without
// facts beside their segments of version 2 at most.
const Version = 3

// File is a proof, as JSON.
type File struct {
	Version  int       `json:"version"`
	Cluster  string    `json:"cluster"`
	MadeAt   time.Time `json:"made_at"`
	Currency string    `json:"currency"`
	Leases   []Lease   `json:"leases"`
	Windows  []Window  `json:"windows"`
	Anchors  []Anchor  `json:"anchors"`
	Entries  []Entry   `json:"entries"` // usage and its corrections
	Batches  []Batch   `json:"batches"` // of the chain, from the first that holds an entry to the newest
}

// Lease is one node's use of its host, with the terms frozen when it was rented.
type Lease struct {
	ID       string     `json:"id"`
	Host     string     `json:"host"`
	HostKeys [][]byte   `json:"host_keys"` // Ed25519, those it signs or signed with
	Rank     int        `json:"rank"`
	GPUs     int        `json:"gpus"`
	FromMS   int64      `json:"from_ms"`            // its life, unix ms
	UntilMS  int64      `json:"until_ms,omitempty"` // 0: it lives
	SharePPM int64      `json:"host_share_ppm"`
	Prices   []Price    `json:"prices"` // by from_ms, the first from 0
	Segments []Segment  `json:"segments"`
	Billed   money.Nano `json:"billed"`    // what the platform says it charged
	HostPart money.Nano `json:"host_part"` // of that
	BilledMS int64      `json:"billed_ms"` // the time behind it
	Settled  bool       `json:"settled"`   // all that is proven is charged, and nothing will be added
}

// Segment is one as its host signed it: alone, or in a batch, and then Signature is the batch's.
type Segment struct {
	agentapi.Segment
	Batch *agentapi.InBatch `json:"batch,omitempty"`
}

// SignedBy reports whether the segment was signed by the key, and has the shape of a segment.
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

// Anchor ties a boot of a host to the platform's clock.
type Anchor struct {
	Host string `json:"host"`
	agentapi.Anchor
}

// Entry is one entry of the books and where the chain holds it.
type Entry struct {
	Tx
	Batch    int64    `json:"batch,omitempty"` // 0: not in the chain yet
	Position int      `json:"position"`
	Path     [][]byte `json:"path,omitempty"` // sibling hashes, from the entry up to its batch's root
}
