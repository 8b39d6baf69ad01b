package account

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// SSHKeys keeps the public keys of orgs.
type SSHKeys struct{ *core }

// MaxSSHKeys is how many keys an org may have.
const MaxSSHKeys = 100

// SSHKey is a public key that opens shells on the org's clusters.
type SSHKey struct {
	ID          id.SSHKey
	User        id.User // who added it
	Name        string
	PublicKey   string // authorized_keys form, without the comment
	Fingerprint string // SHA256:…
	CreatedAt   time.Time
}

// Add stores a public key in one of the forms that ParsePublicKey reads. name "" takes the key's comment.
// Faults: Invalid, Conflict (the org has the key), QuotaExceeded.
func (ks *SSHKeys) Add(ctx context.Context, p Principal, name, line string, once idem.Request) (SSHKey,
	idem.Outcome, error) {
	return idem.Once(ctx, ks.db, once, func(ctx context.Context, tx *db.Tx) (SSHKey, error) {
		return addSSHKey(ctx, tx, p, name, line)
	})
}

func addSSHKey(ctx context.Context, tx *db.Tx, p Principal, name, line string) (SSHKey, error) {
	key, comment, err := ParsePublicKey(line)
	if err != nil {
		return SSHKey{}, err
	}
	k := SSHKey{
		ID: id.New[id.SSHKey](), User: p.User, Name: strings.TrimSpace(name),
		PublicKey:   strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))),
		Fingerprint: ssh.FingerprintSHA256(key),
	}
	if k.Name == "" {
		k.Name = nameOf(comment)
	}
	if k.Name == "" {
		k.Name = key.Type()
	}
	var bad fault.Fields
	checkName(&bad, "name", k.Name)
	if err := bad.Err(); err != nil {
		return SSHKey{}, err
	}
	count, err := tx.Q.CountSSHKeys(ctx, p.Org)
	if err != nil {
		return SSHKey{}, fmt.Errorf("count SSH keys: %w", err)
	}
	if count >= MaxSSHKeys {
		return SSHKey{}, fault.New(fault.QuotaExceeded, "your organisation has %d SSH keys, the most there may be: delete "+
			"some first", MaxSSHKeys)
	}
	k.CreatedAt, err = tx.Q.InsertSSHKey(ctx, dbq.InsertSSHKeyParams{
		ID: k.ID, OrgID: p.Org, UserID: p.User, Name: k.Name, PublicKey: k.PublicKey, Fingerprint: k.Fingerprint,
	})
	if db.IsUnique(err, "") {
		return SSHKey{}, fault.New(fault.Conflict, "your organisation has this key already (%s)", k.Fingerprint)
	}
	if err != nil {
		return SSHKey{}, fmt.Errorf("insert SSH key: %w", err)
	}
	return k, audit.Record(ctx, tx, p.Event("ssh_key.add", k.ID.String(), map[string]any{
		"name":        k.Name,
		"fingerprint": k.Fingerprint,
	}))
}

// List are the org's, newest first.
func (ks *SSHKeys) List(ctx context.Context, p Principal, page Page[id.SSHKey]) ([]SSHKey, error) {
	after, err := page.After.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := ks.db.Q.ListSSHKeys(ctx, p.Org, after, int32(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("list SSH keys: %w", err)
	}
	out := make([]SSHKey, len(rows))
	for i, r := range rows {
		out[i] = SSHKey{r.ID, r.UserID, r.Name, r.PublicKey, r.Fingerprint, r.CreatedAt}
	}
	return out, nil
}

// SSHKeysByID are the org's keys of these ids; an id that is not one of them is an Invalid fault at
// "ssh_key_ids[i]".
func SSHKeysByID(ctx context.Context, q *dbq.Queries, org id.Org, ids []id.SSHKey) ([]SSHKey, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	raw := make([]pgtype.UUID, len(ids))
	for i, k := range ids {
		raw[i] = pgtype.UUID{Bytes: k.UUID(), Valid: true}
	}
	rows, err := q.SSHKeysByID(ctx, org, raw)
	if err != nil {
		return nil, fmt.Errorf("read SSH keys: %w", err)
	}
	found := map[id.SSHKey]SSHKey{}
	for _, r := range rows {
		found[r.ID] = SSHKey{r.ID, r.UserID, r.Name, r.PublicKey, r.Fingerprint, r.CreatedAt}
	}
	var bad fault.Fields
	out := make([]SSHKey, 0, len(ids))
	for i, k := range ids {
		key, ok := found[k]
		if !ok {
			bad.Add(fmt.Sprintf("ssh_key_ids[%d]", i), "is not an SSH key of your organisation")
			continue
		}
		out = append(out, key)
	}
	return out, bad.Err()
}

// ByFingerprint is the org's key with this SHA256:… fingerprint. NotFound when it has none, or when the role of
// the member who added it does not include clusters.
func (ks *SSHKeys) ByFingerprint(ctx context.Context, org id.Org, fingerprint string) (SSHKey, error) {
	r, err := ks.db.Q.SSHKeyByFingerprint(ctx, org, fingerprint)
	if err != nil && !db.NoRows(err) {
		return SSHKey{}, fmt.Errorf("find an SSH key: %w", err)
	}
	if err != nil || !Role(r.Role).Can(ScopeClusters) {
		return SSHKey{}, fault.New(fault.NotFound, "SSH key not found")
	}
	return SSHKey{r.ID, r.UserID, r.Name, r.PublicKey, r.Fingerprint, r.CreatedAt}, nil
}

// Delete removes a key of the org. It opens no shell any more; those that are open go on.
func (ks *SSHKeys) Delete(ctx context.Context, p Principal, k id.SSHKey) error {
	return ks.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Q.DeleteSSHKey(ctx, k, p.Org)
		switch {
		case err != nil:
			return fmt.Errorf("delete SSH key: %w", err)
		case n == 0:
			return fault.New(fault.NotFound, "SSH key not found")
		}
		return audit.Record(ctx, tx, p.Event("ssh_key.delete", k.String(), nil))
	})
}
