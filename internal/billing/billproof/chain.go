package billproof

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// Tx is a ledger entry as it is hashed.
type Tx struct {
	ID        string     `json:"id"` // ltx_…
	Kind      string     `json:"kind"`
	Key       string     `json:"key"`
	Memo      string     `json:"memo"`
	Ref       string     `json:"ref"`
	Corrects  string     `json:"corrects,omitempty"`
	At        time.Time  `json:"at"` // with microsecond precision
	Transfers []Transfer `json:"transfers"`
}

// Transfer is one transfer of an entry. An owner is a UUID: an organisation, or the cluster of a hold; zeros mean the
// platform itself.
type Transfer struct {
	Debit       string    `json:"debit"` // account kind
	DebitOwner  uuid.UUID `json:"debit_owner"`
	Credit      string    `json:"credit"`
	CreditOwner uuid.UUID `json:"credit_owner"`
	Currency    string    `json:"currency"`
	Amount      int64     `json:"amount"` // nano-units
}

// Hash returns the hash of the whole entry: a leaf of its batch's tree (merkle).
func (t Tx) Hash() [32]byte {
	b := []byte("\x00muster-entry-v1\x00")
	text := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	num := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) }
	for _, s := range []string{t.ID, t.Kind, t.Key, t.Memo, t.Ref, t.Corrects} {
		text(s)
	}
	num(t.At.UnixMicro())
	num(int64(len(t.Transfers)))
	for _, f := range t.Transfers {
		text(f.Debit)
		b = append(b, f.DebitOwner[:]...)
		text(f.Credit)
		b = append(b, f.CreditOwner[:]...)
		text(f.Currency)
		num(f.Amount)
	}
	return sha256.Sum256(b)
}

// Batch is a link of the chain.
type Batch struct {
	N      int64     `json:"n"` // from 1
	MadeAt time.Time `json:"made_at"`
	Txs    int       `json:"txs"`
	Root   []byte    `json:"root"`
	Prev   []byte    `json:"prev"` // hash of the previous batch; zeros for the first
	Hash   []byte    `json:"hash"`
}

// Sum returns what Hash must be.
func (b Batch) Sum() []byte {
	h := []byte("\x02muster-batch-v1\x00")
	h = binary.BigEndian.AppendUint64(h, uint64(b.N))
	h = binary.BigEndian.AppendUint64(h, uint64(b.MadeAt.UnixMicro()))
	h = binary.BigEndian.AppendUint64(h, uint64(b.Txs))
	h = append(append(h, b.Root...), b.Prev...)
	sum := sha256.Sum256(h)
	return sum[:]
}
