package evidence

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// Tx is an entry of the books as it is hashed.
type Tx struct {
	ID        string     `json:"id"` // ltx_…
	Kind      string     `json:"kind"`
	Key       string     `json:"key"`
	Memo      string     `json:"memo"`
	Ref       string     `json:"ref"`
	Corrects  string     `json:"corrects,omitempty"`
	At        time.Time  `json:"at"` // to the microsecond
	Transfers []Transfer `json:"transfers"`
}

// Transfer is one of its transfers. An owner is a UUID: an org, or the cluster of a hold; zeros: the platform's own.
type Transfer struct {
	Debit       string    `json:"debit"` // account kind
	DebitOwner  uuid.UUID `json:"debit_owner"`
	Credit      string    `json:"credit"`
	CreditOwner uuid.UUID `json:"credit_owner"`
	Currency    string    `json:"currency"`
	Amount      int64     `json:"amount"` // nano-units
}

// Hash is of all that the entry says: a leaf of its batch's tree.
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
	Prev   []byte    `json:"prev"` // hash of the one before; zeros for the first
	Hash   []byte    `json:"hash"`
}

// Sum is what Hash must be.
func (b Batch) Sum() []byte {
	h := []byte("\x02muster-batch-v1\x00")
	h = binary.BigEndian.AppendUint64(h, uint64(b.N))
	h = binary.BigEndian.AppendUint64(h, uint64(b.MadeAt.UnixMicro()))
	h = binary.BigEndian.AppendUint64(h, uint64(b.Txs))
	h = append(append(h, b.Root...), b.Prev...)
	sum := sha256.Sum256(h)
	return sum[:]
}

// node is the parent of two hashes. A leaf's preimage begins with 0, a node's with 1, so neither passes for the other.
func node(left, right [32]byte) [32]byte {
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

// up is the level above: pairs are joined, an odd one at the end rises as it is.
func up(level [][32]byte) [][32]byte {
	var out [][32]byte
	for i := 0; i < len(level); i += 2 {
		if i+1 < len(level) {
			out = append(out, node(level[i], level[i+1]))
		} else {
			out = append(out, level[i])
		}
	}
	return out
}

// Root is the Merkle root over leaves, at least one.
func Root(leaves [][32]byte) []byte {
	for len(leaves) > 1 {
		leaves = up(leaves)
	}
	return leaves[0][:]
}

// Path is the hashes beside the way from leaf i to the root.
func Path(leaves [][32]byte, i int) (path [][]byte) {
	for ; len(leaves) > 1; leaves, i = up(leaves), i/2 {
		if j := i ^ 1; j < len(leaves) {
			path = append(path, leaves[j][:])
		}
	}
	return path
}

// rootOf is the root that leaf i of n has by its path; nil when the path is not of the right length.
func rootOf(leaf [32]byte, i, n int, path [][]byte) []byte {
	if i < 0 || i >= n {
		return nil
	}
	for ; n > 1; i, n = i/2, (n+1)/2 {
		if i^1 >= n {
			continue
		}
		if len(path) == 0 || len(path[0]) != 32 {
			return nil
		}
		side := [32]byte(path[0])
		path = path[1:]
		if i%2 == 0 {
			leaf = node(leaf, side)
		} else {
			leaf = node(side, leaf)
		}
	}
	if len(path) > 0 {
		return nil
	}
	return leaf[:]
}
