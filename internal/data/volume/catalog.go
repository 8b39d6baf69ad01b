package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/seal"
)

// Catalog is the volumes of organisations.
type Catalog struct {
	d      *db.DB
	store  store.Store // nil: this platform offers no volumes
	box    *seal.Box
	log    *slog.Logger
	meters *Meters
}

// Offered reports whether this platform has a store.
func (cat *Catalog) Offered() bool { return cat.store != nil }

var errNoStore = fault.New(fault.Unavailable, "this platform has no store for volumes")

var nameShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// NewVolume is what to create.
type NewVolume struct {
	Name   string
	SizeGB int64
	Keep   int // 0 is DefaultKeep
}

func (n *NewVolume) check() error {
	var bad fault.Fields
	if !nameShape.MatchString(n.Name) {
		bad.Add("name", "Use up to 63 lower-case letters, digits and dashes, such as training-data.")
	}
	if n.SizeGB < MinSizeGB || n.SizeGB > MaxSizeGB {
		bad.Add("size_gb", "want %d to %d", MinSizeGB, MaxSizeGB)
	}
	if n.Keep == 0 {
		n.Keep = DefaultKeep
	}
	if n.Keep < 1 || n.Keep > MaxKeep {
		bad.Add("keep", "want 1 to %d", MaxKeep)
	}
	return bad.Err()
}

// errNone is the fault for a volume that does not exist or is another organisation's.
var errNone = fault.New(fault.NotFound, "volume not found")

func errUsed(name string) error {
	return fault.New(fault.Conflict, "there is a volume %q already: choose another name", name)
}

// Create creates an empty volume in a new data domain. Faults: Invalid, Conflict if the name is used,
// QuotaExceeded, Unavailable.
func (cat *Catalog) Create(ctx context.Context, who account.Principal, n NewVolume, once idem.Request) (Volume,
	idem.Outcome, error) {
	if cat.store == nil {
		return Volume{}, idem.Outcome{}, errNoStore
	}
	return idem.Once(ctx, cat.d, once, func(ctx context.Context, tx *db.Tx) (Volume, error) {
		if err := n.check(); err != nil {
			return Volume{}, err
		}
		domain := id.New[id.DataDomain]()
		key := make([]byte, chunk.KeySize)
		_, _ = rand.Read(key) // never fails
		err := tx.Q.InsertDataDomain(ctx, domain, who.Org, cat.box.Seal(key, belongs(domain)))
		if err != nil {
			return Volume{}, fmt.Errorf("create a data domain of %s: %w", who.Org, err)
		}
		vol, err := insertVolume(ctx, tx, who, domain, n)
		if err != nil {
			return Volume{}, err
		}
		return vol, audit.Record(ctx, tx, who.Event("volume.create", vol.ID.String(),
			map[string]any{"name": n.Name, "size_gb": n.SizeGB}))
	})
}

// belongs binds a domain's sealed key to it.
func belongs(d id.DataDomain) string { return "data domain:" + d.UUID().String() }

func insertVolume(ctx context.Context, tx *db.Tx, who account.Principal, domain id.DataDomain,
	n NewVolume) (Volume, error) {
	if err := tx.Q.LockVolumesOfOrg(ctx, who.Org.String()); err != nil {
		return Volume{}, fmt.Errorf("lock volumes of %s: %w", who.Org, err)
	}
	have, err := tx.Q.CountVolumes(ctx, who.Org)
	if err != nil {
		return Volume{}, fmt.Errorf("count volumes of %s: %w", who.Org, err)
	}
	if have >= MaxPerOrg {
		return Volume{}, fault.New(fault.QuotaExceeded, "your organisation has %d volumes; delete one first", have)
	}
	vol := Volume{ID: id.New[id.Volume](), Name: n.Name, SizeLimit: n.SizeGB * GB, Keep: n.Keep, Sharing: 1}
	at, err := tx.Q.InsertVolume(ctx, dbq.InsertVolumeParams{
		ID: vol.ID, OrgID: who.Org, DomainID: domain, Name: n.Name, SizeLimit: vol.SizeLimit, KeepLast: int32(n.Keep),
		CreatedBy: who.User,
	})
	if err != nil {
		return Volume{}, fmt.Errorf("create a volume of %s: %w", who.Org, err)
	}
	if len(at) == 0 {
		return Volume{}, errUsed(n.Name)
	}
	vol.CreatedAt = at[0]
	return vol, nil
}

// List returns the organisation's volumes by name.
func (cat *Catalog) List(ctx context.Context, org id.Org) ([]Volume, error) {
	rows, err := cat.d.Q.Volumes(ctx, org, pgtype.UUID{})
	if err != nil {
		return nil, fmt.Errorf("volumes of %s: %w", org, err)
	}
	out := make([]Volume, len(rows))
	for i, r := range rows {
		out[i] = cat.of(r)
	}
	return out, nil
}

// Get returns a volume of the organisation. Fault: NotFound.
func (cat *Catalog) Get(ctx context.Context, org id.Org, vol id.Volume) (Volume, error) {
	rows, err := cat.d.Q.Volumes(ctx, org, id.UUIDs(vol)[0])
	if err != nil {
		return Volume{}, fmt.Errorf("read %s: %w", vol, err)
	}
	if len(rows) == 0 {
		return Volume{}, errNone
	}
	return cat.of(rows[0]), nil
}

func (cat *Catalog) of(r dbq.VolumesRow) Volume {
	out := Volume{
		ID: r.Volume.ID, Name: r.Volume.Name, SizeLimit: r.Volume.SizeLimit, Keep: int(r.Volume.KeepLast),
		CreatedAt: r.Volume.CreatedAt, Snapshots: r.Snapshots, HeadSeq: r.Volume.HeadSeq, StoredBytes: r.DomainBytes,
		Sharing: r.Sharing, PerHour: cat.meters.PerHour(r.BilledBytes), DurableTo: r.HeadCutAt, Label: r.HeadLabel,
		Consistency: r.HeadConsistency, Bytes: r.HeadBytes, Files: r.HeadFiles, Cluster: r.WriterClusterID,
		ClusterName: r.WriterName, ClusterEnd: r.WriterEndedAt, Requested: !r.Volume.WantedID.IsZero(),
		Pending: r.PendingBytes, ETA: time.Duration(r.FlushEtaS) * time.Second,
		Problem: r.Problem, ReportedAt: r.ReportedAt, Owed: money.Nano(r.Owed), OwedSince: r.UnpaidSince,
		HiddenAt: r.Volume.HiddenAt,
	}
	out.HidesAt, out.ErasesAt = fate(r.UnpaidSince, r.KeptUntil, r.Volume.HiddenAt)
	return out
}

// Change is what to change of a volume; nil stays.
type Change struct {
	Name   *string
	SizeGB *int64
	Keep   *int
}

// Set changes a volume. A new size holds from the next start on. Faults: NotFound, Invalid, Conflict.
func (cat *Catalog) Set(ctx context.Context, who account.Principal, vol id.Volume, c Change) (Volume, error) {
	err := locked(ctx, cat.d, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		n := NewVolume{Name: row.Name, SizeGB: row.SizeLimit / GB, Keep: int(row.KeepLast)}
		if c.Name != nil {
			n.Name = *c.Name
		}
		if c.SizeGB != nil {
			n.SizeGB = *c.SizeGB
		}
		if c.Keep != nil {
			n.Keep = *c.Keep
		}
		if err := n.check(); err != nil {
			return err
		}
		err := tx.Q.SetVolume(ctx, dbq.SetVolumeParams{
			ID: vol, Name: n.Name, SizeLimit: n.SizeGB * GB, KeepLast: int32(n.Keep),
		})
		if db.IsUnique(err, "volume_name") {
			return errUsed(n.Name)
		}
		if err != nil {
			return fmt.Errorf("change %s: %w", vol, err)
		}
		return audit.Record(ctx, tx, who.Event("volume.change", vol.String(),
			map[string]any{"name": n.Name, "size_gb": n.SizeGB, "keep": n.Keep}))
	})
	if err != nil {
		return Volume{}, err
	}
	return cat.Get(ctx, who.Org, vol)
}

// locked runs f with a volume of the organisation, its data domain and itself locked. Fault: NotFound.
func locked(ctx context.Context, d *db.DB, org id.Org, vol id.Volume,
	f func(context.Context, *db.Tx, dbq.Volume) error) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		row, err := tx.Q.LockVolume(ctx, vol)
		if db.NoRows(err) || err == nil && (row.OrgID != org || row.DeletedAt != nil) {
			return errNone
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", vol, err)
		}
		return f(ctx, tx, row)
	})
}

func lockOwn(ctx context.Context, tx *db.Tx, org id.Org, vol id.Volume) (dbq.Volume, error) {
	row, err := tx.Q.LockVolume(ctx, vol)
	if db.NoRows(err) || err == nil && (row.OrgID != org || row.DeletedAt != nil) {
		return row, errNone
	}
	if err != nil {
		return row, fmt.Errorf("lock %s: %w", vol, err)
	}
	return row, nil
}

// Delete deletes a volume with all its snapshots. What nothing else needs is not billed from this transaction on, and
// is erased from the store by the next sweeps; with the domain's last volume its key is destroyed. Faults: NotFound,
// Conflict while a cluster has it.
func (cat *Catalog) Delete(ctx context.Context, who account.Principal, vol id.Volume) error {
	var domain id.DataDomain
	err := locked(ctx, cat.d, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		domain = row.DomainID
		if err := unmounted(ctx, tx, vol); err != nil {
			return err
		}
		if err := deleteVolume(ctx, tx, row); err != nil {
			return err
		}
		return audit.Record(ctx, tx, who.Event("volume.delete", vol.String(), map[string]any{"name": row.Name}))
	})
	if err != nil {
		return err
	}
	err = cat.meters.charge(ctx, domain)
	if err != nil && !db.NoRows(err) { // no row: nothing was ever stored. Else the meter is due, and the job charges it.
		cat.log.Warn("a deleted volume could not be charged at once", "volume", vol, "err", err)
	}
	return nil
}

// deleteVolume deletes a locked volume.
func deleteVolume(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	for _, readers := range []bool{false, true} {
		if err := tx.Q.CloseDataSessions(ctx, row.ID, readers, id.New[id.DataSession]()); err != nil {
			return fmt.Errorf("close sessions of %s: %w", row.ID, err)
		}
	}
	if err := tx.Q.DeleteVolumeWriter(ctx, row.ID); err != nil {
		return fmt.Errorf("end the writer of %s: %w", row.ID, err)
	}
	_, err = tx.Q.DeleteSnapshots(ctx, dbq.DeleteSnapshotsParams{
		At: &now, VolumeID: row.ID, Seqs: []int64{}, Everything: true,
	})
	if err != nil {
		return fmt.Errorf("delete snapshots of %s: %w", row.ID, err)
	}
	if err := tx.Q.SetVolumeDeleted(ctx, &now, row.ID); err != nil {
		return fmt.Errorf("delete %s: %w", row.ID, err)
	}
	if err := doom(ctx, tx, row.DomainID); err != nil {
		return err
	}
	if err := tx.Q.SetMeterDue(ctx, row.DomainID); err != nil {
		return fmt.Errorf("set the meter of %s due: %w", row.DomainID, err)
	}
	return destroyKey(ctx, tx, row.DomainID)
}

// OpenKey decrypts the key of a data domain. It is secret.
func OpenKey(box *seal.Box, domain id.DataDomain, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, errors.New("the data domain is erased")
	}
	return box.Open(sealed, belongs(domain))
}

// openKeys opens a domain's key.
func openKeys(box *seal.Box, domain id.DataDomain, sealed []byte) (*chunk.Keys, error) {
	key, err := OpenKey(box, domain, sealed)
	if err != nil {
		return nil, err
	}
	return chunk.NewKeys(key)
}

// Reseal seals the keys of data domains with the platform's present secret while it changes, and returns how many it
// sealed.
func (cat *Catalog) Reseal(ctx context.Context) (sealed int, err error) {
	if !cat.box.Rotating() {
		return 0, nil
	}
	return seal.ResealAll(ctx, cat.box, id.First[id.DataDomain](), cat.d.Q.SealedDomains,
		func(r dbq.SealedDomainsRow) (id.DataDomain, []byte, string) { return r.ID, r.KeySealed, belongs(r.ID) },
		cat.d.Q.ResealDomain)
}
